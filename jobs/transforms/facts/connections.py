"""Counts who could not connect to whom."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import key_at, null, optional
from schemas.ingest import Attempt, FramingReason
from udfs.replay.findings.captures import FAILURES

_PATIENCE_S = 21
"""Seconds after which a sender gives up a SYN. Attempts in the last ones of a capture may still have been answered."""
_CLOSED, _REFUSED_SESSION, _OTHER_VERSION, _NO_PONG, _REFUSED_BY_PONG = list(FAILURES)[3:]


def cannot_connect(
    streams: DataFrame, handshakes: DataFrame, quarantine: DataFrame, captures: DataFrame, pings: DataFrame | None
) -> DataFrame:
    """Returns rows of CannotConnect, as STREAMS, QUARANTINE and PINGS show.

    A connection worked if it carried bytes in both directions. Attempts in the last seconds of the
    captures are left out, because they may still have been answered. A session may be refused in the handshake or by
    closing the connection ([MS-MQQB] 3.1.5.3.1). Later versions of Windows neither send nor answer pings, so an
    unanswered one counts only where nothing connected afterwards.
    """
    tries = _connections(streams, handshakes, quarantine.where(began_with_another_version(quarantine)))
    if pings is not None:
        tries = tries.unionByName(_pings(pings))
    is_failure, pair = F.col("failure").isNotNull(), ("client", "server")
    worked = tries.where(~is_failure).groupBy(*pair).agg(F.max("last_at").alias("worked_at"))
    end = captures.agg(F.max("last_captured_at").alias("ended_at"))
    of_no_answer = F.col("failure").isin(Attempt.NO_ANSWER.value, Attempt.SILENT.value, _NO_PONG)
    too_late = of_no_answer & (F.col("last_at") > F.col("ended_at") - F.expr(f"INTERVAL {_PATIENCE_S} SECONDS"))
    since_it_worked = F.coalesce(F.col("last_at") > F.col("worked_at"), F.lit(True))
    return (
        tries.where(is_failure)
        .crossJoin(end)
        .where(~F.coalesce(too_late, F.lit(False)))
        .join(worked, list(pair), "left")
        .where((F.col("failure") != _NO_PONG) | since_it_worked)
        .groupBy(*pair, "worked_at", F.concat_ws("->", *pair).alias("session_id"))
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count_if(since_it_worked).alias("lately"),
            F.min("first_at").alias("found_at"),
            F.max("last_at").alias("last_at"),
            F.min(F.struct("first_at", "key"))["key"].alias("key"),
            F.struct(*(F.count_if(F.col("failure") == name).alias(name) for name in FAILURES)).alias("failures"),
        )
    )


def began_with_another_version(quarantine: DataFrame) -> Column:
    """Returns whether a row of QUARANTINE is the beginning of a stream, and of another version of the protocol."""
    reason = optional(quarantine, "reason", "string")
    return F.coalesce((reason == FramingReason.BAD_VERSION.value) & (F.col("stream_offset") == 0), F.lit(False))


def _connections(streams: DataFrame, handshakes: DataFrame, of_other_version: DataFrame) -> DataFrame:
    """Returns `client`, `server`, `first_at`, `last_at`, `key` and `failure` (null for none) of each connection.

    `of_other_version` are rows of QUARANTINE. A connection that was closed without an answer counts only where the
    captures show that its receiver acknowledged bytes.
    """
    answered = streams.where(~F.col("from_initiator")).select("connection_id", F.lit(True).alias("answered"))
    refused = (
        handshakes.where("connection_refused")
        .join(streams.select("stream_id", "connection_id"), "stream_id")
        .select("connection_id", F.lit(True).alias("refused"))
        .distinct()
    )
    other_version = (
        of_other_version.join(streams.where("not mid_stream").select("stream_id", "connection_id"), "stream_id")
        .select("connection_id", F.lit(True).alias("other_version"))
        .distinct()
    )
    closed = F.col("answered").isNull() & F.col("closed") & ~F.col("mid_stream") & F.col("acked_bytes").isNotNull()
    return (
        streams.where("from_initiator")
        .join(answered, "connection_id", "left")
        .join(refused, "connection_id", "left")
        .join(other_version, "connection_id", "left")
        .select(
            F.col("src_ip").alias("client"),
            F.col("dst_ip").alias("server"),
            F.col("first_captured_at").alias("first_at"),
            F.col("last_captured_at").alias("last_at"),
            key_at("stream_id", F.lit(0)).alias("key"),
            F.when(F.col("refused"), _REFUSED_SESSION)
            .when(F.col("other_version"), _OTHER_VERSION)
            .when(F.col("attempt").isNotNull(), F.col("attempt"))
            .when(closed, _CLOSED)
            .alias("failure"),
        )
    )


def _pings(pings: DataFrame) -> DataFrame:
    """Returns the same of the pings that were not answered, or with a refusal."""
    asked, answers = pings.where("not is_response"), pings.where("is_response")
    of_answer = answers.groupBy(
        F.col("dst_ip").alias("client"), F.col("src_ip").alias("server"), F.col("cookie").alias("answered_cookie")
    ).agg(F.min("refused").alias("refused"))
    requests = asked.groupBy(F.col("src_ip").alias("client"), F.col("dst_ip").alias("server"), "cookie").agg(
        F.min("captured_at").alias("first_at"), F.max("captured_at").alias("last_at")
    )
    same = [F.col(f"r.{name}") == F.col(f"a.{name}") for name in ("client", "server")]
    joined = requests.alias("r").join(
        of_answer.alias("a"), [*same, F.col("r.cookie").eqNullSafe(F.col("a.answered_cookie"))], "left"
    )
    failure = F.when(F.col("a.refused").isNull(), _NO_PONG).when(F.col("a.refused"), _REFUSED_BY_PONG)
    return joined.select(
        "r.client", "r.server", "first_at", "last_at", null("string").alias("key"), failure.alias("failure")
    ).where("failure is not null")
