"""Counts what a run found, for its summary."""

from datetime import datetime
from typing import NamedTuple

import polars as pl

from schemas.ingest import MSMQ_ON_PORT, TCP_PORT, NotJudged
from schemas.outcomes import Outcome, count_column
from schemas.replay import Verdict
from udfs.frames.columns import count, count_if, nanoseconds
from udfs.replay.outcomes.counts import NOT_READ, SINCE, sum_if_any
from udfs.replay.words import one_or_many
from udfs.report.lacks import NOTHING_LACKS, Lacks, count_missing_files, find_lacks
from udfs.report.messages import QUEUE
from udfs.report.period import captured, has_no_times, is_broken, of_last_run
from udfs.report.rows import Row, Rows

_NAMED = {"senders": "source_queue_managers", "queues": "destination_queues"}
_LOST_BY = 3
"""Senders and queues that a summary names."""
_NAMED_CAPTURES = 20
"""Captures that a summary names for frames that were not read."""
_BESIDE = (NotJudged.HTTP.value, NotJudged.MULTICAST.value, NotJudged.RPC.value)
"""Traffic in which packets of the binary protocol cannot hide."""
_PORT = f"^({TCP_PORT}|{MSMQ_ON_PORT})"
_CALLED = {
    NotJudged.IPSEC.value: "IPsec",
    NotJudged.MACSEC.value: "MACsec",
    NotJudged.WIREGUARD.value: "WireGuard",
    NotJudged.OPENVPN.value: "OpenVPN",
    NotJudged.L2TP.value: "L2TP",
    NotJudged.TZSP.value: "TZSP",
    NotJudged.WIFI.value: "802.11",
}
"""Names of what is not read; of others, the words of `not_judged` do."""


def kinds_by_severity(findings: pl.DataFrame) -> Rows:
    """Returns the `count` of findings per `severity` and `kind`, the most frequent first."""
    rows = findings.group_by("severity", "kind").agg(count().alias("count"))
    return rows.sort("count", "kind", "severity", descending=[True, False, False]).to_dicts()


def sums_of_sessions(sessions: pl.DataFrame) -> Row:
    """Returns sums over SESSIONS: messages by outcome, `passing_through`, and `unjudged`.

    These are transactional messages without a verdict that were not passing through. `is_told` says that what became
    of messages is told: not under the literal reading. `accepted_not_read_messages` is null where it is in all of them,
    and `accepted_not_read_since_ns` the first time; `senders` and `queues` count what judged messages name.
    """
    judged = pl.sum_horizontal(verdict.value for verdict in Verdict)
    found = sessions.select(
        pl.col(*map(count_column, Outcome), "confirmed", "passing_through").sum(),
        (pl.col("transactional_messages") - pl.col("passing_through") - judged).sum().alias("unjudged"),
        pl.col(Outcome.DELIVERED.value).is_not_null().all().alias("is_told"),
        sum_if_any(NOT_READ).alias(NOT_READ),
        nanoseconds(pl.col(SINCE).min()).alias(f"{SINCE}_ns"),
        *(pl.col(names).list.explode().drop_nulls().n_unique().alias(name) for name, names in _NAMED.items()),
    )
    return found.row(0, named=True)


class Shown(NamedTuple):
    """Says what captures show: from when to when, in ns since 1970, how many senders and queues; and what they lack."""

    first_ns: int | None = None
    last_ns: int | None = None
    senders: int = 0
    queues: int = 0
    lacks: Lacks = NOTHING_LACKS


def shown_by(captures: pl.DataFrame, ends: pl.DataFrame, sums: Row, since: datetime | None = None) -> Shown:
    """Returns what captures show from `since` on; `sums` are those of `sums_of_sessions`, `ends` have no copies."""
    return Shown(*captured(captures, since), sums["senders"], sums["queues"], find_lacks(ends, captures))


def lost_by(queues: pl.DataFrame) -> Rows:
    """Returns the senders and queues with most `lost` messages, of `harm_by_queue`."""
    worst = queues.filter(pl.col("lost") > 0).sort("lost", *QUEUE, descending=[True, False, False]).head(_LOST_BY)
    return worst.select("lost", *QUEUE).to_dicts()


def newest_captures(captures: pl.DataFrame) -> Row:
    """Counts the `captures` of the last run that brought any, and what they hold and lack.

    `not_whole` are those that could not be read, or only in part, and `without_messages` those that hold no packet of
    MSMQ; `damaged_segments` are as `captures` counts them; `missing_bytes` are those of their connections,
    `missing_files` those between them (`count_missing_files`).
    """
    total = {
        "messages": "message_count",
        "missing_bytes": "missing_bytes",
        "cut_segments": "cut_count",
        "damaged_segments": "damaged_count",
    }
    newest = of_last_run(captures)
    return newest.select(
        count().alias("captures"),
        *(pl.col(column).sum().alias(name) for name, column in total.items()),
        count_if(is_broken()).alias("not_whole"),
        count_if(has_no_times()).alias("without_times"),
        count_if(pl.col("message_count").fill_null(0) == 0).alias("without_messages"),
    ).row(0, named=True) | {"missing_files": count_missing_files(newest)}


def unread_frames(captures: pl.DataFrame) -> list[str]:
    """Says of each capture how many frames were not read in which MSMQ's packets may hide, and what they are.

    `captures` are rows of CAPTURES; those with most such frames come first.
    """
    parts = captures.select("uri", "not_judged").explode("not_judged").drop_nulls("not_judged").unnest("not_judged")
    is_beside = pl.col("what").is_in(_BESIDE) | pl.col("what").str.contains(_PORT)
    hidden = parts.filter(~is_beside).sort("records", "what", descending=[True, False])
    each = hidden.group_by("uri", maintain_order=True).agg("what", "records")
    most = each.sort(pl.col("records").list.sum(), descending=True, maintain_order=True).head(_NAMED_CAPTURES)
    return [_unread(*row) for row in most.iter_rows()]


def _unread(uri: str, whats: list[str], records: list[int]) -> str:
    many = sum(records)
    named = ", ".join(
        f"{_CALLED.get(what, what.replace('_', ' '))} {n:,}" for what, n in zip(whats, records, strict=True)
    )
    return f"{uri}: {many:,} {one_or_many(many, 'frame was', 'frames were')} not read: {named}"
