"""Says numbers, sequences, states and times in the words of findings and incidents."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache

from schemas.wire import MessageClass

NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLASSES = {int(one): one.name.removeprefix("MQMSG_CLASS_") for one in MessageClass}


def one_or_many(count: int, one: str, many: str) -> str:
    """Returns the form of a word that goes with a number."""
    return one if count == 1 else many


def counted(count: int, one: str, many: str | None = None) -> str:
    """Returns a number and what it counts: "1 message was", "14 messages were"; the plural has an s by default."""
    return f"{count} {one_or_many(count, one, f'{one}s' if many is None else many)}"


def all_counted(counts: Iterable[tuple[int, str, str]]) -> list[str]:
    """Returns what `counted` says of each number that is not 0."""
    return [counted(count, one, many) for count, one, many in counts if count]


def number_range(low: int, high: int) -> str:
    """Returns "number 4" or "numbers 4 to 6"."""
    return f"number {low}" if low == high else f"numbers {low} to {high}"


def known(value: object) -> object:
    """Returns the value, or "unknown" for None."""
    return "unknown" if value is None else value


@lru_cache(maxsize=1_000)
def tx_sequence(tx_sequence_id: int | Decimal) -> str:
    """Returns a TxSequenceID as its time stamp in UTC and its ordinal: "2026-03-02T07:59:41Z#3"."""
    second, ordinal = divmod(int(tx_sequence_id), 1 << 32)
    stamp = _EPOCH + timedelta(seconds=second)
    return f"{stamp:%Y-%m-%dT%H:%M:%S}Z#{ordinal}"


def sequence_name(tx_sequence_id: int | Decimal) -> str:
    """Returns how sentences call a sequence: "sequence #3 (numbered since 2026-03-02T07:59:41Z)".

    The time stamp is that of its sender's numbering, which may be years older than what happened to the sequence.
    """
    since, _, ordinal = tx_sequence(tx_sequence_id).partition("#")
    return f"sequence #{ordinal} (numbered since {since})"


def utc(time: datetime | None) -> str:
    """Returns "2026-03-02 07:59:41 UTC"."""
    return "unknown" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def whole(value: float) -> int:
    """Returns the nearest whole number; a half is rounded away from 0."""
    return int(_rounded(value, "1"))


def tenths(value: float) -> float:
    """Returns a number with one digit after the point; a half is rounded away from 0."""
    return float(_rounded(value, "0.1")) + 0.0  # which makes 0.0 of -0.0


def _rounded(value: float, step: str) -> Decimal:
    return Decimal(repr(value)).quantize(Decimal(step), ROUND_HALF_UP)


def class_name(message_class: int) -> str:
    """Returns the documents' name of a MessageClass without its prefix, such as NACK_ACCESS_DENIED."""
    return _CLASSES.get(message_class, f"class {message_class}")
