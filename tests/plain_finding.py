"""A finding as the second computation tells it, without its sentence, and how it names rows."""

from typing import Any, NamedTuple

from schemas.replay import FindingKind

Row = dict[str, Any]
Rows = dict[str, list[Row]]
"""Tables by name. Timestamps are µs since 1970, whatever ends in `_ns` is ns."""
NULL = "00000000-0000-0000-0000-000000000000"
SECOND = 1_000_000_000


class Finding(NamedTuple):
    """A row of `findings`; the second computation of incidents says which one it is part of."""

    kind: FindingKind
    severity: str
    found_at: int | None
    session_id: str | None
    messages: int
    witness: tuple[str, ...]
    scope_key: str | None = None
    destination_queue: str | None = None
    tx_sequence_id: int | None = None


def keys(*rows: Row | str | None) -> tuple[str, ...]:
    """Returns how a witness names rows; those that are not there are left out."""
    return tuple(row if isinstance(row, str) else key(row) for row in rows if row is not None)


def key(row: Row) -> str:
    """Returns how a witness names a row."""
    return f"{row['stream_id']}@{row['stream_offset']}"
