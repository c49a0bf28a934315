"""The verdict on each message, from the state before its chain, and the rows of VERDICTS."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import BEFORE, SO_FAR, columns_of, timestamp, tx_sequence, unsigned
from jobs.transforms.replay import chains
from jobs.transforms.replay.acceptance import in_replay_order, is_above_state
from jobs.transforms.replay.evidence import CONTENT
from jobs.transforms.replay.timeline import STREAM, with_stream_number
from schemas.replay import VERDICTS, Reason, Verdict
from udfs.msmq.acceptance import STATE

_MS = 1_000_000  # ns


_BLOCK_BITS = 16  # of offsets: a hash join on blocks of a stream finds the few chains that an offset may belong to


def _known() -> Column:
    return F.col("state_number").isNotNull()


def _same() -> Column:
    return _known() & (F.col("sequence") == F.col("state_sequence"))


def _across() -> Column:
    """Returns whether bytes are unread between what set the state and the message."""
    return _known() & (F.col("missing") > F.col("state_missing"))


def _skipped() -> Column:
    """Returns how many numbers lie between the state and a chain's first message."""
    below = F.when(_same(), F.col("state_number")).otherwise(0)
    return F.greatest(F.col("first_number") - below - 1, F.lit(0).cast("long"))


def _above() -> Column:
    return ~_known() | is_above_state("first_number")


def _accepted() -> Column:
    """Returns whether a chain's first message is accepted; null where the captures cannot show it."""
    previous = F.col("previous")
    follows = F.when(_same(), previous <= F.col("state_number")).otherwise(previous == 0)
    unknown = F.when(_known(), _above() & _across() & (~follows | (_skipped() > 0))).otherwise(previous != 0)
    return F.when(~unknown, _above() & follows)


def cut_where_verdicts_differ(states: DataFrame) -> DataFrame:
    """Cuts the chains until all messages of each are in order: accepted, at the state that the one before it left.

    The others are left alone: those that a chain repeats, or all of it where it is refused, and a first message that
    is not simply the next one.
    """
    next_one = _same() & (F.col("state_number") == F.col("first_number") - 1) & ~_across()
    in_order = next_one & (F.col("previous") > 0) & (F.col("previous") <= F.col("state_number"))
    moves = F.coalesce(_accepted(), F.lit(True))
    within = _same() & F.col("state_number").between(F.col("first_number"), F.col("number") - 1)
    repeated_to = F.col("state_number") + _across().cast("int")  # the first new one, too, if it is across unread bytes
    last_alone = F.when(moves, F.col("first_number")).when(within, repeated_to).otherwise(F.col("number"))
    alone = F.array_union(F.sequence("first_number", last_alone), chains.whole())
    parts = chains.cut(
        states.withColumn("moves", moves).withColumn("within", within),
        F.when((F.size("offsets") > 1) & ~in_order, alone).otherwise(chains.whole()),
    )
    reached = F.col("moves") | (F.col("within") & (F.col("previous") > F.col("state_number")))
    follows = (F.col("nth") > 0) & reached
    own = dict(zip(STATE, ("sequence", "previous", "missing"), strict=True))
    return parts.select(
        *(name for name in parts.columns if name not in {*STATE, "replay_order", "moves", "within", "nth"}),
        *(F.when(follows, F.col(own[name])).otherwise(F.col(name)).alias(name) for name in STATE),
        (F.col("replay_order") + F.col("nth")).alias("replay_order"),
    )


