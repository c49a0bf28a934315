"""The rule that says how many bytes a packet occupies on its stream, which PacketSize alone does not (A-1).

PacketSize does not count the SessionHeader after a UserMessage, but does count the one in a SessionAck
([MS-MQMQ] 2.2.19.1). The first two take ints or numpy arrays of `BaseHeader.Flags` and `PacketSize`.
"""

from typing import Any

from schemas import wire
from udfs.msmq.header_types import CLASSES

HAS_SESSION_HEADER = wire.BITS["has_session_header"][2].mask
_INTERNAL = wire.BITS["internal"][2].mask
_SESSION_ACK_WITHOUT_SESSION_HEADER = wire.BASE_HEADER.size + wire.INTERNAL_HEADER.size


def frame_size(flags: Any, packet_size: Any) -> Any:
    """Returns the bytes that the packet occupies if its sender follows the documents."""
    outside = ((flags & _INTERNAL) == 0) | (packet_size == _SESSION_ACK_WITHOUT_SESSION_HEADER)
    return packet_size + wire.SESSION_HEADER.size * (((flags & HAS_SESSION_HEADER) != 0) & outside)


def is_frame_size(size: Any, flags: Any, packet_size: Any) -> Any:
    """Returns whether a packet may occupy `size` bytes: its SessionHeader may be inside PacketSize or after it."""
    extra = size - packet_size
    return (extra == 0) | (((flags & HAS_SESSION_HEADER) != 0) & (extra == wire.SESSION_HEADER.size))


def announced_size(data: bytes) -> int:
    """Returns the bytes that the packet at the start of the data occupies by its header; all, if that is not valid."""
    if len(data) < wire.BASE_HEADER.size:
        return len(data)
    base = CLASSES[wire.BASE_HEADER.name](data[: wire.BASE_HEADER.size])
    if base.packet_size > wire.MAX_PACKET_SIZE or is_frame_size(len(data), base.base_flags, base.packet_size):
        return len(data)
    size: int = frame_size(base.base_flags, base.packet_size)
    return size
