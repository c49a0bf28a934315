"""Finds the senders whose verdicts may change, by the streams of which something is new."""

from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

SENDER = "source_queue_manager"
_NULL_GUID = "00000000-0000-0000-0000-000000000000"


class Traffic(NamedTuple):
    """Holds who uses which stream and session: rows as they are now, and as the last replay found them."""

    ends: DataFrame
    """Rows of ENDS."""
    messages: DataFrame
    """`stream_id` and `source_queue_manager` of MESSAGES."""
    acks: DataFrame
    """`stream_id`, `source_guid` and `queue_manager_address` of ACKS."""
    judged: DataFrame
    """`session_id` and `source_queue_manager` of flows and of VERDICTS."""


def changed_senders(streams: DataFrame, traffic: Traffic) -> DataFrame:
    """Returns the distinct `source_queue_manager` whose verdicts depend on rows of these streams (`stream_id`).

    A stream matters to everybody whose messages its session carries, or the session the other way, and to those whom
    its acknowledgments name. Which scope `auto` takes depends on the sender's own messages alone.
    """
    there = traffic.ends.join(streams, "stream_id", "left_semi")
    other_way = F.concat_ws("->", "receiver", "sender")
    sessions = there.select(F.explode(F.array("session_id", other_way)).alias("session_id"))
    addressees = F.explode(F.array("source_guid", "queue_manager_address")).alias(SENDER)
    concerned = (
        traffic.judged.join(sessions, "session_id", "left_semi").select(SENDER),
        traffic.messages.join(streams, "stream_id", "left_semi").select(SENDER),
        traffic.acks.join(streams, "stream_id", "left_semi").select(addressees).where(F.col(SENDER).isNotNull()),
    )
    return reduce(DataFrame.unionByName, concerned).distinct()
