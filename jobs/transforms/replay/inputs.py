"""The replay's inputs: all rows that verdicts depend on."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from jobs.transforms.replay.scopes import FLOW_KEY
from jobs.transforms.replay.verdicts import CONTENT
from schemas.messages import MESSAGES
from schemas.replay import VERDICTS

SENDER = "source_queue_manager"
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
