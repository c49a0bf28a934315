"""Scenes whose findings rest on connections: where the way to a receiver was closed, and who is at an address."""

from typing import Any

from replay_tables import T0
from scene import INFO, WARNING, S, Scene, guid, scene

from jobs.simulator import build

SECOND = 1_000_000


def watched(s: Scene, seconds: float, **columns: Any) -> None:
    """A connection that was seen for so long."""
    s.connection(connection_last_at=T0 // 1000 + int(seconds * SECOND), **columns)


@scene(window_stalled=WARNING)
def no_session_ack_any_more(s: Scene) -> None:
    watched(s, 102)
    s.messages(1)
    s.session_ack(0.5)
    s.messages(2, at=10)


@scene()
def the_connection_ends_before_a_session_ack_is_due(s: Scene) -> None:
    watched(s, 99)
    s.messages(1)
    s.session_ack(0.5)
    s.messages(2, at=10)


@scene(window_stalled=INFO)
def a_session_ack_comes_late(s: Scene) -> None:
    watched(s, 300)
    s.messages(1)
    s.session_ack(91)


@scene()
def a_session_ack_comes_in_time(s: Scene) -> None:
    watched(s, 300)
    s.messages(1)
    s.session_ack(89)


@scene()
def a_receiver_that_sends_no_session_acks(s: Scene) -> None:
    watched(s, 300)
    s.messages(1)


@scene()
def the_session_ack_may_be_in_missing_bytes(s: Scene) -> None:
    watched(s, 300, back_missing_bytes=1)
    s.messages(1)
    s.session_ack(0.5)
    s.messages(2, at=10)


@scene(window_stalled=WARNING)
def a_window_of_one_packet(s: Scene) -> None:
    watched(s, 40)
    s.messages(1)
    for at in (0.5, 10, 31):
        s.session_ack(at, window_size=1)


@scene(window_stalled=INFO)
def a_window_of_one_packet_until_it_grows(s: Scene) -> None:
    watched(s, 40)
    s.messages(1)
    for at, size in ((0.5, 1), (31, 2), (32, 64)):
        s.session_ack(at, window_size=size)


@scene()
def a_window_of_one_packet_for_a_moment(s: Scene) -> None:
    watched(s, 90)
    s.messages(1)
    for at, size in ((0.5, 1), (30, 2), (60, 64), (61, 1), (62, 64)):
        s.session_ack(at, window_size=size)


@scene(window_stalled=WARNING)
def no_tcp_window_to_the_end(s: Scene) -> None:
    watched(s, 30, window_shut_at=T0 // 1000 + 20 * SECOND, window_shut_ms=10_000)
    s.messages(1)


@scene(window_stalled=INFO)
def no_tcp_window_for_ten_seconds(s: Scene) -> None:
    watched(s, 60, window_shut_at=T0 // 1000 + 20 * SECOND, window_shut_ms=10_000)
    s.messages(1)


@scene()
def no_tcp_window_for_a_moment(s: Scene) -> None:
    watched(s, 30, window_shut_at=T0 // 1000 + 20 * SECOND, window_shut_ms=9_999)
    s.messages(1)


def another_receiver(s: Scene) -> None:
    """A message to a receiver, and a connection to another one at the same address."""
    s.guids = True
    s.connection()
    s.messages(1)
    s.guids = False
    s.connection(1)
    s.handshake(f"{s.name}.1", s.sender, guid(f"{s.name}.c"))


@scene(several_receivers=WARNING)
def one_sequence_goes_to_two_receivers(s: Scene) -> None:
    another_receiver(s)
    s.message(1, 2, 1, on=1)


@scene(several_receivers=INFO)
def each_sequence_goes_to_one_receiver(s: Scene) -> None:
    another_receiver(s)
    s.message(1, 1, 0, S + 5, on=1)


@scene()
def two_connections_to_one_receiver(s: Scene) -> None:
    s.guids = True
    s.connection()
    s.connection(1)
    s.messages(1)
    s.message(1, 2, 1, on=1)


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


@scene(acknowledged_elsewhere=INFO, two_addresses=INFO)
def the_answers_go_to_another_address(s: Scene) -> None:
    acknowledged_at(s, "ip.behind")


@scene()
def a_router_passes_the_answers_on(s: Scene) -> None:
    acknowledged_at(s, f"ip.{s.name}.a")
    s.tables.stream(f"{s.name}.2>", "ip.router", "ip.beyond")
    s.tables.stream(f"{s.name}.2<", "ip.beyond", "ip.router")
    s.handshake(f"{s.name}.2", guid("the router"), guid("beyond it"))
    packet = build.order_ack(guid(f"{s.name}.b"), sender=s.sender, message_id=1, sequence_id=S, number=1)
    s.packet("acks", (f"{s.name}.2>", 0), 0.7, packet)


@scene()
def the_answers_go_back_on_another_connection(s: Scene) -> None:
    acknowledged_at(s, f"ip.{s.name}.a")
