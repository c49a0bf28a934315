"""Scenes whose findings rest on acknowledgments, senders and transactions."""

from typing import Any

from replay_tables import T0
from scene import DAYS, ERROR, INFO, NS, WARNING, S, Scene, guid, scene

from jobs.simulator import build
from schemas.wire import UNLIMITED, MessageClass


@scene(not_received_by_application=WARNING)
def purged_from_its_queue(s: Scene) -> None:
    s.connection(lasting=60)
    s.messages(1)
    s.final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_Q_PURGED)


def returned(s: Scene, message_class: MessageClass, at: float = 1, **fields: Any) -> None:
    """A message, outside transactions unless it has a sequence, and an administration message of the class about it."""
    s.connection(lasting=60)
    s.message(0, **{"number": 9, "previous": 0, "sequence": None, **fields})
    about = s.sender.bytes_le + fields.get("number", 9).to_bytes(4, "little")
    packet = build.user_message(guid(f"{s.name}.b"), message_id=1, message_class=message_class, correlation_id=about)
    s.packet("messages", (f"{s.name}.0<", 0), at, packet)


@scene(not_received_by_application=ERROR)
def returned_because_the_queue_is_full(s: Scene) -> None:
    returned(s, MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA)


@scene(not_received_by_application=WARNING)
def returned_because_nobody_read_it_in_time(s: Scene) -> None:
    returned(s, MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT)


@scene(not_received_by_application=WARNING)
def a_transaction_that_nobody_read_in_time(s: Scene) -> None:
    fields = {"number": 1, "sequence": S, "time_to_reach_queue": DAYS, "time_to_be_received": 30}
    returned(s, MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT, 31.5, **fields)


@scene()
def received_by_its_application(s: Scene) -> None:
    returned(s, MessageClass.MQMSG_CLASS_ACK_RECEIVE)


@scene(refused_for_cause=ERROR)
def refused_for_cause(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED)


@scene(refused_for_cause=ERROR)
def refused_for_several_causes(s: Scene) -> None:
    s.connection()
    s.messages(1, 2, 3)
    s.message(3, 4, 3, destination=build.direct("OS:b\\private$\\other"))
    for number in (1, 2, 3, 4):
        denied = number != 2
        message_class = (
            MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED if denied else MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q
        )
        s.final_ack(4 + number, number, message_class)


@scene()
def read_from_its_queue(s: Scene) -> None:
    s.connection(lasting=60)
    s.messages(1)
    s.final_ack(1, 1, MessageClass.MQMSG_CLASS_ACK_RECEIVE)


@scene()
def another_message_was_refused_for_cause(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED, named=9)


@scene(out_of_order=ERROR, sequence_regressed=ERROR)
def new_messages_under_an_old_sequence(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, S + 5)
    s.message(1, 7, 6, S)


