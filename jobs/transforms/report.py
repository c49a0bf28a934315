"""Chooses what the report shows. Every DataFrame to be collected is bounded by a limit.

Times are nanoseconds since 1970, so the driver's time zone has no influence.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial, reduce
from itertools import count

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import SO_FAR, each, has_outcome, nanoseconds, null, optional, signed, with_nanoseconds
from jobs.transforms.replay.acknowledgments import pair_acks, select_order_acks
from jobs.transforms.replay.coverage import select_unreadable
from jobs.transforms.report_lists import LISTS, SEVERITIES, first_of, of_period
from schemas.ingest import NOT_JUDGED
from schemas.outcomes import OUTCOMES, Outcome, count_column
from schemas.replay import FINDINGS, FindingKind, Verdict
from schemas.table import sql_type

KEY = ["stream_id", "stream_offset"]
PICTURE = ["session_id", "scope_key"]
FATES = ("", "pending", "lost")
"""What became of a message, as far as a picture shows it."""
_MESSAGE = list(OUTCOMES.key)
_HIDDEN = (FindingKind.RESEND_SCHEDULE.value,)
"""Kinds that the report leaves out: registry settings choose the intervals."""


def last_run(captures: DataFrame) -> DataFrame:
    """Returns one row, `since`: the earliest record of the captures that the last run read; none without captures."""
    return (
        captures.groupBy("ingested_at")
        .agg(F.min("first_captured_at").alias("since"))
        .orderBy(F.desc("ingested_at"))
        .limit(1)
    )


def shown_findings(findings: DataFrame) -> DataFrame:
    """Returns the findings of the kinds that the report shows."""
    return findings.where(~F.col("kind").isin(*_HIDDEN))


def findings_of_period(findings: DataFrame, sequences: DataFrame, since: datetime | None) -> DataFrame:
    """Returns the findings of sequences that have a message from `since` on, however early they began."""
    if since is None:
        return findings
    heard = sequences.select("scope_key", "tx_sequence_id", F.col("last_captured_at").alias("heard"))
    joined = findings.join(heard, ["scope_key", "tx_sequence_id"], "left").withColumn(
        "heard", F.coalesce("heard", "found_at")
    )
    return of_period(joined, since, "heard").drop("heard")


def extent(sessions: DataFrame, since: datetime | None) -> DataFrame:
    """Returns one row: `sessions` of the period, `first_ns` and `last_ns` of their messages, `cut`: some are older."""
    began, ended = F.col("first_captured_at"), F.col("last_captured_at")
    before = F.lit(since is not None) & F.coalesce(began < F.lit(since), F.lit(False))
    within = F.lit(since is None) | F.coalesce(ended >= F.lit(since), F.lit(True))
    first = began if since is None else F.greatest(began, F.lit(since))
    return (
        sessions.select(within.alias("within"), before.alias("before"), first.alias("first"), ended.alias("last"))
        .agg(
            F.count_if("within").alias("sessions"),
            F.min(F.when(F.col("within"), F.col("first"))).alias("first"),
            F.max(F.when(F.col("within"), F.col("last"))).alias("last"),
            F.coalesce(F.max("before"), F.lit(False)).alias("cut"),
        )
        .select("sessions", nanoseconds("first").alias("first_ns"), nanoseconds("last").alias("last_ns"), "cut")
    )


def busy_hours(captures: DataFrame) -> DataFrame:
    """Returns `first_ns` and `last_ns` of the captures that begin in each hour."""
    return (
        captures.where(F.col("first_captured_at").isNotNull())
        .groupBy(F.date_trunc("hour", "first_captured_at"))
        .agg(F.min("first_captured_at").alias("first"), F.max("last_captured_at").alias("last"))
        .select(nanoseconds("first").alias("first_ns"), nanoseconds("last").alias("last_ns"))
    )


def with_fate(verdicts: DataFrame, outcomes: DataFrame) -> DataFrame:
    """Adds `fate`: one of the FATES of the message, "" where it is neither lost nor pending."""
    fate = F.when(F.col("lost"), F.lit(FATES[2])).when(F.col("outcome") == Outcome.PENDING.value, F.lit(FATES[1]))
    known = outcomes.select(*_MESSAGE, fate.alias("fate")).where("fate is not null and message_id is not null")
    return verdicts.join(known, _MESSAGE, "left").withColumn("fate", F.coalesce("fate", F.lit(FATES[0])))


def arrivals_over_time(verdicts: DataFrame, first_ns: int, step_ns: int) -> DataFrame:
    """Returns how many `arrivals` there are per verdict, reason, `fate` and `step` of `step_ns` from `first_ns` on."""
    step = F.expr(f"(captured_ns - {first_ns}) div {step_ns}").alias("step")
    return verdicts.groupBy(step, "verdict", "reason", "fate").agg(F.count(F.lit(1)).alias("arrivals"))


def findings_by_kind(findings: DataFrame) -> DataFrame:
    """Returns `findings`, those of them `alone` (in no incident), `sessions` and `messages` per severity and kind."""
    return findings.groupBy("severity", "kind").agg(
        F.count(F.lit(1)).alias("findings"),
        F.count_if(F.col("incident_id").isNull()).alias("alone"),
        F.count_distinct("session_id").alias("sessions"),
        F.sum("messages").alias("messages"),
    )


def worst_findings(findings: DataFrame, limit: int) -> DataFrame:
    """Returns of each severity and kind the `limit` findings without an incident that concern the most messages.

    `found_ns` replaces `found_at`, and `place` is 1, 2, … within severity and kind.
    """
    of_kind = Window.partitionBy("severity", "kind").orderBy(F.desc("messages"), "found_at", *FINDINGS.key)
    return with_nanoseconds(first_of(findings.where("incident_id is null"), of_kind, limit), found_ns="found_at")


def witness_rows(keys: DataFrame, tables: Sequence[DataFrame], captures: DataFrame) -> DataFrame:
    """Returns the rows with these distinct keys (KEY), each from the first table that has it, with its capture's `uri`.

    Columns that a table lacks are null.
    """
    wanted = F.broadcast(keys)
    columns = (
        *(*KEY, "captured_ns", "capture_id", "first_frame", "last_frame", "message_id", "destination_queue", "label"),
        *("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number"),
        *("incoming_tx_sequence_id", "incoming_tx_sequence_number", "verdict", "reason", "ack_latency_ms"),
        *("ack_type", "acknowledged_message_id", "message_class", "packet_type", "length"),
    )

    def found(rows: DataFrame, place: int) -> DataFrame:
        held = [name for name in columns if name in rows.columns]
        return rows.join(wanted, KEY).select(*held, F.lit(place).alias("place"))

    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), map(found, tables, count()))
    nowhere = [null("string").alias(name) for name in columns if name not in rows.columns]
    best = Window.partitionBy(*KEY).orderBy("place")
    return (
        rows.select("*", *nowhere, F.row_number().over(best).alias("best"))
        .where("best = 1")
        .drop("best", "place")
        .join(captures.select("capture_id", "uri"), "capture_id", "left")
    )


def uris(captures: DataFrame, wanted: Sequence[str]) -> DataFrame:
    """Returns `capture_id` and `uri` of these captures."""
    return captures.where(F.col("capture_id").isin(*wanted)).select("capture_id", "uri")


def ranked_sessions(
    sessions: DataFrame, verdicts: DataFrame, findings: DataFrame, outcomes: DataFrame, limit: int
) -> DataFrame:
    """Returns the `limit` worst sessions of a period, with its arrivals by verdict and its findings by severity.

    Each of the LISTS is a column with the number of its messages; `stuck` counts those that are.
    """
    judged = verdicts.groupBy("session_id").agg(
        *(F.count_if(F.col("verdict") == verdict.value).alias(verdict.value) for verdict in Verdict)
    )
    found = findings.groupBy("session_id").agg(
        *(F.count_if(F.col("severity") == severity).alias(severity) for severity in SEVERITIES)
    )
    became = outcomes.groupBy("session_id").agg(
        *(
            F.sum(F.when(has_outcome(shown), F.col("numbers")).otherwise(0)).alias(f"messages_{name}")
            for name, shown in LISTS.items()
        ),
        F.count_if("stuck").alias("messages_stuck"),
    )
    counts = [verdict.value for verdict in Verdict]
    figures = [*(f"messages_{name}" for name in LISTS), "messages_stuck"]
    worst = (
        *("messages_lost", "messages_stuck", "messages_unknown", *SEVERITIES[:-1]),
        *("messages_pending", "missing_bytes", "messages_delivered_after_refusal", "messages"),
    )
    chosen = (
        sessions.drop(*counts, *map(count_column, Outcome))
        .join(judged, "session_id", "left")
        .join(found, "session_id", "left")
        .join(became, "session_id", "left")
        .fillna(0, [*counts, *SEVERITIES, *figures])
        .orderBy(*(F.desc(name) for name in worst), "session_id")
        .limit(limit)
    )
    return with_nanoseconds(chosen, first_ns="first_captured_at", last_ns="last_captured_at")


def points(verdicts: DataFrame, scopes: int, limit: int) -> DataFrame:
    """Returns the messages of each session's worst `scopes` scopes, about `limit` of each at most, in replay order.

    Each verdict of a scope gets an equal share of the limit and is thinned evenly to it, so a few refused messages
    among many accepted ones all stay. `messages` counts those of the scope, `scopes` those of the session.
    """
    of_session, of_picture = Window.partitionBy("session_id"), Window.partitionBy(*PICTURE)
    alike = [*PICTURE, "verdict"]
    refused = ~F.coalesce("accepted", F.lit(False)) & (F.col("verdict") != Verdict.DUPLICATE.value)
    chosen = (
        verdicts.groupBy(*alike)
        .agg(F.count(F.lit(1)).alias("of"), F.count_if(refused).alias("refused"))
        .withColumn("bad", F.sum("refused").over(of_picture))
        .withColumn("messages", F.sum("of").over(of_picture))
        .withColumn("share", F.ceil(F.lit(limit) / F.count(F.lit(1)).over(of_picture)))
        .withColumn("place", F.dense_rank().over(of_session.orderBy(F.desc("bad"), F.desc("messages"), "scope_key")))
        .withColumn("scopes", F.max("place").over(of_session))
        .where(F.col("place") <= scopes)
    )
    worst = verdicts.join(F.broadcast(chosen), alike)
    return (
        _thinned(worst, Window.partitionBy(*alike), "replay_order")
        .select(
            *(*PICTURE, "place", "scopes", "messages", "source_queue_manager", "destination_queue", "captured_ns"),
            *("tx_sequence_id", "tx_sequence_number", "previous_tx_sequence_number", "verdict", "fate"),
            *("ack_latency_ms", "capture_id", "last_frame"),
        )
        .orderBy("session_id", "place", "replay_order")
    )


def _thinned(rows: DataFrame, within: WindowSpec, order: str) -> DataFrame:
    """Returns every k-th row and the last one, about `share` of the `of` rows of each partition: columns of theirs."""
    return (
        rows.withColumn("rank", F.row_number().over(within.orderBy(order)) - 1)
        .where((F.col("rank") % F.ceil(F.col("of") / F.col("share")) == 0) | (F.col("rank") == F.col("of") - 1))
        .drop("rank", "of", "share")
    )


def _thinned_to(limit: int, rows: DataFrame, within: WindowSpec, order: str) -> DataFrame:
    """Returns every k-th row and the last one, about `limit` rows of each partition."""
    counted = rows.withColumn("of", F.count(F.lit(1)).over(within)).withColumn("share", F.lit(limit))
    return _thinned(counted, within, order)


def stairs(acks: DataFrame, ends: DataFrame, sequences: DataFrame, pictures: DataFrame, limit: int) -> DataFrame:
    """Returns the OrderAcks for the scopes of these pictures, about `limit` of each at most: PICTURE, `ns`, `number`.

    `pictures` has PICTURE, `source_queue_manager` and `receiver`.
    """
    within = Window.partitionBy(*PICTURE)
    asked = pictures.join(sequences.select("scope_key", signed(F.col("tx_sequence_id")).alias("sequence")), "scope_key")
    answers = select_order_acks(pair_acks(acks, ends, pictures)).join(
        F.broadcast(asked), ["receiver", "source_queue_manager", "sequence"]
    )
    once = answers.select(*PICTURE, "ns", "number").distinct()
    return _thinned_to(limit, once, within, "ns").orderBy(*PICTURE, "ns", "number")


def holes(stream_gaps: DataFrame, verdicts: DataFrame, streams: DataFrame, ends: DataFrame, limit: int) -> DataFrame:
    """Returns the missing bytes of the sessions of these verdicts, about `limit` steps of each: `ns`, `missing_bytes`.

    `missing_bytes` is a running sum. A gap has the time of the next message on its stream, else of the stream's end.
    """
    behind = Window.partitionBy("stream_id").orderBy(F.desc("stream_offset")).rowsBetween(*SO_FAR)
    in_session = Window.partitionBy("session_id")
    so_far = in_session.orderBy("ns", *KEY).rowsBetween(*SO_FAR)
    carried = ends.join(verdicts.select("session_id").distinct(), "session_id", "left_semi")
    last = streams.select("stream_id", nanoseconds("last_captured_at").alias("end_ns"))
    missing = (
        stream_gaps.select(*KEY, "length")
        .join(carried.select("stream_id", "session_id"), "stream_id")
        .unionByName(verdicts.select(*KEY, "captured_ns"), allowMissingColumns=True)
        .withColumn("next_ns", F.last("captured_ns", ignorenulls=True).over(behind))
        .where(F.col("length").isNotNull())
        .join(last, "stream_id")
        .withColumn("ns", F.coalesce("next_ns", "end_ns"))
        .withColumn("missing_bytes", F.sum("length").over(so_far))
    )
    return (
        _thinned_to(limit, missing, in_session, "missing_bytes")
        .select("session_id", "ns", "missing_bytes")
        .orderBy("session_id", "missing_bytes")
    )


def coverage(streams: DataFrame, ends: DataFrame, quarantine: DataFrame, sessions: Sequence[str]) -> DataFrame:
    """Returns per session `recovered_bytes`, `unreadable_bytes` (in quarantine), and its `mid_stream` streams."""
    unreadable = select_unreadable(quarantine).groupBy("stream_id").agg(F.sum("length").alias("unreadable_bytes"))
    return (
        ends.where(F.col("session_id").isin(*sessions))
        .select("stream_id", "session_id", "mid_stream")
        .join(streams.select("stream_id", "recovered_bytes", "src_ip", "dst_ip"), "stream_id")
        .join(unreadable, "stream_id", "left")
        .groupBy("session_id")
        .agg(
            *each(F.sum, "recovered_bytes"),
            F.coalesce(F.sum("unreadable_bytes"), F.lit(0)).alias("unreadable_bytes"),
            *each(F.count_if, "mid_stream"),
            *each(F.min, "src_ip", "dst_ip"),
        )
    )


def caveats(
    captures: DataFrame, streams: DataFrame, quarantine: DataFrame, books: DataFrame, sessions: DataFrame
) -> DataFrame:
    """Returns what the captures cannot show: `what`, `reason`, how `many`, and `bytes` where they are counted."""
    many = F.count(F.lit(1)).alias("many")
    not_judged = F.explode(optional(captures, "not_judged", sql_type(NOT_JUDGED))).alias("aside")
    encrypted = F.sum(optional(sessions, "encrypted", "long")).alias("many")

    def named(what: str) -> Column:
        return F.lit(what).alias("what")

    counts = (
        F.struct(named(what), many.alias("many"), size.alias("bytes"))
        for what, many, size in (
            ("missing", F.count_if(F.col("missing_bytes") > 0), F.sum("missing_bytes")),
            ("mid_stream", F.count_if("mid_stream"), null("long")),
            ("conflict", F.count_if("conflict"), null("long")),
        )
    )
    parts = (
        captures.groupBy(F.concat_ws(" ", F.lit("capture"), "status").alias("what"), "reason").agg(
            many, F.sum("size_bytes").alias("bytes")
        ),
        quarantine.groupBy(F.col("stage").alias("what"), "reason").agg(many, F.sum("length").alias("bytes")),
        captures.select(not_judged)
        .groupBy(named("other traffic"), F.col("aside.what").alias("reason"))
        .agg(F.sum("aside.records").alias("many")),
        sessions.groupBy(named("message"), F.lit("encrypted_body").alias("reason")).agg(encrypted).where("many > 0"),
        streams.agg(F.array(*counts).alias("counts")).select(F.inline("counts")),
        books.agg(named("unbalanced"), F.count_if(~F.col("balanced")).alias("many")),
    )
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
