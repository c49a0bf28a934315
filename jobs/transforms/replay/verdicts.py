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

from jobs.transforms.expressions import BEFORE, SO_FAR, columns_of, signed, unsigned
from jobs.transforms.replay.acknowledgments import select_order_acks
from jobs.transforms.replay.evidence import content, with_conformant_number, with_evidence, with_final_ack
from jobs.transforms.replay.initial_states import find_initial_states
from jobs.transforms.replay.inputs import ReplayInputs, unsettled
from jobs.transforms.replay.scopes import FLOW_KEY
from schemas.replay import VERDICTS, Reading, Reason, Scope, Verdict
from udfs.msmq.acceptance import STATE, fold
from udfs.on_spark import map_arrow

LANE = ["scope_no", "lane"]
STREAM_END = (1 << 63) - 1


def in_scope() -> WindowSpec:
    """A scope in replay order: lanes merged by the running maximum of the clock along each."""
    return Window.partitionBy("scope_no").orderBy("clock", "lane", "stream_offset")


def replayed() -> WindowSpec:
    """The same, once `replay_order` is known."""
    return Window.partitionBy("scope_no").orderBy("replay_order")


def judge_messages(
    grounds: ReplayInputs,
    earlier: DataFrame | None = None,
    *,
    reading: Reading = Reading.CONFORMANT,
    settle: Callable[[DataFrame], DataFrame] = unsettled,
) -> DataFrame:
    """One row of VERDICTS per transactional message that arrived at its final destination.

    Scopes that have a row in `earlier`, which are STATES, go on from there. `settle` is that of `Grounds.of`.
    """
    messages, runs = grounds.messages, grounds.runs
    lanes = settle(with_lanes(grounds.routes, runs, grounds.ends))
    opening = find_initial_states(lanes.where("carries"), select_order_acks(grounds.answers), earlier)
    timeline = in_replay_order(
        arrivals(messages, lanes)
        .unionByName(run_rows(runs, lanes), allowMissingColumns=True)
        .unionByName(stream_ends(runs, lanes), allowMissingColumns=True)
        .unionByName(opening_rows(opening), allowMissingColumns=True)
    )
    timeline = settle(timeline) if reading is Reading.LITERAL else timeline
    judged = with_conformant_number(with_verdict(holding(timeline, settle)))
    if reading is Reading.LITERAL:
        conformant = judged.select(*LANE, "stream_offset", "conformant_number")
        judged = with_verdict(moving(timeline)).join(conformant, [*LANE, "stream_offset"])
    answers = of_pairs(grounds.answers, lanes)
    replayed = with_evidence(with_pair(judged, lanes), answers, reading).drop("captured_ns")
    told = with_lane(messages, lanes).withColumn("content_hash", content()).drop("stream_id", "source_queue_manager")
    return with_names(with_final_ack(told.join(replayed, [*LANE, "stream_offset"])), lanes).select(columns_of(VERDICTS))


def with_lanes(scoped: DataFrame, runs: DataFrame, ends: DataFrame) -> DataFrame:
    """Routes with `scope_no`, `lane`, which is what a scope calls one of its streams, `pair_no` and `carries`.

    A `pair_no` stands for a receiver and an original sender. Windows over numbers cost a fraction of those over names.
    A stream that misses bytes is a lane of each scope of its session; where it is that alone, and not a route of its
    messages, `carries` is false.
    """
    scopes = scoped.where(F.col("replay_scope") != Scope.CONNECTION.value).select("session_id", "scope_key").distinct()
    missing = (
        ends.join(runs.select("stream_id").distinct(), "stream_id", "left_semi")
        .select("stream_id", "session_id", "first_ns")
        .join(scopes, "session_id")
    )
    by_number, by_pair = Window.partitionBy("scope_no"), Window.partitionBy("pair_no")
    pair = F.struct("receiver", "source_queue_manager")
    return (
        scoped.withColumn("carries", F.lit(True))
        .unionByName(missing.withColumn("carries", F.lit(False)), allowMissingColumns=True)
        .withColumn("scope_no", _scope_no())
        .withColumn("pair_no", F.xxhash64("receiver", "source_queue_manager"))
        .withColumn("one_scope", F.min("scope_key").over(by_number) == F.max("scope_key").over(by_number))
        .withColumn("lane", F.dense_rank().over(by_number.orderBy("first_ns", "stream_id")))
        .withColumn("one_pair", F.min(pair).over(by_pair) == F.max(pair).over(by_pair))
        .withColumn(
            "scope_no", F.when(F.col("one_scope") & F.col("one_pair"), F.col("scope_no")).otherwise(_same_number())
        )
        .drop("one_scope", "one_pair")
    )


def _scope_no() -> Column:
    """The number that stands for a scope in windows; `with_lanes` makes sure that it stands for one only."""
    return F.xxhash64("scope_key")


