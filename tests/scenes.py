"""Scenes of findings, each with the findings that it must give: it shows a thing, or nearly does; times in s."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from replay_tables import T0
from scene import DAYS, SECOND_US, S, Scene

from schemas.replay import FindingKind, Severity
from schemas.wire import MessageClass

Event = Callable[[Any], None]
"""Adds rows to a scene."""
SCENES: dict[str, tuple[tuple[Event, ...], bool, dict[FindingKind, Severity]]] = {}
"""By name: what happens, whether GUIDs are known, and the findings it must give, these and no others."""
NEARLY: dict[FindingKind, str] = {}
"""Of each kind a scene that nearly shows it."""
COVERED: dict[str, tuple[float | None, int]] = {}
"""Coverage of bytes, and connections in mid-stream, of some scenes."""


def event(add: Callable[..., None]) -> Callable[..., Event]:
    """Makes an event of what adds rows to a scene."""

    @wraps(add)
    def of(*arguments: Any, **options: Any) -> Event:
        return lambda played: add(played, *arguments, **options)

    return of


def script(
    name: str,
    coverage: tuple[float | None, int] | None = None,
    *,
    nearly: str = "",
    guids: bool = False,
    **kinds: Severity,
) -> Callable[..., None]:
    """Adds a scene, the findings that it must give, and those that it `nearly` gives; what it returns takes events."""
    NEARLY.update({FindingKind(kind): name for kind in nearly.split()})
    if coverage is not None:
        COVERED[name] = coverage

    def of(*events: Event) -> None:
        SCENES[name] = events, guids, {FindingKind(kind): severity for kind, severity in kinds.items()}

    return of


INFO, WARNING, ERROR = Severity
connection, message, messages = event(Scene.connection), event(Scene.message), event(Scene.messages)
ack, final_ack, session_ack = event(Scene.ack), event(Scene.final_ack), event(Scene.session_ack)
missing, returned = event(Scene.missing), event(Scene.returned)
another_receiver, another_identity = event(Scene.another_receiver), event(Scene.another_identity)
receivers_by_turns = event(Scene.receivers_by_turns)
two_networks, in_transactions = event(Scene.two_networks), event(Scene.in_transactions)


def us(seconds: float) -> int:
    return T0 // 1000 + int(seconds * SECOND_US)


def watched(seconds: float, **columns: Any) -> Event:
    """A connection that was seen for so long."""
    return connection(connection_last_at=us(seconds), **columns)


# --- verdicts: repeats, refusals, gaps, contradictions ----------------------------------------------------------------

script("all_is_well")(connection(lasting=60), messages(1, 2, 3), ack(0.6, 3))
script("resent_although_accepted", duplicates=INFO, resend_schedule=INFO, never_answered=ERROR)(
    connection(), messages(1), message(30, 1, 0)
)
script("resent_and_then_others", nearly="never_answered", duplicates=INFO, resend_schedule=INFO)(
    connection(lasting=80), messages(1), message(30, 1, 0), message(72, 2, 1)
)
script("same_number_in_the_next_sequence", nearly="duplicates")(
    connection(), message(0, 1, 0), message(30, 1, 0, S + 1)
)
script("resent_before_the_next_sequence_is_acknowledged", duplicates=INFO, resend_schedule=INFO)(
    connection(), messages(1), message(30, 1, 0), message(31, 1, 0, S + 1), ack(32, 1, tx_sequence_id=S + 1)
)
script("resent_too_soon", duplicates=INFO, resend_schedule=INFO, never_answered=ERROR)(
    connection(), *(message(at, 1, 0) for at in (0, 30, 42))
)
script("one_number_for_two_bodies", duplicates_differ=ERROR)(
    connection(), message(0, 1, 0), message(30, 1, 0, body_crc32=1)
)
script("one_number_for_two_messages", duplicates_differ=ERROR)(
    connection(), message(0, 1, 0, ordinal=7), message(30, 1, 0, ordinal=8)
)
script("one_message_sent_at_two_times", duplicates_differ=ERROR)(
    connection(), message(0, 1, 0), message(30, 1, 0, sent=30)
)
script("resent_after_the_acknowledgment", nearly="resend_schedule", duplicates=INFO)(
    connection(), messages(1), ack(0.6, 1), message(30, 1, 0)
)
script(
    "resent_with_a_bridged_previous_number",
    nearly="duplicates_differ",
    duplicates=INFO,
    resend_schedule=INFO,
    never_answered=ERROR,
)(connection(), messages(1, 2), message(30, 2, 0))
script("one_expired_and_was_bridged", nearly="out_of_order", gap_expired=INFO)(
    connection(), message(0, 1, 0), message(1, 3, 1)
)
script("one_expired_that_was_sent_before", out_of_order=ERROR, gap_expired=WARNING)(
    connection(), messages(1, 3), message(30, 5, 1)
)
script("many_expired_of_which_some_were_refused_before", out_of_order=ERROR, gap_expired=WARNING)(
    connection(),
    messages(1, 2, 3, 4, 5),
    messages(9, 10, 29, 31, at=1),  # 9 is more than twenty numbers below the last that expired
    message(2, 30, 5),
    message(3, 28, 27),
)
script("resent_and_refused_for_ever", out_of_order=WARNING, stuck_sequence=WARNING, resend_schedule=INFO)(
    connection(), messages(1, 3), message(30, 3, 2), message(60, 3, 2)
)
script("resent_and_accepted_at_last", nearly="stuck_sequence", out_of_order=INFO, resend_schedule=INFO)(
    connection(), messages(1, 3), message(30, 3, 2), message(31, 2, 1), message(60, 3, 2)
)
script("resent_and_passed_by_at_last", out_of_order=ERROR, resend_schedule=INFO)(
    connection(), messages(1, 3), message(30, 3, 2), message(40, 1, 0, S + 5)
)
script("some_accepted_later_and_some_not", out_of_order=WARNING)(
    connection(0), connection(1), messages(1, 3, 4, 2), message(7, 3, 2, on=1), message(8, 4, 3, on=1), message(9, 7, 6)
)
script("bytes_missing", nearly="missed_by_capture", capture_gap=WARNING)(
    connection(missing_bytes=100), messages(1), missing(), message(1, 5, 4), message(2, 6, 5)
)
script("bytes_missing_where_numbers_expired", nearly="gap_expired", capture_gap=WARNING)(
    connection(), messages(1), missing(stage="framing"), message(1, 5, 1)
)
script("refused_before_missing_bytes_that_may_hold_its_resend", out_of_order=WARNING, capture_gap=WARNING)(
    connection(missing_bytes=100), messages(1, 3), missing(), message(2, 5, 4)
)
script("bytes_missing_that_the_receiver_had", missed_by_capture=INFO)(
    connection(missing_bytes=100), messages(1), missing(), message(1, 5, 4), ack(1.6, 5)
)
script("bytes_missing_without_a_message", nearly="capture_gap")(
    connection(missing_bytes=100), messages(1), missing(), message(1, 2, 1)
)
script("refused_by_the_rule_yet_acknowledged", contradicted=WARNING)(connection(), messages(1, 3), ack(1, 3))
script("refused_and_not_acknowledged", nearly="contradicted", out_of_order=WARNING)(
    connection(), messages(1, 3), ack(1, 1)
)
script("accepted_by_the_rule_yet_not_acknowledged", contradicted=WARNING)(
    connection(lasting=60), messages(1, 2), *(ack(at, 1) for at in (5, 11, 11.7))
)

# --- how much of a session was captured -------------------------------------------------------------------------------

script("nothing_is_missing", coverage=(1.0, 0))(connection(lasting=100, answers=False), messages(1))
script("a_gap_between_two_messages", coverage=(0.9, 0))(
    connection(lasting=100, answers=False, recovered_bytes=900, missing_bytes=100),
    message(10, 1, 0),
    missing(length=40),
    missing(length=60),
    message(40, 2, 1),
)
script("unreadable_bytes_at_the_end", coverage=(0.9, 0))(
    connection(lasting=100, answers=False), message(80, 1, 0), missing(length=100, stage="decode")
)
script("what_is_no_part_of_a_stream_does_not_count", coverage=(1.0, 0))(
    connection(lasting=100, answers=False), message(80, 1, 0), missing(length=100, stage="tcp")
)
script("a_connection_caught_in_mid_stream", coverage=(1.0, 1))(
    connection(lasting=100, answers=False, mid_stream=True), messages(1)
)
script("the_whole_of_one_connection_and_a_part_of_another", coverage=(0.95, 0))(
    connection(0, lasting=100, answers=False),
    connection(1, lasting=100, answers=False, recovered_bytes=900, missing_bytes=100),
    message(80, 1, 0),
    missing(on=1),
    message(30, 2, 1, on=1, sequence=None),
)
script("a_capture_without_times_or_bytes", coverage=(None, 0))(
    connection(answers=False, recovered_bytes=0, first_captured_at=None, last_captured_at=None), messages(1)
)

# --- acknowledgments, senders and transactions ------------------------------------------------------------------------

script("purged_from_its_queue", not_received_by_application=INFO)(
    connection(lasting=60), messages(1), final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
)
script("returned_because_the_queue_is_full", not_received_by_application=ERROR)(
    returned(MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA)
)
script("returned_twice", not_received_by_application=ERROR)(
    returned(MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA, times=2)
)
script("a_transaction_that_nobody_read_in_time", not_received_by_application=WARNING)(
    returned(
        MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT,
        at=31.5,
        number=1,
        sequence=S,
        time_to_reach_queue=DAYS,
        time_to_be_received=30,
    )
)
script("received_by_its_application", nearly="not_received_by_application")(
    returned(MessageClass.MQMSG_CLASS_ACK_RECEIVE)
)
script("refused_for_cause", refused_for_cause=ERROR)(
    connection(), messages(1), final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED)
)
script("refused_for_a_cause_that_the_documents_do_not_name", refused_for_cause=ERROR)(
    connection(), messages(1), final_ack(1, 1, 0x8FFF)
)
script("another_message_was_refused_for_cause", nearly="refused_for_cause")(
    connection(), messages(1), final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED, named=9)
)
script("new_messages_under_an_old_sequence", out_of_order=ERROR, sequence_regressed=ERROR)(
    connection(), message(0, 1, 0, S + 5), message(1, 7, 6, S)
)
script("new_messages_under_old_numbers", out_of_order=ERROR, sequence_regressed=ERROR, gap_expired=WARNING)(
    connection(),
    message(0, 3, 0, ordinal=10),
    message(5, 2, 1, ordinal=11, sent=5),
)
script("overtaken_by_later_messages", out_of_order=ERROR, gap_expired=WARNING)(
    connection(),
    message(0, 3, 0, ordinal=11),
    message(5, 2, 1, ordinal=10),
)
script("old_messages_under_an_old_sequence", nearly="sequence_regressed", duplicates=INFO, resend_schedule=INFO)(
    connection(), message(0, 1, 0, S), message(1, 1, 0, S + 5), message(30, 1, 0, S)
)
script("a_restore_by_the_book", duplicates=INFO)(
    connection(lasting=312),
    messages(1, 2, 3),
    ack(0.6, 3),
    message(300, 2, 0),
    message(300.1, 3, 2),
    ack(300.6, 3),
    message(310, 1, 0, S + (1 << 32), ordinal=4),
)
script("never_acknowledged", unacknowledged=WARNING, never_answered=ERROR)(
    connection(lasting=20), messages(1, 2), ack(0.6, 1)
)
script("the_capture_ends_before_an_answer_is_due", nearly="unacknowledged")(
    connection(lasting=10), messages(1, 2), ack(0.6, 1)
)
script("the_answers_take_another_path")(connection(lasting=20), messages(1, 2))
script("the_answer_may_be_in_missing_bytes")(connection(lasting=20), messages(1, 2), ack(0.6, 1), missing(way="<"))
script("acknowledged_late", slow_acknowledgment=INFO)(connection(lasting=20), messages(1), ack(10.6, 1))
script("acknowledged_just_in_time", nearly="slow_acknowledgment")(connection(lasting=20), messages(1), ack(10.4, 1))
script("the_same_answer_again_and_again", out_of_order=WARNING, repeated_order_ack=WARNING)(
    connection(), messages(1), message(5, 3, 2), *(ack(at, 1) for at in (1, 31, 62))
)
script("refused_after_the_last_answer", out_of_order=WARNING, repeated_order_ack=INFO)(
    connection(), messages(1), *(ack(at, 1) for at in (31, 1, 61)), message(63, 3, 2)
)
script("answers_that_do_not_reach_the_sender", repeated_order_ack=INFO, duplicates=INFO)(
    connection(),
    *(event for at in (0, 30, 60) for event in (message(at, 1, 0), ack(at + 0.6, 1))),
    ack(61, 1),
)
script("the_same_answer_before_it_goes_on", nearly="repeated_order_ack")(
    connection(), messages(1), *(ack(at, 1) for at in (1, 31, 62)), message(63, 2, 1), ack(64, 2)
)
script("the_same_answer_before_a_new_sequence")(
    connection(), messages(1), *(ack(at, 1) for at in (1, 31, 62)), message(63, 1, 0, S + 1)
)
script("the_same_answer_twice")(connection(), messages(1), *(ack(at, 1) for at in (1, 62)))
script("a_late_message_between_answers", out_of_order=ERROR, gap_expired=WARNING, repeated_order_ack=INFO)(
    connection(), messages(1), message(0.1, 5, 1), *(ack(at, 5) for at in (1, 31, 62)), message(40, 3, 2)
)
script("the_same_answer_three_times_in_a_minute")(
    connection(),
    messages(1),
    *(ack(at, 1) for at in (1, 31, 60)),
    final_ack(90, 1, MessageClass.MQMSG_CLASS_ACK_RECEIVE),  # no OrderAck
)
script("too_late_for_the_queue", expired_on_arrival=WARNING, out_of_order=WARNING)(
    connection(),
    message(0, 1, 0),
    message(62, 3, 2, sent=1, time_to_reach_queue=60),
)
script("too_late_to_be_received", expired_on_arrival=WARNING)(
    connection(),
    message(0, 1, 0, sequence=None),
    message(62, 2, 0, sent=1, time_to_reach_queue=DAYS, time_to_be_received=60, sequence=None),
)
script("late_but_accepted")(
    connection(),
    message(0, 1, 0),
    message(62, 2, 1, sent=1, time_to_reach_queue=60),
)
script("by_a_clock_that_is_slow")(
    connection(),
    message(0, 1, 0, sent=-100, time_to_reach_queue=60, sequence=None),
    message(1, 2, 0, sent=-99, time_to_reach_queue=60, sequence=None),
)
script("just_in_time", nearly="expired_on_arrival")(
    connection(),
    message(0, 1, 0, sequence=None),
    message(61, 2, 0, sent=1, time_to_reach_queue=60, sequence=None),
    message(DAYS, 3, 0, sent=2, sequence=None),
)
script("two_identities_at_one_address", nearly="two_addresses", guids=True)(
    connection(lasting=10), messages(1), another_identity()
)
script("one_number_from_two_addresses", two_addresses=ERROR, duplicates_differ=ERROR)(
    two_networks(), message(1, 1, 0, on=1, ordinal=7)
)
script("two_sequences_from_two_addresses", two_addresses=ERROR, out_of_order=ERROR, sequence_regressed=ERROR)(
    two_networks(), message(1, 1, 0, S + 5, on=1), message(2, 2, 1)
)
script(
    "one_sequence_replaces_another_address_for_good", two_addresses=ERROR, out_of_order=ERROR, sequence_regressed=ERROR
)(two_networks(), message(1, 1, 0, S + 5, on=1), message(2, 2, 1, S + 5, on=1), message(3, 2, 1), message(4, 3, 2))
script("old_numbers_from_one_of_two_addresses", two_addresses=INFO, out_of_order=ERROR, sequence_regressed=ERROR)(
    two_networks(), message(0.5, 2, 1, on=1), message(1, 1, 0, S + 5), message(2, 3, 2)
)
script("resent_from_another_address", two_addresses=INFO, duplicates=INFO)(two_networks(), message(9, 1, 0, on=1))
script("one_host_on_two_networks", two_addresses=INFO)(two_networks(), message(1, 2, 1, on=1))
script("no_last_message", torn_transaction=INFO)(in_transactions((1, 7, True, False), (2, 8, True, True)))
script("the_first_message_of_a_transaction_comes_late", out_of_order=INFO, resend_schedule=INFO)(
    in_transactions((1, 7, True, True)),
    connection(1),
    *(
        message(at, number, number - 1, on=at % 2, part=(8, first, not first))
        for at, number, first in ((2, 3, False), (3, 2, True), (4, 3, False))
    ),
    message(5, 4, 3, part=(9, True, True)),
)
script(
    "one_message_of_a_transaction_is_lost", out_of_order=ERROR, gap_expired=WARNING, transaction_partly_delivered=ERROR
)(
    in_transactions((1, 7, True, False)),
    message(2, 3, 2, part=(7, False, False)),
    message(3, 4, 1, part=(7, False, True)),
)
script("one_message_of_a_transaction_is_pending", out_of_order=WARNING, transaction_partly_delivered=WARNING)(
    in_transactions((1, 7, True, False)), message(2, 3, 2, part=(7, False, True))
)
script("a_whole_transaction_is_pending", nearly="transaction_partly_delivered", out_of_order=WARNING)(
    in_transactions((1, 7, True, True)),
    message(2, 3, 2, part=(8, True, False)),
    message(3, 4, 3, part=(8, False, True)),
)
script("the_capture_ends_within_a_transaction", nearly="torn_transaction")(
    in_transactions((1, 7, True, True), (2, 8, True, False))
)
script("one_transaction_after_another_of_the_same_id")(
    in_transactions((1, 7, True, False), (2, 7, False, True), (3, 8, True, True), (4, 7, True, True))
)

# --- connections: where the way to a receiver was closed, and who is at an address ------------------------------------

script("no_session_ack_any_more", window_stalled=WARNING)(
    watched(102), messages(1), session_ack(0.5), messages(2, at=10)
)
script("the_connection_ends_before_a_session_ack_is_due", nearly="window_stalled")(
    watched(99), messages(1), session_ack(0.5), messages(2, at=10)
)
script("a_session_ack_comes_late", window_stalled=INFO)(watched(300), messages(1), session_ack(91))
script("a_session_ack_comes_late_for_the_announced_timeout", guids=True, window_stalled=INFO)(
    watched(300, ack_timeout_ms=60_000), messages(1), session_ack(46)
)
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
    watched(30, window_shut_at=us(20), window_shut_ms=10_000), messages(1)
)
script("no_tcp_window_for_ten_seconds", window_stalled=INFO)(
    watched(60, window_shut_at=us(20), window_shut_ms=10_000), messages(1)
)
script("no_tcp_window_for_a_moment")(watched(30, window_shut_at=us(20), window_shut_ms=9_999), messages(1))


def ended(on: int, after: float = 1, **columns: Any) -> Event:
    """A connection with a message that its receiver's TCP took, and that the receiver ended so long after it."""
    at = 30 * on
    said = {"acked_bytes": 1000, "ended_by_receiver": True, "ended_at": us(at + after)}
    return connection(on, lasting=at, first_captured_at=us(at), **said | columns)