def with_verdict(states: DataFrame) -> DataFrame:
    """Returns chains with `accepted`, `verdict`, `reason`, `gap_size`, `reject_count` and the state before each.

    They hold for each message of a chain, as `cut_where_verdicts_differ` leaves them, but the state has the next number
    before each. `sent` is the highest pair (sequence, number) that the receiver had surely been sent: what the initial
    state names, or the previous number of a message that cannot be judged. A refused message at or below it is a
    duplicate.
    """
    is_message, own = F.col("previous").isNotNull(), F.struct("sequence", "number")
    order, accepted = F.col("replay_order"), F.col("accepted")
    last_order = order + F.col("number") - F.col("first_number")
    sent = F.when(~is_message, own).when(accepted.isNull(), F.struct("sequence", F.col("previous").alias("number")))
    moved = F.coalesce(accepted, is_message)
    is_assumed = (accepted.isNull() & is_message) | F.col("assumed_until").isNotNull()
    before = in_replay_order().rowsBetween(*BEFORE)
    by_number = Window.partitionBy("scope_no").orderBy("sequence", "first_number", "replay_order")
    # What moved the state has rising numbers, so only the last such chain that begins at or below a number has it.
    # Spark's window by number would have a million partitions where one by scope has a thousand.
    nearest, taken = F.col("nearest"), F.struct("sequence", "number", "replay_order")
    accepted_before = (
        (nearest["sequence"] == F.col("sequence"))
        & (nearest["number"] >= F.col("number"))
        & (nearest["replay_order"] < order)
    )
    in_doubt = F.coalesce(F.col("last_unknown") > F.coalesce("last_from_zero", F.lit(-1)), F.lit(False))
    verdict = (
        F.when(accepted.isNull(), Verdict.UNKNOWN.value)
        .when(~accepted & (F.coalesce(accepted_before, F.lit(False)) | (own <= F.col("sent"))), Verdict.DUPLICATE.value)
        .when(~accepted, Verdict.OUT_OF_ORDER.value)
        .when(_skipped() > 0, Verdict.GAP_EXPIRED.value)
        .when(_same(), Verdict.IN_ORDER.value)
        .otherwise(Verdict.NEW_SEQUENCE.value)
    )
    reason = (
        F.when((F.col("verdict") == Verdict.UNKNOWN.value) & _known(), Reason.CAPTURE_GAP.value)
        .when(F.col("verdict") == Verdict.UNKNOWN.value, Reason.NO_PRIOR_STATE.value)
        .when(F.col("verdict") != Verdict.OUT_OF_ORDER.value, None)
        .when(_above(), Reason.PREDECESSOR_MISSING.value)
        .when(_same(), Reason.LATE.value)
        .otherwise(Reason.STALE_SEQUENCE.value)
    )
    return (
        states.withColumn("accepted", F.when(is_message, _accepted()))
        .select(
            "*",
            F.max(F.when(moved, last_order)).over(in_replay_order().rowsBetween(*SO_FAR)).alias("last_moved"),
            F.max(sent).over(before).alias("sent"),
            F.max(F.when(is_assumed, order)).over(before).alias("last_unknown"),
            F.max(F.when(accepted & (F.col("previous") == 0), order)).over(before).alias("last_from_zero"),
            F.max("assumed_until").over(before).alias("initially_until"),
            F.max(F.when(~is_message, F.col("missing"))).over(before).alias("missing_initially"),
        )
        .withColumn("nearest", F.last(F.when(moved, taken), ignorenulls=True).over(by_number.rowsBetween(*BEFORE)))
        .where(is_message)
        .withColumn("verdict", verdict)
        .select(
            *STREAM,
            *("pair_no", "sequence", "first_number", "number", "previous", "offsets", "times", "replay_order"),
            unsigned(F.col("state_sequence")).alias("incoming_tx_sequence_id"),
            F.col("state_number").alias("incoming_tx_sequence_number"),
            "accepted",
            "verdict",
            reason.alias("reason"),
            F.when(F.col("verdict") == Verdict.GAP_EXPIRED.value, _skipped()).otherwise(0).alias("gap_size"),
            F.greatest(order - F.coalesce("last_moved", F.lit(0)), F.lit(0).cast("long")).alias("reject_count"),
            (F.col("missing") - F.coalesce("missing_initially", F.lit(0))).alias("missing_runs"),
            _across().alias("behind_gap"),
            in_doubt.alias("in_doubt"),
            "initially_until",
        )
    )


