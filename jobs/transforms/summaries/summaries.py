"""What verdicts add up to: sequences, sessions and transactions."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import ALL, SO_FAR, columns_of, name_hashes, row_key, signed, unsigned
from jobs.transforms.replay.coverage import session_coverage
from jobs.transforms.replay.peers import passes_through
from schemas.replay import (
    SEQUENCES,
    SESSIONS,
    STATES,
    TRANSACTIONS,
    UNKNOWN_READING,
    Explains,
    Reading,
    Scope,
    Verdict,
)

_STREAM, _SCOPE, _SENDER = (
    ("stream_no", "stream_check"),
    ("scope_no", "scope_check"),
    ("sender_no", "sender_check"),
)
_PLACE = ("clock", "stream_id", "stream_offset")
_NAMES = ("source_queue_manager", "session_id", "scope_key", "destination_queue")


def _counts() -> list[Column]:
    return [F.count_if(F.col("verdict") == verdict.value).alias(verdict.value) for verdict in Verdict]


def _seen() -> list[Column]:
    return [
        F.min("captured_at").alias("first_captured_at"),
        F.max("captured_at").alias("last_captured_at"),
    ]


def sequences(verdicts: DataFrame) -> DataFrame:
    """One row of SEQUENCES per scope and TxSequenceID."""
    number = F.col("tx_sequence_number")
    return (
        verdicts.groupBy("scope_key", "tx_sequence_id", "source_queue_manager")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            *_counts(),
            F.sum("gap_size").alias("expired"),
            F.min(number).alias("first_number"),
            F.max(number).alias("last_number"),
            F.max(F.when(F.col("accepted"), number)).alias("last_accepted_number"),
            *_seen(),
        )
        .select(columns_of(SEQUENCES))
    )


def states(verdicts: DataFrame, earlier: DataFrame | None = None, *, reading: Reading) -> DataFrame:
    """One row of STATES per scope, and those of `earlier` STATES whose scopes had no message since."""
    moved = F.coalesce("accepted", F.lit(True)) | F.lit(reading is Reading.LITERAL)
    after = (
        F.when(moved, F.col("tx_sequence_id")).otherwise(F.col("incoming_tx_sequence_id")).alias("tx_sequence_id"),
        F.when(moved, F.col("tx_sequence_number"))
        .otherwise(F.col("incoming_tx_sequence_number"))
        .alias("tx_sequence_number"),
    )
    last = F.struct("session_id", *after, "reject_count", "stream_id", "stream_offset")
    rows = (
        verdicts.groupBy("scope_key", "source_queue_manager")
        .agg(
            F.max_by(last, "replay_order").alias("last"),
            F.count(F.lit(1)).alias("messages"),
            F.max("captured_at").alias("last_captured_at"),
            F.max("captured_ns").alias("last_captured_ns"),
        )
        .select("*", "last.*")
    )
    if earlier is not None:
        idle = earlier.join(rows.select("scope_key"), "scope_key", "left_anti")
        rows = rows.drop("last").unionByName(idle.withColumn("messages", F.lit(0).cast("long")))
    return rows.select(columns_of(STATES))


def sessions(
    messages: DataFrame,
    ends: DataFrame,
    stream_gaps: DataFrame,
    quarantine: DataFrame,
    verdicts: DataFrame,
    *,
    scope: Scope = Scope.AUTO,
) -> DataFrame:
    """One row of SESSIONS per pair of queue managers and direction that carried messages."""
    transactional = F.coalesce("transactional", F.lit(False))
    carried = (
        messages.groupBy("stream_id", "queue_manager_address")
        .agg(F.count(F.lit(1)).alias("messages"), F.count_if(transactional).alias("transactional"), *_seen())
        .join(ends, "stream_id")
        .groupBy("session_id", "sender", "receiver")
        .agg(
            F.count_distinct("connection_id").alias("connections"),
            F.sum("messages").alias("messages"),
            F.sum("transactional").alias("transactional"),
            F.sum(F.when(passes_through(), F.col("transactional")).otherwise(0)).alias("passing_through"),
            F.min("first_captured_at").alias("first_captured_at"),
            F.max("last_captured_at").alias("last_captured_at"),
        )
    )
    explained = F.col("explained_by")
    judged = verdicts.groupBy("session_id", F.substring_index("scope_key", " ", 1).alias("replay_scope")).agg(
        *_counts(),
        F.count("explained_by").alias("answers"),
        F.count_if(explained.isin(Explains.CONFORMANT.value, Explains.BOTH.value)).alias("answers_conformant"),
        F.count_if(explained.isin(Explains.LITERAL.value, Explains.BOTH.value)).alias("answers_literal"),
    )
    counts = (*(verdict.value for verdict in Verdict), "answers", "answers_conformant", "answers_literal")
    unjudged = Scope.QUEUE if scope is Scope.AUTO else scope
    return (
        carried.join(session_coverage(messages, ends, stream_gaps, quarantine), "session_id")
        .join(judged, "session_id", "left")
        .fillna(unjudged.value, subset=["replay_scope"])
        .fillna(0, subset=list(counts))
        .withColumn("reading_explained", _reading_explained())
        .select(columns_of(SESSIONS))
    )


def _reading_explained() -> Column:
    """The reading that foretells all OrderAcks that tell."""
    conformant, literal = (F.col(name) == F.col("answers") for name in ("answers_conformant", "answers_literal"))
    return (
        F.when(F.col("answers") == 0, UNKNOWN_READING)
        .when(conformant & literal, Explains.BOTH.value)
        .when(conformant, Explains.CONFORMANT.value)
        .when(literal, Explains.LITERAL.value)
        .otherwise(Explains.NEITHER.value)
    )


def _place_of(neighbour: Column) -> Column:
    """The place of the message beside this one; null where there is none."""
    stream_id = F.coalesce(neighbour["elsewhere"], "stream_id").alias("stream_id")
    return F.when(neighbour.isNotNull(), F.struct(stream_id, neighbour["stream_offset"].alias("stream_offset")))


def transactions(verdicts: DataFrame) -> DataFrame:
    """One row of TRANSACTIONS per use of a sender's transaction ID, of the first arrival of each message.

    The 20 bits come round again: a transaction begins at FM, and at whatever follows LM. Its messages may go
    to several queues, so that scopes are merged as streams are: by the running maximum of the clock. Within a
    scope the numbers of a transaction follow one another: where its first message is missing and the message
    with the number before it was captured, or its last one and the number behind it, the sender sent none.
    """
    on_stream = Window.partitionBy(*_STREAM).orderBy("stream_offset").rowsBetween(*SO_FAR)
    in_scope = Window.partitionBy(*_SCOPE).orderBy("sequence", "number")
    arrivals = Window.partitionBy(*_SCOPE).orderBy("sequence", "number", F.desc("replay_order"))
    numbered = F.struct("sequence", "number")
    last_accepted = F.last(F.when(F.col("accepted"), numbered), ignorenulls=True).over(arrivals.rowsBetween(*SO_FAR))
    under_id = Window.partitionBy(*_SENDER, "tx_transaction_id").orderBy(*_PLACE)
    ended = F.lag("tx_last").over(under_id)
    in_instance = Window.partitionBy(*_SENDER, "tx_transaction_id", "instance", *_SCOPE).orderBy(*_PLACE)

    def beside(look: Callable[[str | Column], Column]) -> Column:
        """The message beside this one in its scope, with its stream where that is another."""
        stream_id = look("stream_id").over(in_scope)
        elsewhere = F.when(stream_id != F.col("stream_id"), stream_id).alias("elsewhere")
        names = ("sequence", "number", "tx_transaction_id", "stream_offset")
        found = F.struct(*(look(name).over(in_scope).alias(name) for name in names), elsewhere)
        return F.when(stream_id.isNotNull(), found)

    before, behind = F.col("before"), F.col("behind")
    follows = (before["sequence"] == F.col("sequence")) & (before["number"] + 1 == F.col("number"))
    followed = (behind["sequence"] == F.col("sequence")) & (behind["number"] - 1 == F.col("number"))
    in_order = Window.partitionBy(*_SENDER, "tx_transaction_id", "instance").orderBy(*_PLACE)
    whole = in_order.rowsBetween(*ALL)
    own, again = F.struct("stream_id", "stream_offset"), F.col("opens") & ~F.col("enters")
    no_first = ~F.col("has_first") & F.coalesce(follows, F.lit(False))
    no_last = ~F.col("has_last") & F.coalesce("followed", F.lit(False))
    shows = F.array_compact(
        F.array(
            row_key(),
            F.when(F.col("last") != own, row_key("last")),
            F.when(no_first, row_key("sent_before")),
            F.when(no_last, row_key("sent_behind")),
            F.when(F.col("interleaved"), row_key("between")),
        )
    )
    named = verdicts.where(F.col("tx_transaction_id").isNotNull()).select("*", *name_hashes(*_NAMES, prefix="names"))
    return (
        named.select(
            *("names_no", "names_check", "stream_id", "stream_offset", "captured_ns", "captured_at", "replay_order"),
            *("accepted", "tx_transaction_id", "tx_first", "tx_last"),
            *name_hashes("stream_id", prefix="stream"),
            *name_hashes("scope_key", prefix="scope"),
            *name_hashes("source_queue_manager", prefix="sender"),
            signed(F.col("tx_sequence_id")).alias("sequence"),
            F.col("tx_sequence_number").alias("number"),
            F.substring_index("message_id", "\\", -1).cast("long").alias("ordinal"),
        )
        .withColumn("clock", F.max("captured_ns").over(on_stream))
        .repartition("scope_no")  # once for the windows of a scope
        .select(
            "*",
            (last_accepted == numbered).alias("ever_accepted"),
            F.lead(numbered).over(arrivals).alias("next_number"),
        )
        .where(F.coalesce(F.col("next_number") != numbered, F.lit(True)))
        .drop("next_number", "captured_ns", "replay_order", "accepted")
        .select("*", beside(F.lag).alias("before"), beside(F.lead).alias("behind"))
        .withColumn("begins", ended.isNotNull() & (F.col("tx_first") | ended))
        .withColumn("instance", F.count_if("begins").over(under_id.rowsBetween(*SO_FAR)) + 1)
        .withColumn("opens", ~F.coalesce(before["tx_transaction_id"] == F.col("tx_transaction_id"), F.lit(False)))
        .withColumn("enters", F.row_number().over(in_instance) == 1)
        .select(
            *("names_no", "names_check", "sequence", "ordinal", "stream_id", "stream_offset", "number", "before"),
            *("tx_transaction_id", "instance"),
            F.row_number().over(in_order).alias("nth"),
            F.count(F.lit(1)).over(whole).alias("messages"),
            F.count_if("ever_accepted").over(whole).alias("accepted"),
            F.coalesce(F.max("tx_first").over(whole), F.lit(False)).alias("has_first"),
            F.coalesce(F.max("tx_last").over(whole), F.lit(False)).alias("has_last"),
            (F.count_if("opens").over(whole) > F.count_if("enters").over(whole)).alias("interleaved"),
            F.last(F.when(again, _place_of(before)), ignorenulls=True).over(whole).alias("between"),
            F.last("ordinal").over(whole).alias("last_ordinal"),
            F.last(own).over(whole).alias("last"),
            F.last(followed).over(whole).alias("followed"),
            F.last(_place_of(behind)).over(whole).alias("sent_behind"),
            F.min("captured_at").over(whole).alias("first_captured_at"),
            F.max("captured_at").over(whole).alias("last_captured_at"),
        )
        .where("nth = 1")
        .withColumn("sent_before", _place_of(before))
        .withColumn("torn", ~(F.col("has_first") & F.col("has_last")))
        .withColumn("torn_by_sender", F.when(no_first | no_last, F.lit(True)).when(~F.col("torn"), F.lit(False)))
        .withColumn("witness", shows)
        .join(named.select(*_NAMES, "names_no", "names_check").distinct(), ["names_no", "names_check"])
        .withColumn("tx_sequence_id", unsigned(F.col("sequence")))
        .withColumn("first_message_id", F.concat_ws("\\", "source_queue_manager", "ordinal"))
        .withColumn("last_message_id", F.concat_ws("\\", "source_queue_manager", "last_ordinal"))
        .select(columns_of(TRANSACTIONS))
    )