SENT_ON_EACH = tuple(message(30 * on, 1, 0, on=on) for on in range(3))
script("the_receiver_ends_each_connection", duplicates=INFO, closed_by_receiver=ERROR)(
    *map(ended, range(3)), *SENT_ON_EACH
)
UNENDED: dict[str, Any] = {"ended_by_receiver": None, "ended_at": None}
script("another_connection_has_just_begun", duplicates=INFO, closed_by_receiver=ERROR)(
    *map(ended, range(3)), *SENT_ON_EACH, ended(3, **UNENDED)
)
script("the_last_connection_stays_open_although_its_receiver_goes_on", duplicates=INFO, never_answered=ERROR)(
    *map(ended, range(3)), *SENT_ON_EACH, ended(3, **UNENDED), message(90, 1, 0, on=3), connection(4, lasting=101)
)
script(
    "the_sender_ends_the_last_connection",
    nearly="closed_by_receiver",
    duplicates=INFO,
    never_answered=ERROR,
)(ended(0), ended(1), ended(2, ended_by_receiver=False), *SENT_ON_EACH)
for name, last in {
    "nobody_is_seen_to_end_the_last_connection": ended(2, **UNENDED),
    "the_receiver_ends_the_last_connection_late": ended(2, after=10.5),
    "nothing_of_the_last_connection_was_taken": ended(2, acked_bytes=None),
}.items():
    script(name, duplicates=INFO, never_answered=ERROR)(ended(0), ended(1), last, *SENT_ON_EACH)
