"""The replay's inputs, and their fingerprint per sender: the same inputs give the same verdicts."""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.replay.evidence import CONTENT
from jobs.transforms.replay.scopes import FLOW_KEY
from schemas.messages import MESSAGES
from schemas.replay import VERDICTS

SENDER = "source_queue_manager"
_HALF = 32  # bits of a hash: sums of halves fit a BIGINT
_READ = [name for name in MESSAGES.names if name in {*VERDICTS.names, *CONTENT, *FLOW_KEY} - {"tx_sequence"}]


def select_transactional(messages: DataFrame) -> DataFrame:
    """Returns transactional MESSAGES, with the columns that the replay reads."""
    return messages.where("transactional").select(*_READ)


@dataclass(frozen=True, slots=True)
class ReplayInputs:
    """All rows that verdicts depend on. Each belongs to one original sender, or to a session."""

    messages: DataFrame
    """Rows of `select_transactional`."""
    peers: DataFrame
    """ENDS."""
    flows: DataFrame
    """Rows of `scopes.find_flows`, with their scopes."""
    unread: DataFrame
    """Rows of `coverage.unread_ranges`."""
    acks: DataFrame
    """Rows of `acknowledgments.pair_acks`."""
    legs: DataFrame | None = None
    """Rows of `scopes.find_flows` whose leg is unknown: their messages are not judged. None without any."""
    disputed: DataFrame | None = None
    """Rows of `clocks.disputed_messages`. None without any."""

    def fingerprint_senders(self, options: str, not_arrived: DataFrame, *, with_messages: bool) -> DataFrame:
        """Returns `source_queue_manager` and `fingerprint`, a hash of `options` and of all rows its verdicts depend on.

        The peers and unread ranges of a session count for every sender whose messages the session carried.
        `not_arrived` are the keys of packets that need not have arrived, `unarrived` in `jobs.transforms.outcomes`.
        Of messages, only their count on each flow is hashed, unless `with_messages`: then a sender with a new or
        changed message may have the same fingerprint, but none that has lost one.
        """
        senders = self.flows.select("session_id", "stream_id", SENDER).distinct()
        peers = self.peers.join(senders.select("session_id", SENDER).distinct(), "session_id")
        unread = self.unread.join(peers.select("stream_id", SENDER), "stream_id")
        cut_off = not_arrived.join(senders.select("stream_id", SENDER).distinct(), "stream_id")
        parts = [self.flows, peers, unread, self.acks, cut_off, *([self.messages] if with_messages else [])]
        parts += [rows for rows in (self.legs, self.disputed) if rows is not None]
        rows = reduce(DataFrame.unionByName, (part.select(SENDER, _hash(part).alias("hash")) for part in parts))
        return (
            rows.groupBy(SENDER)
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.sum(F.shiftright("hash", _HALF)).alias("high"),
                F.sum(F.col("hash").bitwiseAND((1 << _HALF) - 1)).alias("low"),
            )
            .join(self.flows.select(SENDER).distinct(), SENDER, "left_semi")
            .select(SENDER, F.xxhash64(F.lit(options), "rows", "high", "low").alias("fingerprint"))
        )


def _hash(rows: DataFrame) -> Column:
    """Returns a hash of each row, with a flag for each null, which xxhash64 leaves out."""
    return F.xxhash64(*rows.columns, *(F.isnull(column) for column in rows.columns))
