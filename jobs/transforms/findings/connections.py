"""The kind of findings that tells who could not connect to whom."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import key_at, null, optional
from jobs.transforms.findings.model import counted, sentence
from schemas.ingest import Attempt, FramingReason
from schemas.replay import FindingKind, Severity

_PATIENCE_S = 21
"""Seconds after which a sender gives up a SYN. Attempts in the last ones of a capture may still have been answered."""
_REFUSED_SESSION, _CLOSED, _NO_PONG, _REFUSED_BY_PONG = "refused_session", "closed", "no_pong", "refused_by_pong"
_OTHER_VERSION = "other_version"
_FAILURES = {
    Attempt.NO_ANSWER.value: ("connection had no answer", "connections had no answer"),
    Attempt.REFUSED.value: ("was refused by a reset", "were refused by a reset"),
    Attempt.SILENT.value: ("opened and carried nothing", "opened and carried nothing"),
    _CLOSED: ("was closed without an answer to the handshake", "were closed without an answer to the handshake"),
    _REFUSED_SESSION: ("was refused in the handshake", "were refused in the handshake"),
    _OTHER_VERSION: ("began with another version of the protocol", "began with another version of the protocol"),
    _NO_PONG: ("ping had no answer", "pings had no answer"),
    _REFUSED_BY_PONG: ("ping was answered with a refusal", "pings were answered with a refusal"),
}
"""How a sentence names each kind of failure: words for one connection, and for several."""


def cannot_connect(
    streams: DataFrame, handshakes: DataFrame, quarantine: DataFrame, captures: DataFrame, pings: DataFrame | None
) -> DataFrame:
    """Returns the findings on addresses that could not connect to others, as STREAMS, QUARANTINE and PINGS show.

    They are warnings where no later connection carried bytes in both directions. Attempts in the last seconds of the
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
    failed = (
        tries.where(is_failure)
        .crossJoin(end)
        .where(~F.coalesce(too_late, F.lit(False)))
        .join(worked, list(pair), "left")
        .where((F.col("failure") != _NO_PONG) | since_it_worked)
        .groupBy(*pair, "worked_at")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.count_if(since_it_worked).alias("lately"),
            F.min("first_at").alias("found_at"),
            F.max("last_at").alias("last_at"),
            F.min(F.struct("first_at", "key"))["key"].alias("key"),
            *(F.count_if(F.col("failure") == failure).alias(failure) for failure in _FAILURES),
        )
    )
    causes = F.concat_ws(
        ", ", *(F.when(F.col(name) > 0, counted(name, one, many)) for name, (one, many) in _FAILURES.items())
    )
    return failed.select(
        F.lit(FindingKind.CANNOT_CONNECT.value).alias("kind"),
        F.when(F.col("lately") > 0, Severity.WARNING.value).otherwise(Severity.INFO.value).alias("severity"),
        "found_at",
        F.concat_ws("->", "client", "server").alias("session_id"),
        "messages",
        sentence(
            "{} could not connect to {}: {}, from {} to {}. {} Look for a firewall between the two, and whether "
            "Message Queuing runs there and listens.",
            "client",
            "server",
            causes,
            _utc("found_at"),
            _utc("last_at"),
            F.when(F.col("worked_at").isNull(), F.lit("The captures show no connection that worked."))
            .when(F.col("lately") > 0, sentence("The last connection that worked ended at {}.", _utc("worked_at")))
            .otherwise(sentence("Connections work again: the last one ended at {}.", _utc("worked_at"))),
        ).alias("explanation"),
        F.array("key").alias("witness"),
    )


def began_with_another_version(quarantine: DataFrame) -> Column:
    """Returns whether a row of QUARANTINE is the beginning of a stream, and of another version of the protocol."""
    reason = optional(quarantine, "reason", "string")
    return F.coalesce((reason == FramingReason.BAD_VERSION.value) & (F.col("stream_offset") == 0), F.lit(False))


def _utc(name: str) -> Column:
    return F.concat(F.date_format(name, "yyyy-MM-dd HH:mm:ss"), F.lit(" UTC"))


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