def _same_number() -> Column:
    """Once in a thousand million warehouses of 100,000 scopes."""
    told = F.concat(F.lit("Two scopes or pairs of queue managers have the same number; one is of "), "scope_key")
    return F.raise_error(told).cast("long")


def with_lane(messages: DataFrame, lanes: DataFrame) -> DataFrame:
    """Transactional messages at their final destination with their lane, and what is known of its stream."""
    routes = lanes.where("carries").select(
        *LANE, "first_ns", "mid_stream", *(F.col(k).alias(f"of_{k}") for k in FLOW_KEY)
    )
    same = [F.col(k).eqNullSafe(F.col(f"of_{k}")) for k in FLOW_KEY]
    return messages.join(routes, same)


def arrivals(messages: DataFrame, lanes: DataFrame) -> DataFrame:
    """The messages of `with_lane` as rows of the timeline; `at` is the time that orders them."""
    return with_lane(messages, lanes).select(
        *LANE,
        "stream_offset",
        "captured_ns",
        F.coalesce("captured_ns", "first_ns").alias("at"),
        "mid_stream",
        signed(F.col("tx_sequence_id")).alias("sequence"),
        F.col("tx_sequence_number").alias("number"),
        F.col("previous_tx_sequence_number").alias("previous"),
        F.lit(0).cast("long").alias("missing"),
    )


def run_rows(runs: DataFrame, lanes: DataFrame) -> DataFrame:
    """A row for each missing run, on each of the lanes whose messages it may have held."""
    carrying = lanes.where("carries").select(*LANE, "stream_id").distinct()
    return runs.join(carrying, "stream_id").select(*LANE, "stream_offset", F.lit(1).cast("long").alias("missing"))


def stream_ends(runs: DataFrame, lanes: DataFrame) -> DataFrame:
    """A row at the end of each lane with missing runs, for what was missing behind the scope's last message there.

    On a lane that carries no message of the scope, these are all of them, at the time when its stream began; on
    another it lies right behind the last message, whenever the stream began by the clock.
    """
    counted = runs.groupBy("stream_id").agg(F.count(F.lit(1)).alias("all"))
    return (
        lanes.groupBy(*LANE, "stream_id", "first_ns")
        .agg(F.max("carries").alias("carries"))
        .join(counted, "stream_id")
        .select(
            *LANE,
            F.lit(STREAM_END).alias("stream_offset"),
            F.when(~F.col("carries"), F.col("first_ns")).alias("at"),
            F.when(F.col("carries"), 0).otherwise(F.col("all")).alias("missing"),
        )
    )


def opening_rows(initial: DataFrame) -> DataFrame:
    """A row at the time of what fixed the state of a scope, before all of its messages.

    Where it was `resumed`, the row stands for a stream: one caught in mid-stream is then a further one.
    """
    zero = F.lit(0).cast("long")
    return initial.select(
        _scope_no().alias("scope_no"),
        F.lit(0).alias("lane"),
        zero.alias("stream_offset"),
        F.col("ns").alias("captured_ns"),
        F.col("ns").alias("at"),
        F.when(F.col("resumed"), F.lit(False)).alias("mid_stream"),
        "sequence",
        "number",
        zero.alias("missing"),
    )


