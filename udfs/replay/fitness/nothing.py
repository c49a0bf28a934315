"""Says why captures hold no message to judge, and what to do next: each situation has its own sentence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.ingest import MSMQ_ON_PORT, TCP_PORT, CaptureReason, CaptureStatus
from udfs.replay.fitness.amiss import cut_short
from udfs.replay.words import one_or_many

Captures = Sequence[Mapping[str, Any]]
"""Rows of CAPTURES."""
_NAMED_PORTS = 5
_NO_FILE = (
    "No capture was found: no file is there. Look whether the capturing machine still writes captures, and whether "
    "this is the folder."
)
_NO_TCP = (
    "No other TCP was seen. Look whether this is the interface, or the mirror port, on which sender and receiver "
    "speak, and which filter was set."
)
_OTHER_WAY = (
    "The messages took a way that was not captured, or left before the captures begin: capture on the sender or on the "
    "receiver, in both directions."
)
_NOT_IN_TRANSACTIONS = (
    "none of them transactional: for transactional messages alone MSMQ promises that they arrive, once and in order. "
    "Look whether the application sends in a transaction, and to a transactional queue."
)
_ONE_WAY = "only one direction of some connections, without a message. Capture both directions."
_NOT_ALL = (
    "not the bytes that were sent in them: whether any message was lost cannot be known. Capture whole frames (tcpdump "
    "-s 0), without loss and with no filter but on the port."
)
_NO_CONTENT: Mapping[str | None, str] = {
    CaptureReason.NOT_READABLE: (
        "cannot be opened. Look whether it is still there, its name is UTF-8, and this user may read it."
    ),
    CaptureReason.EMPTY_FILE: "is empty. Look whether the capture ran, and whether the disk was full.",
}
"""What is said of files with nothing in them that could be another format."""
_NO_PACKET = (
    "no message and no acknowledgment. The machines connected, or tried to, and sent nothing; or what they sent is "
    "encrypted, or began before the captures. Capture from before the connection is made, in both directions."
)


def why_nothing(captures: Captures, *, has_failed: bool = False) -> str:
    """Returns in which situation captures are of which no transactional message was judged, and the next step.

    `has_failed`: machines could not connect, which says more than that nothing was sent; then that is left out.
    """
    if not captures:
        return _NO_FILE
    readable = [one for one in captures if one["status"] != CaptureStatus.UNREADABLE]
    if not readable:
        return _unreadable(captures)
    return f"{_in_frames(readable, has_failed=has_failed)}{_besides(captures)}".strip()


def _in_frames(captures: Captures, *, has_failed: bool) -> str:
    segments, messages, answers, frames = (
        sum(one[name] or 0 for one in captures)
        for name in ("segment_count", "message_count", "acknowledgment_count", "packet_count")
    )
    if messages:
        return f"The captures hold {_many(messages, 'message')}, {_NOT_IN_TRANSACTIONS}"
    if sentence := cut_short(captures):
        return sentence
    if answers:
        return f"The captures hold {_many(answers, 'acknowledgment')}, but not the messages. {_OTHER_WAY}"
    if segments and any(one.get("missing_bytes") for one in captures):
        return f"The captures hold {_many(segments, 'segment')} of the TCP ports of MSMQ, but {_NOT_ALL}"
    if segments and has_failed:
        return ""
    if segments and any(one.get("one_way_count") for one in captures):
        return f"The captures hold {_many(segments, 'segment')} of the TCP ports of MSMQ, but {_ONE_WAY}"
    if segments:
        return f"The captures hold {_many(segments, 'segment')} of the TCP ports of MSMQ (--ports), but {_NO_PACKET}"
    if not frames:
        return "The captures hold no frame. Look whether the capture ran, on which interface, and which filter was set."
    return f"The captures hold {_many(frames, 'frame')}, none of the TCP ports of MSMQ (--ports). {_ports(captures)}"


def _ports(captures: Captures) -> str:
    """Returns on which other ports there was TCP, and where that may be MSMQ."""
    found: Counter[str] = Counter()
    for one in captures:
        found.update({part["what"]: part["records"] for part in one["not_judged"] or ()})
    others, alike = (_most(found, name) for name in (TCP_PORT, MSMQ_ON_PORT))
    if alike:
        return (
            f"What was seen on {_named(alike)} looks like MSMQ: read the captures again with --ports {','.join(alike)} "
            "(nightly: and with --again)."
        )
    if others:
        more = "" if len(others) < _NAMED_PORTS else ", and maybe others"
        return f"TCP was seen on {_named(others)}{more or ' only'}: is MSMQ on another port? --ports names it."
    return _NO_TCP


def _many(count: int, what: str) -> str:
    return f"{count:,} {one_or_many(count, what, f'{what}s')}"


def _most(found: Counter[str], name: str) -> list[str]:
    of_name = Counter({what.removeprefix(name): n for what, n in found.items() if what.startswith(name)})
    return sorted((port for port, _ in of_name.most_common(_NAMED_PORTS)), key=int)


def _named(ports: Sequence[str]) -> str:
    *first, last = ports
    return f"ports {', '.join(first)} and {last}" if first else f"port {last}"


def _unreadable(captures: Captures) -> str:
    """Returns what is said where no file is a capture that can be read."""
    reasons = {one["reason"] for one in captures}
    reason = (captures[0]["reason"] or "").replace("_", " ")
    first = f"{captures[0]['uri']} ({reason})"
    if len(reasons) == 1 and captures[0]["reason"] in _NO_CONTENT:
        many = one_or_many(len(captures), "", f", the first of {len(captures):,} such files,")
        return f"{captures[0]['uri']}{many} {_NO_CONTENT[captures[0]['reason']]}"
    if len(captures) == 1:
        return f"{first} is no capture that can be read: give pcap or pcapng. A trace (.etl) has to be converted first."
    return (
        f"None of {len(captures):,} files is a capture that can be read: the first is {first}. Give pcap or pcapng. "
        "Traces (.etl) have to be converted first."
    )


def _besides(captures: Captures) -> str:
    unreadable = sum(one["status"] == CaptureStatus.UNREADABLE for one in captures)
    if not unreadable:
        return ""
    were = one_or_many(unreadable, "file is", "files are")
    return f" Besides, {unreadable:,} {were} no capture that can be read."