def with_end_of_doubt(judged: DataFrame) -> DataFrame:
    """Adds `doubt_ended_ns` to judged chains with evidence, where the state before them rests on an `unknown` arrival.

    It is the time when an OrderAck covered that arrival (`covered_ns`), or the assumed state that the previous
    warehouse left (`initially_until`); null for none.
    """
    unknown = F.when(F.col("accepted").isNull(), F.struct("covered_ns"))
    last = F.last(unknown, ignorenulls=True).over(in_replay_order().rowsBetween(*BEFORE))
    ended = F.when(last.isNull(), F.col("initially_until")).otherwise(last["covered_ns"])
    return judged.withColumn("doubt_ended_ns", ended).drop("initially_until")


def blocks_of(judged: DataFrame) -> DataFrame:
    """Returns a row per judged chain and block of its stream with one of its messages: `block`, and all but its lists.

    `first_offset` and `last_offset` are those of its first and last message.
    """
    blocks = F.array_distinct(F.transform("offsets", lambda offset: F.shiftright(offset, _BLOCK_BITS)))
    return (
        judged.withColumn("first_offset", F.element_at("offsets", 1))
        .withColumn("last_offset", F.element_at("offsets", -1))
        .withColumn("tx_sequence", tx_sequence(unsigned(F.col("sequence"))))
        .withColumn("block", F.explode(blocks))
        .drop("offsets", "times", "pair_no", "sequence", "previous", "conformant_number")
    )


def verdict_rows(judged: DataFrame, messages: DataFrame, streams: DataFrame) -> DataFrame:
    """Returns rows of VERDICTS: MESSAGES, each with what `blocks_of` says of its chain."""
    block = F.shiftright("stream_offset", _BLOCK_BITS)
    arrived = with_stream_number(messages, streams).withColumn("content_hash", F.xxhash64(*CONTENT))
    place, nth = [*STREAM, "block"], F.col("tx_sequence_number") - F.col("first_number")
    same_id = F.col("final.acknowledged_message_id") == F.col("message_id")
    in_time = F.coalesce(F.col("doubt_ended_ns") < F.col("captured_ns"), F.lit(False))
    is_last = F.col("tx_sequence_number") == F.col("number")
    found = {
        "replay_order": F.col("replay_order") + nth,
        "incoming_tx_sequence_number": F.col("incoming_tx_sequence_number") + nth,
        "acknowledged_at": timestamp(F.col("acknowledged_ns")),
        "ack_latency_ms": (F.col("acknowledged_ns") - F.col("captured_ns")) / _MS,
        "covered_at": timestamp(F.col("covered_ns")),
        "explained_by": F.when(is_last, F.col("explained_by")),
        "final_ack_class": F.when(same_id, F.col("final.message_class")),
        "final_ack_latency_ms": F.when(same_id, F.col("final.captured_ns") - F.col("captured_ns")) / _MS,
        "assumed": F.col("in_doubt") & ~in_time,
    }
    return (
        arrived.withColumn("block", block)
        .join(judged, place)
        .where(F.col("stream_offset").between(F.col("first_offset"), F.col("last_offset")))
        .withColumns(found)
        .select(columns_of(VERDICTS))
    )


def with_disputes(verdicts: DataFrame, disputed: DataFrame) -> DataFrame:
    """Returns VERDICTS in which the `disputed` messages that cannot be judged say that clocks are why."""
    key = ["stream_id", "stream_offset"]
    in_doubt = disputed.select(*key, F.lit(True).alias("in_doubt"))
    is_gap = F.col("reason") == Reason.CAPTURE_GAP.value
    reason = F.when(is_gap & F.col("in_doubt"), Reason.CLOCKS_DIFFER.value).otherwise(F.col("reason"))
    return verdicts.join(F.broadcast(in_doubt), key, "left").withColumn("reason", reason).select(*verdicts.columns)