def in_replay_order(timeline: DataFrame) -> DataFrame:
    """Opening rows (0) and messages (1, 2, …) by `replay_order`, with all `missing` runs of the scope so far.

    Lanes are merged by the running maximum of the clock along each, so that no clock moves a message within its
    stream. What is missing before a message counts from that message on. A further connection that was caught in
    mid-stream starts behind a missing run.
    """
    on_lane = Window.partitionBy(*LANE).orderBy("stream_offset")
    so_far = in_scope().rowsBetween(*SO_FAR)
    is_message = F.col("previous").isNotNull()
    counted = F.max(F.when(is_message, F.col("missing_here"))).over(on_lane.rowsBetween(*BEFORE))
    first = F.count_if(is_message).over(on_lane.rowsBetween(*BEFORE)) == 0
    return (
        timeline.repartition("scope_no")  # once for all windows of a scope
        .select(
            "*",
            F.max("at").over(on_lane.rowsBetween(*SO_FAR)).alias("clock"),
            F.sum("missing").over(on_lane.rowsBetween(*SO_FAR)).alias("missing_here"),
        )
        .select(
            "*",
            (F.col("missing_here") - F.coalesce(counted, F.lit(0))).alias("added"),
            (first & F.col("mid_stream")).cast("int").alias("caught"),
        )
        .where(F.col("sequence").isNotNull() | (F.col("stream_offset") == STREAM_END))
        .select(
            "*",
            F.count_if(is_message).over(so_far).alias("replay_order"),
            F.sum("added").over(so_far).alias("added_so_far"),
            (F.sum("caught").over(so_far) - F.first("caught", ignorenulls=True).over(so_far)).alias("caught_later"),
        )
        .where(F.col("sequence").isNotNull())
        .select(
            *LANE,
            "clock",
            "stream_offset",
            "captured_ns",
            "sequence",
            "number",
            "previous",
            (F.col("added_so_far") + F.coalesce("caught_later", F.lit(0))).alias("missing"),
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
        *(F.lag(name.removeprefix("state_")).over(replayed()).alias(name) for name in STATE),
    )


def holding(timeline: DataFrame, settle: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """States before, where only an accepted message sets the state, or one across missing bytes."""
    before = in_scope().rowsBetween(*BEFORE)
    # Of equal numbers the first set the state: the one with the fewest missing runs before it.
    highest = F.max(F.struct("sequence", "number", (-F.col("missing")).alias("fewest"))).over(before)
    record = F.col("state_number").isNull() | _above("sequence", "number")
    hole = (
        record
        & (F.col("previous") != 0)
        & _above("sequence", "previous")
        & (F.col("missing") == F.col("state_missing"))
    )
    cut = record & ((F.col("previous") == 0) | (F.col("missing") > F.col("missing_before")))
    marked = (
        timeline.select("*", highest.alias("highest"), F.lag("missing").over(in_scope()).alias("missing_before"))
        .select(
            "*",
            F.col("highest.sequence").alias("state_sequence"),
            F.col("highest.number").alias("state_number"),
            (-F.col("highest.fewest")).alias("state_missing"),
        )
        .withColumn("hole", F.coalesce(hole, F.lit(False)))
        .select(
            "*",
            F.max(F.when(cut, F.col("replay_order"))).over(before).alias("run"),
            F.max(F.when(F.col("hole"), F.col("replay_order"))).over(before).alias("last_hole"),
        )
        .withColumn("open", F.coalesce(F.col("last_hole") > F.coalesce("run", F.lit(-1)), F.lit(False)))
        .drop("highest", "missing_before", "last_hole", "clock")
    )
    return _walked(settle(marked))


def _walked(marked: DataFrame) -> DataFrame:
    """Marked rows with the true states of those from a hole to the next cut, which are walked one by one."""
    in_doubt = F.col("hole") | F.col("open")
    timeline = [column for column in marked.columns if column not in {"hole", "open", "run"}]
    runs = (
        marked.where(in_doubt)
        .select(*timeline, (F.col("hole") & ~F.col("open")).alias("opens"), "run")
        .repartition("scope_no", "run")  # splits a large scope
        .sortWithinPartitions("scope_no", "replay_order")
    )
    walked = map_arrow(runs, fold, runs.schema)
    return marked.where(~in_doubt).select(timeline).unionByName(walked.select(timeline))


def with_verdict(states: DataFrame) -> DataFrame:
    """Messages with `accepted`, `verdict`, `reason`, `gap_size` and `reject_count`, and the state before each.

    `sent` is the highest pair that the scope's unjudged messages, or the OrderAck that fixed its state, say
    the receiver had been sent: what is refused at or below it is a duplicate.
    """
    by_number = Window.partitionBy("scope_no").orderBy("sequence", "number", "replay_order")
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
    moved, own = F.coalesce("accepted", is_message), F.struct("sequence", "number")
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
            F.max(F.when(moved, F.col("replay_order"))).over(replayed().rowsBetween(*SO_FAR)).alias("last_moved"),
            F.max(sent).over(replayed().rowsBetween(*BEFORE)).alias("sent"),
        )
        # A window by number has a million partitions where one by scope has a thousand.
        .withColumn("last_seen", F.last(F.when(moved, own), ignorenulls=True).over(by_number.rowsBetween(*BEFORE)))
        .withColumn("seen", F.col("last_seen") == own)
        .where(is_message)
        .withColumn("verdict", verdict)
        .select(
            *LANE,
            "stream_offset",
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


def with_pair(judged: DataFrame, lanes: DataFrame) -> DataFrame:
    """Judged messages with the number of their receiver and original sender."""
    return judged.join(lanes.where("carries").select(*LANE, "pair_no").distinct(), LANE)


def of_pairs(acknowledgments: DataFrame, lanes: DataFrame) -> DataFrame:
    """The acknowledgments between a receiver and an original sender of judged messages, with their number."""
    names = ["receiver", "source_queue_manager"]
    return acknowledgments.join(lanes.where("carries").select(*names, "pair_no").distinct(), names)


def with_names(rows: DataFrame, lanes: DataFrame) -> DataFrame:
    """Rows of a lane with the stream, session, scope and original sender that it stands for."""
    names = ("stream_id", "session_id", "scope_key", "source_queue_manager")
    return rows.join(lanes.where("carries").select(*LANE, *names).distinct(), LANE)
