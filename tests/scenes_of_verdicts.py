"""Scenes whose findings rest on verdicts: repeats, refusals, gaps, contradictions."""

from replay_tables import T0
from scene import ERROR, INFO, NS, WARNING, S, ack, connection, final_ack, message, messages, missing, script

from schemas.wire import MessageClass

script("all_is_well")(connection(lasting=60), messages(1, 2, 3), ack(0.6, 3))
script("resent_although_accepted", duplicates=INFO, resend_schedule=INFO)(connection(), messages(1), message(30, 1, 0))
script("same_number_in_the_next_sequence")(connection(), message(0, 1, 0), message(30, 1, 0, S + 1))
script("resent_on_a_new_connection", duplicates=INFO)(
    connection(0), connection(1), message(0, 1, 0), message(7, 1, 0, on=1)
)
script("resent_over_four_intervals", duplicates=INFO, resend_schedule=INFO)(
    connection(), *(message(at, 1, 0) for at in (0, 30, 60.5, 90, 391))
)
script("resent_more_often_than_a_sentence_says", duplicates=INFO, resend_schedule=INFO)(
    connection(), *(message(30 * at, 1, 0) for at in range(20))
)
script("resent_too_soon", duplicates=INFO, resend_schedule=INFO)(
    connection(), *(message(at, 1, 0) for at in (0, 30, 42))
)
script("one_number_for_two_bodies", duplicates_differ=ERROR)(
    connection(), message(0, 1, 0), message(30, 1, 0, body=b"ten bytes!")
)
script("one_number_for_two_messages", duplicates_differ=ERROR)(
    connection(), message(0, 1, 0, message_id=7), message(30, 1, 0, message_id=8)
)
script("one_message_sent_at_two_times", duplicates_differ=ERROR)(
    connection(), message(0, 1, 0, sent_time=T0 // NS), message(30, 1, 0, sent_time=T0 // NS + 30)
)
script("refused_before_another_message_takes_its_number", out_of_order=ERROR, duplicates_differ=ERROR)(
    connection(),
    messages(1),
    message(1, 3, 2, message_id=7),  # displaced: number 3 goes to message 8
    messages(2, at=2),
    message(3, 3, 2, message_id=8),
)
script("two_messages_under_one_number_of_which_none_was_accepted", out_of_order=WARNING)(
    connection(), messages(1), message(30, 3, 2, message_id=7), message(60, 3, 2, message_id=8)
)
script("resent_after_the_acknowledgment", duplicates=INFO)(connection(), messages(1), ack(0.6, 1), message(30, 1, 0))
script("resent_with_a_bridged_previous_number", duplicates=INFO, resend_schedule=INFO)(
    connection(), messages(1, 2), message(30, 2, 0)
)
script("one_came_too_early", out_of_order=INFO)(connection(0), connection(1), messages(1, 3, 2), message(7, 3, 2, on=1))
script("one_expired_and_was_bridged", gap_expired=WARNING)(connection(), message(0, 1, 0), message(1, 3, 1))
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
script("resent_and_accepted_at_last", out_of_order=INFO, resend_schedule=INFO)(
    connection(), messages(1, 3), message(30, 3, 2), message(31, 2, 1), message(60, 3, 2)
)
script("resent_and_passed_by_at_last", out_of_order=ERROR, resend_schedule=INFO)(
    connection(), messages(1, 3), message(30, 3, 2), message(40, 1, 0, S + 5)
)
script("some_accepted_later_and_some_not", out_of_order=WARNING)(
    connection(0), connection(1), messages(1, 3, 4, 2), message(7, 3, 2, on=1), message(8, 4, 3, on=1), message(9, 7, 6)
)
script("refused_once_at_the_end", out_of_order=WARNING)(connection(), messages(1, 3))
script("bytes_missing", capture_gap=WARNING)(
    connection(missing_bytes=100), messages(1), missing(), message(1, 5, 4), message(2, 6, 5)
)
script("bytes_missing_where_numbers_expired", capture_gap=WARNING)(
    connection(), messages(1), missing("quarantine", stage="framing"), message(1, 5, 1)
)
script("bytes_missing_on_another_connection", capture_gap=WARNING)(
    connection(0), connection(1, first_captured_at=T0 // 1000 + 500_000), messages(1), missing(on=1), message(1, 5, 4)
)
script("bytes_missing_later_on_another_connection", out_of_order=WARNING)(
    connection(0), connection(1, first_captured_at=T0 // 1000 + 500_000), messages(1), missing(on=1), message(0.2, 5, 4)
)
script("refused_before_missing_bytes_that_may_hold_its_resend", out_of_order=WARNING, capture_gap=WARNING)(
    connection(missing_bytes=100), messages(1, 3), missing(), message(2, 5, 4)
)
script("bytes_missing_that_the_receiver_had", missed_by_capture=INFO)(
    connection(missing_bytes=100), messages(1), missing(), message(1, 5, 4), ack(1.6, 5)
)
script("bytes_missing_without_a_message")(connection(missing_bytes=100), messages(1), missing(), message(1, 2, 1))
script("refused_by_the_rule_yet_acknowledged", contradicted=ERROR)(connection(), messages(1, 3), ack(1, 3))
script("refused_and_not_acknowledged", out_of_order=WARNING)(connection(), messages(1, 3), ack(1, 1))
script("accepted_by_the_rule_yet_not_acknowledged", contradicted=ERROR)(
    connection(lasting=60), messages(1, 2), *(ack(at, 1) for at in (5, 11, 11.7))
)
script("acknowledged_in_two_steps")(connection(lasting=60), messages(1, 2), ack(9.8, 1), ack(10.4, 2))
script("refused_by_the_rule_yet_read_from_its_queue", guids=True, contradicted=ERROR)(
    connection(), messages(1, 3), final_ack(1, 3, MessageClass.MQMSG_CLASS_ACK_RECEIVE)
)
