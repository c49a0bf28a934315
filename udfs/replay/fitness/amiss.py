"""Says what is amiss with a capture, before anything is concluded from it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from schemas.ingest import CaptureStatus
from udfs.replay.words import counted, one_or_many


def amiss(capture: Mapping[str, Any]) -> list[str]:
    """Returns what is amiss with a capture, a row of CAPTURES, in words for an operator; nothing where nothing is.

    That a capture begins in the middle of connections is not: every capture of a series does. Nor is that connections
    were only asked for, in vain.
    """
    return list(_faults(capture))


def _faults(capture: Mapping[str, Any]) -> Iterator[str]:
    names = ("segment_count", "cut_count", "damaged_count", "missing_bytes")
    segments, cut, damaged, missing = (capture[name] or 0 for name in names)
    status, reason = capture["status"], (capture["reason"] or "").replace("_", " ")
    if status != CaptureStatus.OK:
        yield f"not read: {reason}" if status == CaptureStatus.UNREADABLE else f"only partly read: {reason}"
    if cut:
        yield f"{cut:,} of {counted(segments, 'segment')} of MSMQ are cut short: capture whole frames (tcpdump -s 0)"
    if damaged:
        yield (
            f"{damaged:,} of {counted(segments, 'segment')} of MSMQ {one_or_many(damaged, 'is', 'are')} damaged (wrong "
            "TCP checksum): what they carry may not be what was sent, so a message may look like another one, or like "
            "one of another machine"
        )
    if capture["one_way_count"] and capture["to_port_count"] in {0, segments}:
        way = "from" if capture["to_port_count"] == 0 else "to"
        yield f"it has only what was sent {way} the MSMQ port, not the other direction"
    if missing:
        yield f"{counted(missing, 'byte')} of its connections {'is' if missing == 1 else 'are'} in no capture"
    if capture["packet_count"] and capture["first_captured_at"] is None:
        yield "its records have no time, so nothing tells how long a sender waited or whether it still sends"
    if steps := [step for step in capture["clock_steps"] or () if step["step_ns"] < 0]:
        yield f"its clock steps back {counted(len(steps), 'time')}"


def cut_short(captures: Iterable[Mapping[str, Any]]) -> str:
    """Returns a sentence about frames that are cut short, for captures in which no message is whole; or none."""
    captures = list(captures)
    cut = [one for one in captures if one["cut_count"]]
    if not cut or any(one.get("message_count") for one in captures):
        return ""
    pieces, segments = (sum(one[name] for one in cut) for name in ("cut_count", "segment_count"))
    where = cut[0]["uri"] if len(cut) == 1 else f"{len(cut):,} captures"
    return (
        f"No message could be judged: {pieces:,} of {counted(segments, 'segment')} of MSMQ in {where} are cut short, "
        "and no message is whole. Capture again with whole frames (tcpdump -s 0)."
    )
