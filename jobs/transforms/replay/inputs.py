"""What a sender's messages are judged by, and a hash of it: with the same grounds, a sender has the same verdicts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.replay.acknowledgments import pair_acks
from jobs.transforms.replay.coverage import unread_ranges
from jobs.transforms.replay.evidence import REPEATED
from jobs.transforms.replay.scopes import FLOW_KEY, choose_scopes, find_flows, with_scope
from schemas.messages import MESSAGES
from schemas.replay import VERDICTS, Scope

SENDER = "source_queue_manager"
_HALF = 32  # bits of a hash: sums of halves fit a BIGINT
_READ = [name for name in MESSAGES.names if name in {*VERDICTS.names, *REPEATED, *FLOW_KEY}]


def unsettled(rows: DataFrame) -> DataFrame:
    """The rows, to be computed wherever they are read."""
    return rows


@dataclass(frozen=True, slots=True)
class ReplayInputs:
    """All that verdicts rest on, as rows that each belong to one original sender, or to a session."""

    messages: DataFrame
    """Transactional MESSAGES, with the columns that the replay reads."""
    ends: DataFrame
    """ENDS."""
    routes: DataFrame
    """`scopes.routes` with their scopes."""
    runs: DataFrame
    """`coverage.unread_runs`."""
    answers: DataFrame
    """`scopes.acknowledgments`."""

    @classmethod
    def of(
        cls,
        messages: DataFrame,
        ends: DataFrame,
        stream_gaps: DataFrame,
        quarantine: DataFrame,
        acks: DataFrame,
        *,
        scope: Scope = Scope.AUTO,
        settle: Callable[[DataFrame], DataFrame] = unsettled,
    ) -> Self:
        """The grounds that these tables give.

        `settle` is given what several of the later steps read, and returns the same rows; so the caller should have
        done with `ends`. A job cuts the plan there: as one plan, each of these is planned again wherever it is read,
        which costs minutes.
        """
        messages = messages.where("transactional").select(*_READ)
        ways = settle(find_flows(messages, ends))
        chosen = settle(choose_scopes(messages, ends, ways)) if scope is Scope.AUTO else None
        answers = settle(pair_acks(acks, ends, ways))
        return cls(messages, ends, with_scope(ways, scope, chosen), unread_ranges(stream_gaps, quarantine), answers)

    def without(self, senders: DataFrame) -> Self:
        """The grounds for the messages of all other senders."""
        return replace(self, routes=self.routes.join(senders, SENDER, "left_anti"))

    def by_sender(self, judged_by: str) -> DataFrame:
        """`source_queue_manager` and `grounds`, a hash of all that its messages are judged by, `judged_by` included.

        An end or an unread run of a session is ground for every sender whose messages the session carried.
        """
        sessions = self.routes.select("session_id", SENDER).distinct()
        ends = self.ends.join(sessions, "session_id")
        runs = self.runs.join(ends.select("stream_id", SENDER), "stream_id")
        parts = (self.messages, self.routes, ends, runs, self.answers)
        rows = reduce(DataFrame.unionByName, (part.select(SENDER, _hash(part).alias("hash")) for part in parts))
        return (
            rows.groupBy(SENDER)
            .agg(
                F.count(F.lit(1)).alias("rows"),
                F.sum(F.shiftright("hash", _HALF)).alias("high"),
                F.sum(F.col("hash").bitwiseAND((1 << _HALF) - 1)).alias("low"),
            )
            .join(self.routes.select(SENDER).distinct(), SENDER, "left_semi")
            .select(SENDER, F.xxhash64(F.lit(judged_by), "rows", "high", "low").alias("grounds"))
        )


def _hash(rows: DataFrame) -> Column:
    """A hash of each row; nulls are told by themselves, for xxhash64 passes over them."""
    return F.xxhash64(*rows.columns, *(F.isnull(column) for column in rows.columns))