script("a_session_ack_before_the_end", duplicates=INFO, never_answered=ERROR)(
    *map(ended, range(3)), *SENT_ON_EACH, session_ack(30.5)
)
script("one_sequence_goes_to_two_receivers", several_receivers=WARNING, receiver_replaced=WARNING)(
    another_receiver(), message(1, 2, 1, on=1), message(2, 3, 2, on=1)
)
script(
    "a_sequence_that_is_not_its_connections_first_goes_to_two_receivers",
    several_receivers=WARNING,
    receiver_replaced=WARNING,
)(another_receiver(), message(0.5, 1, 0, S + 5), message(1, 2, 1, S + 5, on=1))
script(
    "another_receiver_refuses_what_the_first_one_accepted",
    several_receivers=WARNING,
    receiver_replaced=WARNING,
    out_of_order=WARNING,
    sequence_regressed=WARNING,
)(another_receiver(), message(1, 1, 0, S + 5, ordinal=9, on=1), message(2, 1, 0, on=1))
script("one_sequence_goes_to_two_receivers_that_answer_by_turns", several_receivers=WARNING)(
    receivers_by_turns(), message(1, 2, 1, on=1), message(2, 3, 2, on=1), message(5, 1, 0, S + 5, on=2)
)
script("each_sequence_goes_to_one_receiver", several_receivers=INFO)(another_receiver(), message(1, 1, 0, S + 5, on=1))
script("two_connections_to_one_receiver", nearly="several_receivers receiver_replaced", guids=True)(
    connection(), connection(1), messages(1), message(1, 2, 1, on=1)
)
