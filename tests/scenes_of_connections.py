"""Scenes whose findings rest on connections: where the way to a receiver was closed, and who is at an address."""

from typing import Any

from replay_tables import T0
from scene import INFO, WARNING, S, Scene, connection, event, guid, message, messages, scene, script, session_ack

from jobs.simulator import build

SECOND = 1_000_000


@event
def watched(s: Scene, seconds: float, **columns: Any) -> None:
    """A connection that was seen for so long."""
    s.connection(connection_last_at=T0 // 1000 + int(seconds * SECOND), **columns)


script("no_session_ack_any_more", window_stalled=WARNING)(
    watched(102), messages(1), session_ack(0.5), messages(2, at=10)
)
script("the_connection_ends_before_a_session_ack_is_due")(
    watched(99), messages(1), session_ack(0.5), messages(2, at=10)
)
script("a_session_ack_comes_late", window_stalled=INFO)(watched(300), messages(1), session_ack(91))
script("a_session_ack_comes_in_time")(watched(300), messages(1), session_ack(89))
script("a_receiver_that_sends_no_session_acks")(watched(300), messages(1))
script("the_session_ack_may_be_in_missing_bytes")(
    watched(300, back_missing_bytes=1), messages(1), session_ack(0.5), messages(2, at=10)
)
script("a_window_of_one_packet", window_stalled=WARNING)(
    watched(40), messages(1), *(session_ack(at, window_size=1) for at in (0.5, 10, 31))
)
script("a_window_of_one_packet_until_it_grows", window_stalled=INFO)(
    watched(40), messages(1), *(session_ack(at, window_size=size) for at, size in ((0.5, 1), (31, 2), (32, 64)))
)
script("a_window_of_one_packet_for_a_moment")(
    watched(90),
    messages(1),
    *(session_ack(at, window_size=size) for at, size in ((0.5, 1), (30, 2), (60, 64), (61, 1), (62, 64))),
)
script("no_tcp_window_to_the_end", window_stalled=WARNING)(
    watched(30, window_shut_at=T0 // 1000 + 20 * SECOND, window_shut_ms=10_000), messages(1)
)
script("no_tcp_window_for_ten_seconds", window_stalled=INFO)(
    watched(60, window_shut_at=T0 // 1000 + 20 * SECOND, window_shut_ms=10_000), messages(1)
)
script("no_tcp_window_for_a_moment")(
    watched(30, window_shut_at=T0 // 1000 + 20 * SECOND, window_shut_ms=9_999), messages(1)
)


@event
def another_receiver(s: Scene) -> None:
    """A message to a receiver, and a connection to another one at the same address."""
    s.guids = True
    s.connection()
    s.messages(1)
    s.guids = False
    s.connection(1)
    s.handshake(f"{s.name}.1", s.sender, guid(f"{s.name}.c"))


script("one_sequence_goes_to_two_receivers", several_receivers=WARNING)(
    another_receiver(), message(1, 2, 1, on=1), message(2, 3, 2, on=1)
)
script("a_sequence_that_is_not_its_connections_first_goes_to_two_receivers", several_receivers=WARNING)(
    another_receiver(), message(0.5, 1, 0, S + 5), message(1, 2, 1, S + 5, on=1)
)
script("each_sequence_goes_to_one_receiver", several_receivers=INFO)(another_receiver(), message(1, 1, 0, S + 5, on=1))


script("two_connections_to_one_receiver", guids=True)(connection(), connection(1), messages(1), message(1, 2, 1, on=1))


@event
def acknowledged_at(s: Scene, address: str) -> None:
    """A message, and its OrderAck on a connection that the receiver opened to an address."""
    s.guids = True
    s.connection()
    s.messages(1)
    s.tables.stream(f"{s.name}.1>", f"ip.{s.name}.b", address)
    s.tables.stream(f"{s.name}.1<", address, f"ip.{s.name}.b")
    s.handshake(f"{s.name}.1", guid(f"{s.name}.b"), s.sender)
    packet = build.order_ack(guid(f"{s.name}.b"), sender=s.sender, message_id=1, sequence_id=S, number=1)
    s.packet("acks", (f"{s.name}.1>", 0), 0.6, packet)


script("the_answers_go_to_another_address", acknowledged_elsewhere=INFO, two_addresses=INFO)(
    acknowledged_at("ip.behind")
)


@scene(acknowledged_elsewhere=INFO, two_addresses=INFO)
def the_answers_go_to_none_of_many_addresses(s: Scene) -> None:
    """A sentence names twenty of them."""
    acknowledged_at("ip.behind")(s)
    for number in range(2, 23):
        s.connection(number, src_ip=f"ip.{number}")
        s.message(number, number, number - 1, on=number)


@scene()
def a_router_passes_the_answers_on(s: Scene) -> None:
    acknowledged_at(f"ip.{s.name}.a")(s)
    s.tables.stream(f"{s.name}.2>", "ip.router", "ip.beyond")
    s.tables.stream(f"{s.name}.2<", "ip.beyond", "ip.router")
    s.handshake(f"{s.name}.2", guid("the router"), guid("beyond it"))
    packet = build.order_ack(guid(f"{s.name}.b"), sender=s.sender, message_id=1, sequence_id=S, number=1)
    s.packet("acks", (f"{s.name}.2>", 0), 0.7, packet)


@scene()
def the_answers_go_back_on_another_connection(s: Scene) -> None:
    acknowledged_at(f"ip.{s.name}.a")(s)
