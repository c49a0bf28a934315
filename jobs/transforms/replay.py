"""`verdicts`: what a conforming receiver did with every transactional message, [MS-MQQB] 3.1.5.8.6.

A message is accepted exactly when the state S lies in `lo <= S < hi`, with `hi = (id, number)` and
`lo = (id, previous)`, or no lower bound where previous is 0; S becomes `hi`, and never falls. Let M be the
highest `hi` before a message. A *record* lies above M. While no record was refused, S is M. A record with
`lo > M` is a *hole*: refused, and S stays below M until a record that is accepted from any state, a *cut*.
So windows replay all but the runs from a hole to the next cut, and `fold` walks those.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.evidence import content, with_conformant_number, with_evidence, with_final_ack
from jobs.transforms.scopes import (
    acknowledgments,
    auto_scopes,
    initial_states,
    order_acks,
    passes_through,
    routes,
    signed,
    unsigned,
    with_scope,
)
from schemas.ingest import Stage
from schemas.replay import VERDICTS, Reading, Reason, Scope, Verdict
from schemas.table import Table
from udfs.acceptance import STATE, fold

KEY = ["stream_id", "stream_offset"]
BEFORE = (Window.unboundedPreceding, -1)
SO_FAR = (Window.unboundedPreceding, Window.currentRow)


def in_scope() -> WindowSpec:
    """A scope in replay order: streams merged by the running maximum of the clock along each."""
    return Window.partitionBy("scope_key").orderBy("clock", "first_ns", *KEY)


def contract(table: Table) -> list[Column]:
    """The table's columns in their order and types."""
    return [F.col(column.name).cast(column.type) for column in table]


def _unsettled(rows: DataFrame) -> DataFrame:
    return rows


def verdicts(
    messages: DataFrame,
    ends: DataFrame,
    stream_gaps: DataFrame,
    quarantine: DataFrame,
    acks: DataFrame,
    *,
    reading: Reading = Reading.CONFORMANT,
    scope: Scope = Scope.AUTO,
    settle: Callable[[DataFrame], DataFrame] = _unsettled,
) -> DataFrame:
    """One row of VERDICTS per transactional message that arrived at its final destination.

    `settle` is given what several of the later steps read, and returns the same rows; so the caller should have done
    with `ends`. A job cuts the plan there: as one plan, each of these is planned again wherever it is read, which costs
    minutes.
    """
    ways = settle(routes(messages, ends))
    answers = settle(acknowledgments(acks, ends, ways))
    chosen = settle(auto_scopes(messages, ends, ways)) if scope is Scope.AUTO else None
    scoped = settle(with_scope(ways, scope, chosen))
    runs = missing_runs(stream_gaps, quarantine)
    in_scopes = (
        with_scope(arrivals(messages, runs, ends), scope, chosen)
        .unionByName(stream_ends(runs, ends, scoped), allowMissingColumns=True)
        .unionByName(opening_rows(initial_states(scoped, order_acks(answers))), allowMissingColumns=True)
    )
    timeline = settle(in_replay_order(in_scopes))
    judged = with_conformant_number(with_verdict(holding(timeline)))
    if reading is Reading.LITERAL:
        conformant = judged.select(*KEY, "conformant_number")
        judged = with_verdict(moving(timeline)).join(conformant, KEY)
    replayed = with_evidence(judged, answers, reading)
    carried = replayed.drop("captured_ns", "source_queue_manager")
    return with_final_ack(messages.join(carried, KEY)).withColumn("content_hash", content()).select(contract(VERDICTS))


def missing_runs(stream_gaps: DataFrame, quarantine: DataFrame) -> DataFrame:
    """`stream_id`, `stream_offset` of every run of bytes that may have held a message and gave none."""
    unreadable = quarantine.where(F.col("stage").isin(Stage.FRAMING.value, Stage.DECODE.value))
    return stream_gaps.select(KEY).unionByName(unreadable.select(KEY))


def arrivals(messages: DataFrame, runs: DataFrame, ends: DataFrame) -> DataFrame:
    """Transactional messages at their final destination, with the number of `missing` runs before each."""
    on_stream = Window.partitionBy("stream_id").orderBy("stream_offset").rowsBetween(*SO_FAR)
    return (
        messages.where("transactional")
        .select(
            *KEY,
            "captured_ns",
            "source_queue_manager",
            "queue_manager_address",
            "destination_queue",
            signed(F.col("tx_sequence_id")).alias("sequence"),
            F.col("tx_sequence_number").alias("number"),
            F.col("previous_tx_sequence_number").alias("previous"),
        )
        .unionByName(runs, allowMissingColumns=True)
        .withColumn("missing", F.count_if(F.col("sequence").isNull()).over(on_stream))
        .where(F.col("sequence").isNotNull())
        .join(ends, "stream_id")
        .where(~passes_through())
        .select(
            "session_id",
            "receiver",
            "source_queue_manager",
            "destination_queue",
            *KEY,
            "captured_ns",
            "first_ns",
            "mid_stream",
            "sequence",
            "number",
            "previous",
            "missing",
        )
    )