@scene(out_of_order=ERROR, sequence_regressed=ERROR, gap_expired=WARNING)
def new_messages_under_old_numbers(s: Scene) -> None:
    s.connection()
    s.message(0, 3, 0, message_id=10, sent_time=T0 // NS)
    s.message(5, 2, 1, message_id=11, sent_time=T0 // NS + 5)


@scene(out_of_order=ERROR, gap_expired=WARNING)
def overtaken_by_later_messages(s: Scene) -> None:
    s.connection()
    s.message(0, 3, 0, message_id=11, sent_time=T0 // NS)
    s.message(5, 2, 1, message_id=10, sent_time=T0 // NS)


@scene(duplicates=INFO, resend_schedule=INFO)
def old_messages_under_an_old_sequence(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, S)
    s.message(1, 1, 0, S + 5)
    s.message(30, 1, 0, S)


def sent(s: Scene, *ordinals: tuple[int, int]) -> None:
    """Messages with these ordinals, sent at these seconds."""
    s.connection()
    for i, (ordinal, at) in enumerate(ordinals):
        s.message(i, i + 1, i, message_id=ordinal, sent_time=T0 // NS + at)


@scene(ordinal_regressed=WARNING)
def message_ids_fall(s: Scene) -> None:
    sent(s, (10, 0), (11, 1), (5, 2), (6, 3))


@scene()
def message_ids_within_a_second(s: Scene) -> None:
    sent(s, (10, 0), (12, 1), (11, 1), (13, 2))


@scene()
def message_ids_wrap(s: Scene) -> None:
    sent(s, (0xFFFFFFFE, 0), (0xFFFFFFFF, 1), (0, 2), (1, 3))


@scene()
def committed_late(s: Scene) -> None:
    sent(s, (11, 5), (12, 6), (10, 4))


@scene(unacknowledged=WARNING)
def never_acknowledged(s: Scene) -> None:
    s.connection(lasting=20)
    s.messages(1, 2)
    s.ack(0.6, 1)


@scene()
def the_capture_ends_before_an_answer_is_due(s: Scene) -> None:
    s.connection(lasting=10)
    s.messages(1, 2)
    s.ack(0.6, 1)


@scene()
def the_answers_take_another_path(s: Scene) -> None:
    s.connection(lasting=20)
    s.messages(1, 2)


@scene()
def the_answer_may_be_in_missing_bytes(s: Scene) -> None:
    s.connection(lasting=20)
    s.messages(1, 2)
    s.ack(0.6, 1)
    s.tables.rows["stream_gaps"].append({"stream_id": f"{s.name}.0<", "stream_offset": 0, "length": 1})


@scene()
def the_answer_may_be_in_unreadable_bytes(s: Scene) -> None:
    s.connection(lasting=20)
    s.messages(1, 2)
    s.ack(0.6, 1)
    row = {"stage": "framing", "stream_id": f"{s.name}.0<", "stream_offset": 0, "length": 1}
    s.tables.rows["quarantine"].append(row)


@scene()
def the_way_back_was_not_captured(s: Scene) -> None:
    s.connection(lasting=20, answers=False)
    s.messages(1)


@scene(slow_acknowledgment=WARNING)
def acknowledged_late(s: Scene) -> None:
    s.connection(lasting=20)
    s.messages(1)
    s.ack(10.6, 1)


@scene()
def acknowledged_just_in_time(s: Scene) -> None:
    s.connection(lasting=20)
    s.messages(1)
    s.ack(10.4, 1)


@scene(out_of_order=WARNING, repeated_order_ack=WARNING)
def the_same_answer_again_and_again(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.message(5, 3, 2)
    for at in (1, 31, 62):
        s.ack(at, 1)


@scene(out_of_order=WARNING, repeated_order_ack=INFO)
def refused_after_the_last_answer(s: Scene) -> None:
    s.connection()
    s.messages(1)
    for at in (1, 31, 62):
        s.ack(at, 1)
    s.message(63, 3, 2)


@scene(repeated_order_ack=INFO, duplicates=INFO)
def answers_that_do_not_reach_the_sender(s: Scene) -> None:
    s.connection()
    for at in (0, 30, 60):
        s.message(at, 1, 0)
        s.ack(at + 0.6, 1)
    s.ack(61, 1)


@scene()
def the_same_answer_before_it_goes_on(s: Scene) -> None:
    s.connection()
    s.messages(1)
    for at in (1, 31, 62):
        s.ack(at, 1)
    s.message(63, 2, 1)
    s.ack(64, 2)


@scene()
def the_same_answer_three_times_in_a_minute(s: Scene) -> None:
    s.connection()
    s.messages(1)
    for at in (1, 31, 60):
        s.ack(at, 1)


@scene(expired_on_arrival=WARNING, out_of_order=WARNING)
def too_late_for_the_queue(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, sent_time=T0 // NS)
    s.message(62, 3, 2, sent_time=T0 // NS + 1, time_to_reach_queue=60)


@scene(expired_on_arrival=WARNING)
def too_late_to_be_received(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, sent_time=T0 // NS, sequence=None)
    s.message(62, 2, 0, sent_time=T0 // NS + 1, time_to_reach_queue=DAYS, time_to_be_received=60, sequence=None)


@scene()
def late_but_accepted(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, sent_time=T0 // NS)
    s.message(62, 2, 1, sent_time=T0 // NS + 1, time_to_reach_queue=60)


@scene()
def by_a_clock_that_is_slow(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, sent_time=T0 // NS - 100, time_to_reach_queue=60, sequence=None)
    s.message(1, 2, 0, sent_time=T0 // NS - 99, time_to_reach_queue=60, sequence=None)


@scene()
def just_in_time(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, sent_time=T0 // NS, sequence=None)
    s.message(61, 2, 0, sent_time=T0 // NS + 1, time_to_reach_queue=60, sequence=None)
    s.message(DAYS, 3, 0, sent_time=T0 // NS + 2, time_to_reach_queue=UNLIMITED, sequence=None)


@scene(two_addresses=ERROR, duplicates_differ=ERROR)
def one_number_from_two_addresses(s: Scene) -> None:
    two_networks(s)
    s.message(1, 1, 0, on=1, message_id=7)


@scene(two_addresses=ERROR, out_of_order=ERROR, sequence_regressed=ERROR)
def two_sequences_from_two_addresses(s: Scene) -> None:
    two_networks(s)
    s.message(1, 1, 0, S + 5, on=1)
    s.message(2, 2, 1)


@scene(two_addresses=INFO)
def one_host_on_two_networks(s: Scene) -> None:
    two_networks(s)
    s.message(1, 2, 1, on=1)


def two_networks(s: Scene) -> None:
    """Connections from two addresses at once, and a message on the first."""
    s.guids = True
    s.connection(0, lasting=10)
    s.connection(1, lasting=10, src_ip="ip.other")
    s.messages(1)


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


def in_transactions(s: Scene, *marks: tuple[int, int, bool, bool]) -> None:
    """Messages with these numbers, transaction IDs, FM and LM."""
    s.connection()
    for number, transaction, first, last in marks:
        s.message(number, number, number - 1, transaction_id=transaction, first=first, last=last)


@scene(torn_transaction=ERROR)
def no_last_message(s: Scene) -> None:
    in_transactions(s, (1, 7, True, False), (2, 8, True, True))


@scene(torn_transaction=ERROR)
def no_first_message(s: Scene) -> None:
    in_transactions(s, (1, 7, True, True), (2, 8, False, True))


@scene(out_of_order=INFO, resend_schedule=INFO)
def the_first_message_of_a_transaction_comes_late(s: Scene) -> None:
    in_transactions(s, (1, 7, True, True))
    s.connection(1)
    for at, number, first in ((2, 3, False), (3, 2, True), (4, 3, False)):
        s.message(at, number, number - 1, on=at % 2, transaction_id=8, first=first, last=not first)
    s.message(5, 4, 3, transaction_id=9)


@scene(out_of_order=ERROR, gap_expired=WARNING, transaction_partly_delivered=ERROR)
def one_message_of_a_transaction_is_lost(s: Scene) -> None:
    in_transactions(s, (1, 7, True, False))
    s.message(2, 3, 2, transaction_id=7, first=False, last=False)
    s.message(3, 4, 1, transaction_id=7, first=False, last=True)


@scene(out_of_order=WARNING, transaction_partly_delivered=WARNING)
def one_message_of_a_transaction_is_pending(s: Scene) -> None:
    in_transactions(s, (1, 7, True, False))
    s.message(2, 3, 2, transaction_id=7, first=False, last=True)


@scene(out_of_order=WARNING)
def a_whole_transaction_is_pending(s: Scene) -> None:
    in_transactions(s, (1, 7, True, True))
    s.message(2, 3, 2, transaction_id=8, first=True, last=False)
    s.message(3, 4, 3, transaction_id=8, first=False, last=True)


@scene()
def the_capture_ends_within_a_transaction(s: Scene) -> None:
    in_transactions(s, (1, 7, True, True), (2, 8, True, False))


@scene()
def the_capture_begins_within_a_transaction(s: Scene) -> None:
    in_transactions(s, (5, 7, False, True), (6, 8, True, True))


@scene(capture_gap=WARNING)
def bytes_missing_within_a_transaction(s: Scene) -> None:
    in_transactions(s, (1, 7, True, False))
    s.missing()
    s.message(3, 3, 2, transaction_id=8)


@scene(interleaved_transaction=ERROR)
def one_transaction_within_another(s: Scene) -> None:
    in_transactions(s, (1, 7, True, False), (2, 8, True, True), (3, 7, False, True))


@scene()
def one_transaction_after_another_of_the_same_id(s: Scene) -> None:
    in_transactions(s, (1, 7, True, False), (2, 7, False, True), (3, 8, True, True), (4, 7, True, True))
