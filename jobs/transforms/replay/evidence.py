"""Compares verdicts with the receiver's own acknowledgments ([MS-MQQB] 3.1.1.6.2, 3.1.6.9, 2.2.5).

An OrderAck is cumulative: the first one at or above a message's number *covers* the message. A FinalAck covers its
message alone, if that was in its queue. So windows over the messages and acknowledgments of one pair and sequence are
enough: by falling number (when was this number first covered, and when did the replay first reach it), by falling time
(which OrderAck came next), and within a number (its FinalAck). A resend is acknowledged by the next OrderAck once its
number is covered.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import ALL, BEFORE, SO_FAR, unsigned
from jobs.transforms.replay import chains
from schemas.messages import AckType
from schemas.replay import Evidence, Explains, Reading, Verdict
from schemas.wire import LATEST_ORDER_ACK_MS, QUEUED_CLASS

CONTENT = (
    "message_id",
    "sent_at",
    "tx_transaction_id",
    "tx_first",
    "tx_last",
    "message_class",
    "label",
    "body_size",
    "body_type",
    "body_crc32",
    "application_tag",
    "extension_size",
    "correlation_id",
)
"""Columns that a resend repeats ([MS-MQQB] 3.1.7.1.3); its previous number and hop count may change."""
_PAIR = ("pair_no", "sequence")
_MS = 1_000_000  # ns
_IN_FLIGHT_MS = 250  # an OrderAck that follows sooner may have left before the message arrived


def was_queued(message_class: Column) -> Column:
    """Returns whether a FinalAck of this class is for a message that was queued; otherwise it was refused for cause."""
    return message_class.bitwiseAND(QUEUED_CLASS) != 0


def with_conformant_number(judged: DataFrame) -> DataFrame:
    """Adds the number that the next OrderAck of a conformant receiver names, in the message's sequence.

    Null where the verdict is unknown, and where the receiver is in another sequence.
    """
    same = F.col("incoming_tx_sequence_id") == unsigned(F.col("sequence"))
    number = F.when(F.col("accepted"), F.col("number")).when(
        ~F.col("accepted") & same, F.col("incoming_tx_sequence_number")
    )
    return judged.withColumn("conformant_number", number)


def with_evidence(
    judged: DataFrame, acks: DataFrame, streams: DataFrame, reading: Reading, *, chained: bool
) -> DataFrame:
    """Adds `acknowledged_ns`, `covered_ns`, `evidence`, `explained_by`, and `final`, the FinalAck of the number.

    `confirmed`: an accepted message is acknowledged, a duplicate is covered at any time, or the first OrderAck after an
    out-of-order message names a lower number. `contradicted`: an out-of-order message is covered before the replay
    reached its number; or an accepted one is not covered by an OrderAck that came later than the timers allow. `none`:
    otherwise. A receiver of the literal reading names the last message, accepted or not, so nothing contradicts it.

    `covered_ns` is the time of the first OrderAck after the message that names its number or a higher one. If an
    OrderAck did so before the message came, only the next OrderAck counts. Chains are cut until the added columns hold
    for each of their messages; only `explained_by` is that of the last one. Unless `chained`, a chain is one message.
    """
    pairs = streams.where("has_messages").select("receiver", "source_queue_manager", "pair_no").distinct()
    is_order_ack = F.col("ack_type") == AckType.ORDER_ACK.value
    acknowledgments = acks.join(pairs, ["receiver", "source_queue_manager"]).select(
        *("pair_no", "sequence", F.col("number").alias("first_number"), "number", F.array("ns").alias("times")),
        F.when(is_order_ack, F.struct("ns", "number")).alias("ack"),
        "final",
    )
    rows = judged.unionByName(acknowledgments, allowMissingColumns=True).repartition(*_PAIR)  # once for all windows
    queued_ns = F.when(was_queued(F.col("final.message_class")), F.col("final.captured_ns"))
    time, covered = F.col("captured_ns"), F.col("covered")
    acknowledged = F.when(covered >= time, covered).when(covered < time, F.col("following.ns"))
    first_ns, following = F.col("covered_ns"), F.col("following")
    covered_later = F.when(first_ns >= time, first_ns).when(
        (first_ns < time) & (following["number"] >= F.col("number")), following["ns"]
    )
    rows = _with_first_acks(_cut_at_acknowledged_numbers(rows) if chained else rows)
    rows = _cut_where_times_matter(rows) if chained else rows
    return (
        _with_next_acks(rows)
        .withColumn("covered", F.least("covered_ns", queued_ns))
        .withColumn("acknowledged_ns", acknowledged)
        .withColumn("explained_by", _explained_by())
        .withColumn("evidence", _evidence(conformant=reading is Reading.CONFORMANT))
        .withColumn("covered_ns", covered_later)
        .drop("covered", "reached_ns", "following", "overdue", "next", "captured_ns", "ack", "last_ack_ns")
    )


def _cut_at_acknowledged_numbers(rows: DataFrame) -> DataFrame:
    """Cuts chains so that an acknowledgment covers all messages of one or none, and before each refused number."""
    near = Window.partitionBy(*_PAIR, chains.bucket_of_number())
    refused, has_final = F.col("verdict") == Verdict.OUT_OF_ORDER.value, F.col("final").isNotNull()
    acknowledged = F.col("ack").isNotNull() | has_final
    numbers = F.concat(
        F.collect_set(F.when(acknowledged, F.col("number"))).over(near),
        F.collect_set(F.when(refused | has_final, F.col("number") - 1)).over(near),
    )
    inside = F.filter("numbers", lambda number: number.between(F.col("first_number"), F.col("number") - 1))
    ends = F.when(F.size("offsets") > 1, F.array_union(F.array_sort(inside), chains.whole())).otherwise(chains.whole())
    return _with_own_places(chains.cut(rows.withColumn("numbers", numbers), ends).drop("numbers"))


def _with_own_places(parts: DataFrame) -> DataFrame:
    """Gives parts of chains their own place in replay order and state; all messages of a chain are in order."""
    return parts.withColumns(
        {name: F.col(name) + F.col("nth") for name in ("replay_order", "incoming_tx_sequence_number")}
        | {"conformant_number": F.coalesce(F.when(F.col("accepted"), F.col("number")), "conformant_number")}
    ).drop("nth")


def _with_first_acks(rows: DataFrame) -> DataFrame:
    """Adds when a number was first covered, when the replay first reached it, its FinalAck, and the last OrderAck."""
    by_falling_number = Window.partitionBy(*_PAIR).orderBy(F.desc("number"))
    at_or_above = by_falling_number.rangeBetween(*SO_FAR)
    same_number = by_falling_number.rangeBetween(Window.currentRow, Window.currentRow)
    moved = F.coalesce("accepted", F.col("verdict").isNotNull())
    return rows.withColumns(
        {
            "covered_ns": F.min("ack.ns").over(at_or_above),
            "reached_ns": F.min(F.when(moved, F.element_at("times", 1))).over(at_or_above),
            "final": F.max("final").over(same_number),
            "last_ack_ns": F.max("ack.ns").over(by_falling_number.rowsBetween(*ALL)),
        }
    )


def _cut_where_times_matter(rows: DataFrame) -> DataFrame:
    """Cuts chains that overlap in time, and chains of which some message was covered too early or too late.

    Chains that were never covered are not cut either, if no OrderAck of the sequence came later.
    """
    is_chain, first_ns, last_ns = F.col("verdict").isNotNull(), F.element_at("times", 1), F.element_at("times", -1)
    by_time = Window.partitionBy(*_PAIR, is_chain).orderBy(first_ns)
    following, before = F.lead(first_ns).over(by_time), F.max(last_ns).over(by_time.rowsBetween(*BEFORE))
    overlaps = F.coalesce(following < last_ns, F.lit(False)) | F.coalesce(before > first_ns, F.lit(False))
    in_time = F.col("covered_ns").between(last_ns, first_ns + LATEST_ORDER_ACK_MS * _MS - 1)
    plain = F.coalesce(in_time, F.lit(False)) | F.coalesce(F.col("last_ack_ns") < first_ns, F.lit(True))
    marked = rows.withColumn("overlaps", overlaps)
    ends = F.when(F.col("overlaps") | ~plain, chains.each_message()).otherwise(chains.whole())
    return _with_own_places(chains.cut(marked, ends).drop("overlaps"))


def _with_next_acks(rows: DataFrame) -> DataFrame:
    """Returns the chains, with the OrderAcks that follow each: the first one, the first overdue one, and `next`.

    `next` is the OrderAck that comes before any other row. So a chain has a row at its first time as well.
    """
    by_falling_time = Window.partitionBy(*_PAIR).orderBy(F.desc_nulls_last("captured_ns"))
    in_turn = Window.partitionBy(*_PAIR).orderBy(
        F.desc_nulls_last("captured_ns"), F.desc("event.number"), F.col("ack").isNull(), "event.opens"
    )
    overdue = by_falling_time.rangeBetween(Window.unboundedPreceding, -LATEST_ORDER_ACK_MS * _MS)

    def event(at: int, number: str, *, opens: bool) -> Column:
        ns = F.element_at("times", at)
        return F.struct(ns.alias("ns"), F.col(number).alias("number"), F.lit(opens).alias("opens"))

    last = event(-1, "number", opens=False)
    events = F.when(F.size("offsets") > 1, F.array(event(1, "first_number", opens=True), last)).otherwise(F.array(last))
    return (
        rows.withColumn("event", F.explode(events))
        .withColumn("captured_ns", F.col("event.ns"))
        .withColumn("next", F.lag("ack").over(in_turn))
        .withColumn("following", F.min("ack").over(by_falling_time.rangeBetween(*SO_FAR)))
        .withColumn("overdue", F.min("ack").over(overdue))
        .where(F.col("verdict").isNotNull() & ~F.col("event.opens"))
        .drop("event")
    )


def _evidence(*, conformant: bool) -> Column:
    covered, number, late = F.col("covered"), F.col("number"), F.col("overdue")
    accepted, refused = F.col("accepted"), F.col("verdict") == Verdict.OUT_OF_ORDER.value
    not_covered = (late["number"] < number) & (F.coalesce(covered, late["ns"]) >= late["ns"]) & F.col("final").isNull()
    covered_too_soon = covered < F.coalesce("reached_ns", covered + 1)
    return (
        F.when(F.lit(conformant) & accepted & not_covered, Evidence.CONTRADICTED.value)
        .when(accepted & F.col("acknowledged_ns").isNotNull(), Evidence.CONFIRMED.value)
        .when((F.col("verdict") == Verdict.DUPLICATE.value) & covered.isNotNull(), Evidence.CONFIRMED.value)
        .when(F.lit(conformant) & refused & covered_too_soon, Evidence.CONTRADICTED.value)
        .when(refused & (F.col("following.number") < number), Evidence.CONFIRMED.value)
        .otherwise(Evidence.NONE.value)
    )


def _explained_by() -> Column:
    """Returns the reading that predicts the next OrderAck; the literal one predicts this message's number."""
    named = F.col("next.number")
    literal, conformant = named == F.col("number"), F.coalesce(named == F.col("conformant_number"), F.lit(False))
    separates = (
        (F.col("next.ns") - F.col("captured_ns") >= _IN_FLIGHT_MS * _MS)
        & F.col("accepted").isNotNull()
        & (named <= F.greatest("number", "conformant_number"))
    )
    return F.when(
        separates,
        F.when(literal & conformant, Explains.BOTH.value)
        .when(conformant, Explains.CONFORMANT.value)
        .when(literal, Explains.LITERAL.value)
        .otherwise(Explains.NEITHER.value),
    )
