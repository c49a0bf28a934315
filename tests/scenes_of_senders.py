"""Scenes whose findings rest on acknowledgments, senders and transactions."""

from typing import Any

from replay_tables import T0
from scene import (
    DAYS,
    ERROR,
    INFO,
    NS,
    WARNING,
    S,
    Scene,
    ack,
    connection,
    event,
    final_ack,
    guid,
    message,
    messages,
    missing,
    scene,
    script,
)

from jobs.simulator import build
from schemas.wire import UNLIMITED, MessageClass

script("purged_from_its_queue", not_received_by_application=WARNING)(
    connection(lasting=60), messages(1), final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)
)


@event
def returned(s: Scene, message_class: MessageClass, at: float = 1, **fields: Any) -> None:
    """A message, outside transactions unless it has a sequence, and an administration message of the class about it."""
    s.connection(lasting=60)
    s.message(0, **{"number": 9, "previous": 0, "sequence": None, **fields})
    about = s.sender.bytes_le + fields.get("number", 9).to_bytes(4, "little")
    packet = build.user_message(guid(f"{s.name}.b"), message_id=1, message_class=message_class, correlation_id=about)
    s.packet("messages", (f"{s.name}.0<", 0), at, packet)


script("returned_because_the_queue_is_full", not_received_by_application=ERROR)(
    returned(MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA)
)
script("returned_because_nobody_read_it_in_time", not_received_by_application=WARNING)(
    returned(MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT)
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
script("received_by_its_application")(returned(MessageClass.MQMSG_CLASS_ACK_RECEIVE))
script("refused_for_cause", refused_for_cause=ERROR)(
    connection(), messages(1), final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED)
)