def stream_ends(runs: DataFrame, ends: DataFrame, routes: DataFrame) -> DataFrame:
    """A row at the end of each stream with missing runs, for every scope of its session.

    It carries what was missing behind the scope's last message there, or on a stream that shows none.
    """
    scopes = routes.where(F.col("replay_scope") != Scope.CONNECTION.value).select("session_id", "scope_key")
    return (
        runs.groupBy("stream_id")
        .agg(F.count(F.lit(1)).alias("missing"))
        .join(ends.select("stream_id", "session_id", "first_ns"), "stream_id")
        .join(scopes.distinct(), "session_id")
        .select(
            "scope_key",
            "stream_id",
            F.lit((1 << 63) - 1).alias("stream_offset"),
            "first_ns",
            F.lit(False).alias("mid_stream"),
            "missing",
        )
    )


def opening_rows(initial: DataFrame) -> DataFrame:
    """A row at the time of the OrderAck that fixed the state of a scope, before all of its messages."""
    return initial.select(
        "scope_key",
        F.lit("").alias("stream_id"),
        F.lit(0).cast("long").alias("stream_offset"),
        F.col("ns").alias("captured_ns"),
        F.lit(False).alias("mid_stream"),
        "sequence",
        "number",
        F.lit(0).cast("long").alias("missing"),
    )


def in_replay_order(timeline: DataFrame) -> DataFrame:
    """Opening rows (0) and messages (1, 2, …) by `replay_order`, with all `missing` runs of the scope so far.

    Streams are merged by the running maximum of the clock along each, so that no clock moves a message
    within its stream. A further connection that was caught in mid-stream starts behind a missing run.
    """
    on_stream = Window.partitionBy("scope_key", "stream_id").orderBy("stream_offset")
    so_far = in_scope().rowsBetween(*SO_FAR)
    is_message = F.col("previous").isNotNull()
    # The end of a stream with messages lies right behind the last one, whenever the stream began by the clock.
    stamp = F.coalesce("captured_ns", F.when(is_message, F.col("first_ns")))
    return (
        timeline.repartition("scope_key")  # once for all windows of a scope
        .select(
            "*",
            F.coalesce(F.max(stamp).over(on_stream.rowsBetween(*SO_FAR)), "first_ns").alias("clock"),
            F.lag("missing").over(on_stream).alias("missing_already"),
        )
        .withColumn("added", F.col("missing") - F.coalesce("missing_already", F.lit(0)))
        .withColumn("caught", F.when(is_message, F.col("missing_already").isNull() & F.col("mid_stream")).cast("int"))
        .select(
            "*",
            F.count_if(is_message).over(so_far).alias("replay_order"),
            F.sum("added").over(so_far).alias("added_so_far"),
            (F.sum("caught").over(so_far) - F.first("caught", ignorenulls=True).over(so_far)).alias("caught_later"),
        )
        .withColumn("missing", F.col("added_so_far") + F.coalesce("caught_later", F.lit(0)))
        .where(F.col("sequence").isNotNull())
        .select(
            "scope_key",
            "clock",
            "first_ns",
            *KEY,
            "session_id",
            "receiver",
            "source_queue_manager",
            "captured_ns",
            "sequence",
            "number",
            "previous",
            "missing",
            "replay_order",
        )
    )


def _above(sequence: str, number: str) -> Column:
    """Whether (sequence, number) lies above the state."""
    return (F.col(sequence) > F.col("state_sequence")) | (
        (F.col(sequence) == F.col("state_sequence")) & (F.col(number) > F.col("state_number"))
    )


def moving(timeline: DataFrame) -> DataFrame:
    """States before, as the letter of 3.1.5.8.6 has it: every message sets the state."""
    return timeline.select(
        "*",
        *(F.lag(name.removeprefix("state_")).over(in_scope()).alias(name) for name in STATE),
    )


