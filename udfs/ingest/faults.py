"""Says in sentences why bytes that were captured are in no packet."""

from schemas.ingest import FramingReason, TcpReason
from udfs.msmq.framing import Unframed

_TCP_DETAILS = {
    TcpReason.OUTSIDE_WINDOW: "The {length} bytes of record {frame} carry sequence number {seq}, far from where their "
    "direction was, and nothing follows them there.",
    TcpReason.BEFORE_START: "The {length} bytes of record {frame} (sequence number {seq}) lie before the first byte of "
    "their stream.",
    TcpReason.AFTER_FIN: "The {length} bytes of record {frame} (sequence number {seq}) lie after the end that the FIN "
    "of their stream announced.",
}
_FRAMING_DETAILS = {
    FramingReason.BAD_SIGNATURE: "where a packet should begin there is no MSMQ signature",
    FramingReason.BAD_VERSION: "the header there has a version other than 0x10",
    FramingReason.BAD_PACKET_SIZE: "the header there announces less than 16 bytes or more than 4 MiB",
    FramingReason.INCOMPLETE_FRAME: "the packet that begins there, or before a gap, is not complete",
    FramingReason.AFTER_GAP: "bytes before it are missing, so that no packet's beginning is known",
    FramingReason.MID_STREAM: "the capture began inside the stream, so that no packet's beginning is known",
}


def tcp_detail(reason: TcpReason, frame: int, seq: int, length: int) -> str:
    """Returns why a segment is not part of its stream."""
    return _TCP_DETAILS[reason].format(frame=frame, seq=seq, length=length)


def framing_detail(run: Unframed) -> str:
    """Returns why bytes of a stream are in no packet."""
    return f"{run.length} bytes from stream offset {run.offset} on are in no packet: {_FRAMING_DETAILS[run.reason]}."