script("refused_for_several_causes", refused_for_cause=ERROR)(
    connection(),
    messages(1, 2, 3),
    message(3, 4, 3, destination=build.direct("OS:b\\private$\\other")),
    *(final_ack(4 + number, number, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED) for number in (1, 3, 4)),
    final_ack(6, 2, MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q),
)
script("refused_for_a_cause_that_the_documents_do_not_name", refused_for_cause=ERROR)(
    connection(), messages(1), final_ack(1, 1, 0x8FFF)
)
script("read_from_its_queue")(
    connection(lasting=60), messages(1), final_ack(1, 1, MessageClass.MQMSG_CLASS_ACK_RECEIVE)
)
script("another_message_was_refused_for_cause")(
    connection(), messages(1), final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED, named=9)
)
script("new_messages_under_an_old_sequence", out_of_order=ERROR, sequence_regressed=ERROR)(
    connection(), message(0, 1, 0, S + 5), message(1, 7, 6, S)
)
script("new_messages_under_old_numbers", out_of_order=ERROR, sequence_regressed=ERROR, gap_expired=WARNING)(
    connection(),
    message(0, 3, 0, message_id=10, sent_time=T0 // NS),
    message(5, 2, 1, message_id=11, sent_time=T0 // NS + 5),
)
script("overtaken_by_later_messages", out_of_order=ERROR, gap_expired=WARNING)(
    connection(),
    message(0, 3, 0, message_id=11, sent_time=T0 // NS),
    message(5, 2, 1, message_id=10, sent_time=T0 // NS),
)
script("old_messages_under_an_old_sequence", duplicates=INFO, resend_schedule=INFO)(
    connection(), message(0, 1, 0, S), message(1, 1, 0, S + 5), message(30, 1, 0, S)
)


@event
def sent(s: Scene, *ordinals: tuple[int, int]) -> None:
    """Messages with these ordinals, sent at these seconds."""
    s.connection()
    for i, (ordinal, at) in enumerate(ordinals):
        s.message(i, i + 1, i, message_id=ordinal, sent_time=T0 // NS + at)


script("message_ids_fall", ordinal_regressed=WARNING)(sent((10, 0), (11, 1), (5, 2), (6, 3)))
script("message_ids_within_a_second")(sent((10, 0), (12, 1), (11, 1), (13, 2)))
script("message_ids_wrap")(sent((0xFFFFFFFE, 0), (0xFFFFFFFF, 1), (0, 2), (1, 3)))
script("committed_late")(sent((11, 5), (12, 6), (10, 4)))
script("never_acknowledged", unacknowledged=WARNING)(connection(lasting=20), messages(1, 2), ack(0.6, 1))
script("never_acknowledged_as_the_way_there_shows", unacknowledged=WARNING)(
    connection(lasting=20, back_last_captured_at=T0 // 1000 + 5_000_000), messages(1, 2), ack(0.6, 1)
)
script("never_acknowledged_as_the_way_back_shows", unacknowledged=WARNING)(
    connection(lasting=5, back_last_captured_at=T0 // 1000 + 20_000_000), messages(1, 2), ack(0.6, 1)
)
script("the_capture_ends_before_an_answer_is_due")(connection(lasting=10), messages(1, 2), ack(0.6, 1))
script("the_answers_take_another_path")(connection(lasting=20), messages(1, 2))


script("the_answer_may_be_in_missing_bytes")(connection(lasting=20), messages(1, 2), ack(0.6, 1), missing(way="<"))
script("the_answer_may_be_in_unreadable_bytes")(
    connection(lasting=20), messages(1, 2), ack(0.6, 1), missing("quarantine", stage="framing", way="<")
)
script("the_way_back_was_not_captured")(connection(lasting=20, answers=False), messages(1))
script("acknowledged_late", slow_acknowledgment=WARNING)(connection(lasting=20), messages(1), ack(10.6, 1))
script("acknowledged_just_in_time")(connection(lasting=20), messages(1), ack(10.4, 1))
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
script("the_same_answer_before_it_goes_on")(
    connection(), messages(1), *(ack(at, 1) for at in (1, 31, 62)), message(63, 2, 1), ack(64, 2)
)
script("the_same_answer_three_times_in_a_minute")(
    connection(),
    messages(1),
    *(ack(at, 1) for at in (1, 31, 60)),
    final_ack(90, 1, MessageClass.MQMSG_CLASS_ACK_RECEIVE),  # no OrderAck
)
script("too_late_for_the_queue", expired_on_arrival=WARNING, out_of_order=WARNING)(
    connection(),
    message(0, 1, 0, sent_time=T0 // NS),
    message(62, 3, 2, sent_time=T0 // NS + 1, time_to_reach_queue=60),
)
script("too_late_to_be_received", expired_on_arrival=WARNING)(
    connection(),
    message(0, 1, 0, sent_time=T0 // NS, sequence=None),
    message(62, 2, 0, sent_time=T0 // NS + 1, time_to_reach_queue=DAYS, time_to_be_received=60, sequence=None),
)
script("late_but_accepted")(
    connection(),
    message(0, 1, 0, sent_time=T0 // NS),
    message(62, 2, 1, sent_time=T0 // NS + 1, time_to_reach_queue=60),
)
script("by_a_clock_that_is_slow")(
    connection(),
    message(0, 1, 0, sent_time=T0 // NS - 100, time_to_reach_queue=60, sequence=None),
    message(1, 2, 0, sent_time=T0 // NS - 99, time_to_reach_queue=60, sequence=None),
)
script("just_in_time")(
    connection(),
    message(0, 1, 0, sent_time=T0 // NS, sequence=None),
    message(61, 2, 0, sent_time=T0 // NS + 1, time_to_reach_queue=60, sequence=None),
    message(DAYS, 3, 0, sent_time=T0 // NS + 2, time_to_reach_queue=UNLIMITED, sequence=None),
)


@event
def two_networks(s: Scene) -> None:
    """Connections from two addresses at once, and a message on the first."""
    s.guids = True
    s.connection(0, lasting=10)
    s.connection(1, lasting=10, src_ip="ip.other")
    s.messages(1)


script("one_number_from_two_addresses", two_addresses=ERROR, duplicates_differ=ERROR)(
    two_networks(), message(1, 1, 0, on=1, message_id=7)
)
script("two_sequences_from_two_addresses", two_addresses=ERROR, out_of_order=ERROR, sequence_regressed=ERROR)(
    two_networks(), message(1, 1, 0, S + 5, on=1), message(2, 2, 1)
)
script(
    "one_sequence_replaces_another_address_for_good", two_addresses=ERROR, out_of_order=ERROR, sequence_regressed=ERROR
)(two_networks(), message(1, 1, 0, S + 5, on=1), message(2, 2, 1, S + 5, on=1), message(3, 2, 1), message(4, 3, 2))
script("resent_from_another_address", two_addresses=INFO, duplicates=INFO)(two_networks(), message(9, 1, 0, on=1))
script("one_host_on_two_networks", two_addresses=INFO)(two_networks(), message(1, 2, 1, on=1))


@scene(two_addresses=INFO)
def moved_to_another_address(s: Scene) -> None:
    s.guids = True
    s.connection(0, lasting=10)
    later: dict[str, Any] = {"src_ip": "ip.later", "first_captured_at": T0 // 1000 + 20_000_000}
    s.connection(1, lasting=30, back_first_captured_at=later["first_captured_at"], **later)
    s.messages(1)
    s.ack(1, 1)


@scene()
def two_identities_at_one_address(s: Scene) -> None:
    s.guids = True
    s.connection(0, lasting=10)
    s.messages(1)
    s.tables.stream(f"{s.name}.9>", f"ip.{s.name}.a", f"ip.{s.name}.b")
    s.handshake(f"{s.name}.9", guid(f"{s.name}.c"), guid(f"{s.name}.b"))


@event
def in_transactions(s: Scene, *marks: tuple[int, int, bool, bool]) -> None:
    """Messages with these numbers, transaction IDs, FM and LM."""
    s.connection()
    for number, transaction, first, last in marks:
        s.message(number, number, number - 1, transaction_id=transaction, first=first, last=last)


script("no_last_message", torn_transaction=ERROR)(in_transactions((1, 7, True, False), (2, 8, True, True)))
script("no_first_message", torn_transaction=ERROR)(in_transactions((1, 7, True, True), (2, 8, False, True)))
script("the_first_message_of_a_transaction_comes_late", out_of_order=INFO, resend_schedule=INFO)(
    in_transactions((1, 7, True, True)),
    connection(1),
    *(
        message(at, number, number - 1, on=at % 2, transaction_id=8, first=first, last=not first)
        for at, number, first in ((2, 3, False), (3, 2, True), (4, 3, False))
    ),
    message(5, 4, 3, transaction_id=9),
)
script(
    "one_message_of_a_transaction_is_lost", out_of_order=ERROR, gap_expired=WARNING, transaction_partly_delivered=ERROR
)(
    in_transactions((1, 7, True, False)),
    message(2, 3, 2, transaction_id=7, first=False, last=False),
    message(3, 4, 1, transaction_id=7, first=False, last=True),
)
script("one_message_of_a_transaction_is_pending", out_of_order=WARNING, transaction_partly_delivered=WARNING)(
    in_transactions((1, 7, True, False)), message(2, 3, 2, transaction_id=7, first=False, last=True)
)
script("a_whole_transaction_is_pending", out_of_order=WARNING)(
    in_transactions((1, 7, True, True)),
    message(2, 3, 2, transaction_id=8, first=True, last=False),
    message(3, 4, 3, transaction_id=8, first=False, last=True),
)
script("the_capture_ends_within_a_transaction")(in_transactions((1, 7, True, True), (2, 8, True, False)))
script("the_capture_begins_within_a_transaction")(in_transactions((5, 7, False, True), (6, 8, True, True)))
script("bytes_missing_within_a_transaction", capture_gap=WARNING)(
    in_transactions((1, 7, True, False)), missing(), message(3, 3, 2, transaction_id=8)
)
script("one_transaction_within_another", interleaved_transaction=ERROR)(
    in_transactions((1, 7, True, False), (2, 8, True, True), (3, 7, False, True))
)
script("one_transaction_after_another_of_the_same_id")(
    in_transactions((1, 7, True, False), (2, 7, False, True), (3, 8, True, True), (4, 7, True, True))
)