def holding(timeline: DataFrame) -> DataFrame:
    """States before, where only an accepted message sets the state, or one across missing bytes."""
    # Of equal numbers the first set the state: the one with the fewest missing runs before it.
    highest = F.max(F.struct("sequence", "number", (-F.col("missing")).alias("fewest"))).over(
        in_scope().rowsBetween(*BEFORE)
    )
    record = F.col("state_number").isNull() | _above("sequence", "number")
    hole = (
        record
        & (F.col("previous") != 0)
        & _above("sequence", "previous")
        & (F.col("missing") == F.col("state_missing"))
    )
    cut = record & ((F.col("previous") == 0) | (F.col("missing") > F.col("missing_before")))
    in_run = Window.partitionBy("scope_key", "run").orderBy("replay_order")
    marked = (
        timeline.select("*", highest.alias("highest"), F.lag("missing").over(in_scope()).alias("missing_before"))
        .select(
            "*",
            F.col("highest.sequence").alias("state_sequence"),
            F.col("highest.number").alias("state_number"),
            (-F.col("highest.fewest")).alias("state_missing"),
        )
        .withColumn("hole", F.coalesce(hole, F.lit(False)))
        .withColumn("cut", cut)
        .withColumn("run", F.max(F.when(F.col("cut"), F.col("replay_order"))).over(in_scope().rowsBetween(*BEFORE)))
        .drop("highest", "missing_before", "cut", "clock", "first_ns")
        # One shuffle that both branches below read, as they read the same columns of it. It splits a large scope.
        .repartition("scope_key", "run")
        .withColumn("open", F.coalesce(F.max("hole").over(in_run.rowsBetween(*BEFORE)), F.lit(False)))
        .withColumn("opens", F.col("hole") & ~F.col("open"))
    )
    in_doubt = F.col("hole") | F.col("open")
    walked = marked.where(in_doubt).sortWithinPartitions("scope_key", "run", "replay_order")
    return (
        marked.where(~in_doubt).unionByName(walked.mapInArrow(fold, walked.schema)).drop("hole", "run", "open", "opens")
    )


def with_verdict(states: DataFrame) -> DataFrame:
    """Messages with `accepted`, `verdict`, `reason`, `gap_size` and `reject_count`, and the state before each.

    `sent` is the highest pair that the scope's unjudged messages, or the OrderAck that fixed its state, say
    the receiver had been sent: what is refused at or below it is a duplicate.
    """
    in_scope = Window.partitionBy("scope_key").orderBy("replay_order")
    alike = Window.partitionBy("scope_key", "sequence", "number").orderBy("replay_order")
    is_message = F.col("previous").isNotNull()
    known = F.col("state_number").isNotNull()
    same = known & (F.col("sequence") == F.col("state_sequence"))
    above = ~known | _above("sequence", "number")
    follows = F.when(same, F.col("previous") <= F.col("state_number")).otherwise(F.col("previous") == 0)
    skipped = F.greatest(F.col("number") - F.when(same, F.col("state_number")).otherwise(0) - 1, F.lit(0).cast("long"))
    across = known & (F.col("missing") > F.col("state_missing"))
    unknown = F.when(known, above & across & (~follows | (skipped > 0))).otherwise(F.col("previous") != 0)
    sent = F.when(~is_message, F.struct("sequence", "number")).when(
        F.col("accepted").isNull(), F.struct("sequence", F.col("previous").alias("number"))
    )
    sent_already = (F.col("sequence") < F.col("sent.sequence")) | (
        (F.col("sequence") == F.col("sent.sequence")) & (F.col("number") <= F.col("sent.number"))
    )
    moved = F.coalesce("accepted", is_message)
    verdict = (
        F.when(F.col("accepted").isNull(), Verdict.UNKNOWN.value)
        .when(~F.col("accepted") & (F.coalesce("seen", F.lit(False)) | sent_already), Verdict.DUPLICATE.value)
        .when(~F.col("accepted"), Verdict.OUT_OF_ORDER.value)
        .when(skipped > 0, Verdict.GAP_EXPIRED.value)
        .when(same, Verdict.IN_ORDER.value)
        .otherwise(Verdict.NEW_SEQUENCE.value)
    )
    reason = (
        F.when((F.col("verdict") == Verdict.UNKNOWN.value) & known, Reason.CAPTURE_GAP.value)
        .when(F.col("verdict") == Verdict.UNKNOWN.value, Reason.NO_PRIOR_STATE.value)
        .when(F.col("verdict") != Verdict.OUT_OF_ORDER.value, None)
        .when(above, Reason.PREDECESSOR_MISSING.value)
        .when(same, Reason.LATE.value)
        .otherwise(Reason.STALE_SEQUENCE.value)
    )
    return (
        states.withColumn("accepted", F.when(is_message & ~unknown, above & follows))
        .select(
            "*",
            F.max(F.when(moved, F.col("replay_order"))).over(in_scope.rowsBetween(*SO_FAR)).alias("last_moved"),
            F.max(sent).over(in_scope.rowsBetween(*BEFORE)).alias("sent"),
            F.max(moved).over(alike.rowsBetween(*BEFORE)).alias("seen"),
        )
        .where(is_message)
        .withColumn("verdict", verdict)
        .select(
            "session_id",
            "scope_key",
            "receiver",
            "source_queue_manager",
            *KEY,
            "captured_ns",
            "sequence",
            "number",
            "replay_order",
            unsigned(F.col("state_sequence")).alias("incoming_tx_sequence_id"),
            F.col("state_number").alias("incoming_tx_sequence_number"),
            "accepted",
            "verdict",
            reason.alias("reason"),
            F.when(F.col("verdict") == Verdict.GAP_EXPIRED.value, skipped).otherwise(0).alias("gap_size"),
            (F.col("replay_order") - F.coalesce("last_moved", F.lit(0))).alias("reject_count"),
        )
    )
