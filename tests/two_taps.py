"""Cuts simulated captures in two, as two taps would have made them: what one address sends and gets, and the rest."""

from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

import polars as pl
from test_offsets import later, records_of

from jobs.simulator import CAPTURE_PREFIX

_ADDRESSES = {b"\x08\x00": (26, 30), b"\x86\xdd": (22, 38)}
"""Where source and target stand in a frame, by EtherType."""
MESSAGE = ["scope_key", "tx_sequence_id", "tx_sequence_number", "message_id", "content_hash"]


def _is_of(record: bytes, addresses: set[bytes]) -> bool:
    frame = record[16:]
    places = _ADDRESSES.get(frame[12:14], ())
    size = 4 if frame[12:14] == b"\x08\x00" else 16
    return any(frame[at : at + size] in addresses for at in places)


def split(folder: Path, addresses: Iterable[str], seconds: int) -> None:
    """Puts the packets of some addresses into a capture of their own, by a clock that is ahead."""
    packed = {ip_address(one).packed for one in addresses}
    (capture,) = folder.glob(f"{CAPTURE_PREFIX}_*.pcap")
    whole = capture.read_bytes()
    capture.unlink()
    parts: dict[str, list[bytes]] = {"rest": [whole[:24]], "clone": [whole[:24]]}
    for record in records_of(whole):
        is_own = _is_of(record, packed)
        parts["clone" if is_own else "rest"].append(later(record, seconds) if is_own else record)
    for name, records in parts.items():
        capture.with_name(f"{CAPTURE_PREFIX}_{name}.pcap").write_bytes(b"".join(records))


def with_outcome(outcomes: pl.DataFrame, *, lost: bool) -> set[tuple[object, ...]]:
    """Returns the messages that were lost, or those of which it is unknown."""
    found = outcomes.filter(pl.col("lost").fill_null(value=False) if lost else pl.col("outcome") == "unknown")
    return set(found.select(MESSAGE).rows())
