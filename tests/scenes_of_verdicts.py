"""Scenes whose findings rest on verdicts: repeats, refusals, gaps, contradictions."""

from replay_tables import T0
from scene import ERROR, INFO, NS, WARNING, S, Scene, scene

from schemas.wire import MessageClass


@scene()
def all_is_well(s: Scene) -> None:
    s.connection(lasting=60)
    s.messages(1, 2, 3)
    s.ack(0.6, 3)


@scene(duplicates=INFO, resend_schedule=INFO)
def resent_although_accepted(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.message(30, 1, 0)


@scene()
def same_number_in_the_next_sequence(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0)
    s.message(30, 1, 0, S + 1)


@scene(duplicates=INFO)
def resent_on_a_new_connection(s: Scene) -> None:
    s.connection(0)
    s.connection(1)
    s.message(0, 1, 0)
    s.message(7, 1, 0, on=1)


@scene(duplicates=INFO, resend_schedule=INFO)
def resent_over_four_intervals(s: Scene) -> None:
    s.connection()
    for at in (0, 30, 60.5, 90, 391):
        s.message(at, 1, 0)


@scene(duplicates=INFO, resend_schedule=INFO)
def resent_too_soon(s: Scene) -> None:
    s.connection()
    for at in (0, 30, 42):
        s.message(at, 1, 0)


@scene(duplicates_differ=ERROR)
def one_number_for_two_bodies(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0)
    s.message(30, 1, 0, body=b"ten bytes!")


@scene(duplicates_differ=ERROR)
def one_number_for_two_messages(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, message_id=7)
    s.message(30, 1, 0, message_id=8)


@scene(duplicates_differ=ERROR)
def one_message_sent_at_two_times(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, sent_time=T0 // NS)
    s.message(30, 1, 0, sent_time=T0 // NS + 30)


@scene(out_of_order=ERROR, duplicates_differ=ERROR)
def refused_before_another_message_takes_its_number(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.message(1, 3, 2, message_id=7)  # displaced: number 3 goes to message 8
    s.messages(2, at=2)
    s.message(3, 3, 2, message_id=8)


@scene(out_of_order=WARNING)
def two_messages_under_one_number_of_which_none_was_accepted(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.message(30, 3, 2, message_id=7)
    s.message(60, 3, 2, message_id=8)


@scene(duplicates=INFO)
def resent_after_the_acknowledgment(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.ack(0.6, 1)
    s.message(30, 1, 0)


@scene(duplicates=INFO, resend_schedule=INFO)
def resent_with_a_bridged_previous_number(s: Scene) -> None:
    s.connection()
    s.messages(1, 2)
    s.message(30, 2, 0)


@scene(out_of_order=INFO)
def one_came_too_early(s: Scene) -> None:
    s.connection(0)
    s.connection(1)
    s.messages(1, 3, 2)
    s.message(7, 3, 2, on=1)


@scene(gap_expired=WARNING)
def one_expired_and_was_bridged(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0)
    s.message(1, 3, 1)


@scene(out_of_order=ERROR, gap_expired=WARNING)
def one_expired_that_was_sent_before(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.message(30, 5, 1)


@scene(out_of_order=WARNING, stuck_sequence=WARNING, resend_schedule=INFO)
def resent_and_refused_for_ever(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.message(30, 3, 2)
    s.message(60, 3, 2)


@scene(out_of_order=INFO, resend_schedule=INFO)
def resent_and_accepted_at_last(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.message(30, 3, 2)
    s.message(31, 2, 1)
    s.message(60, 3, 2)


@scene(out_of_order=ERROR, resend_schedule=INFO)
def resent_and_passed_by_at_last(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.message(30, 3, 2)
    s.message(40, 1, 0, S + 5)


@scene(out_of_order=WARNING)
def some_accepted_later_and_some_not(s: Scene) -> None:
    s.connection(0)
    s.connection(1)
    s.messages(1, 3, 4, 2)
    s.message(7, 3, 2, on=1)
    s.message(8, 4, 3, on=1)
    s.message(9, 7, 6)


@scene(out_of_order=WARNING)
def refused_once_at_the_end(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)


@scene(capture_gap=WARNING)
def bytes_missing(s: Scene) -> None:
    s.connection(missing_bytes=100)
    s.messages(1)
    s.missing()
    s.message(1, 5, 4)
    s.message(2, 6, 5)


@scene(capture_gap=WARNING)
def bytes_missing_where_numbers_expired(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.missing("quarantine", stage="framing")
    s.message(1, 5, 1)


@scene(capture_gap=WARNING)
def bytes_missing_on_another_connection(s: Scene) -> None:
    s.connection(0)
    s.connection(1, first_captured_at=T0 // 1000 + 500_000)
    s.messages(1)
    s.missing(on=1)
    s.message(1, 5, 4)


@scene(out_of_order=WARNING)
def bytes_missing_later_on_another_connection(s: Scene) -> None:
    s.connection(0)
    s.connection(1, first_captured_at=T0 // 1000 + 500_000)
    s.messages(1)
    s.missing(on=1)
    s.message(0.2, 5, 4)


@scene(missed_by_capture=INFO)
def bytes_missing_that_the_receiver_had(s: Scene) -> None:
    s.connection(missing_bytes=100)
    s.messages(1)
    s.missing()
    s.message(1, 5, 4)
    s.ack(1.6, 5)


@scene()
def bytes_missing_without_a_message(s: Scene) -> None:
    s.connection(missing_bytes=100)
    s.messages(1)
    s.missing()
    s.message(1, 2, 1)


@scene(contradicted=ERROR)
def refused_by_the_rule_yet_acknowledged(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.ack(1, 3)


@scene(out_of_order=WARNING)
def refused_and_not_acknowledged(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.ack(1, 1)


@scene(contradicted=ERROR)
def accepted_by_the_rule_yet_not_acknowledged(s: Scene) -> None:
    s.connection(lasting=60)
    s.messages(1, 2)
    for at in (5, 11, 11.7):
        s.ack(at, 1)


@scene()
def acknowledged_in_two_steps(s: Scene) -> None:
    s.connection(lasting=60)
    s.messages(1, 2)
    s.ack(9.8, 1)
    s.ack(10.4, 2)


@scene(contradicted=ERROR)
def refused_by_the_rule_yet_read_from_its_queue(s: Scene) -> None:
    s.guids = True
    s.connection()
    s.messages(1, 3)
    s.final_ack(1, 3, MessageClass.MQMSG_CLASS_ACK_RECEIVE)
