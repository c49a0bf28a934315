"""Scenes that show which reading a receiver follows, and how much of a session was captured."""

from scene import ERROR, INFO, WARNING, S, ack, connection, message, messages, missing, script

script("orderly_traffic_does_not_tell_readings", reading="both")(connection(), messages(1, 2), ack(0.6, 2))
script("the_state_stayed", reading="conformant", duplicates=INFO)(
    connection(), messages(1, 2), ack(0.6, 2), message(1, 1, 0), ack(1.6, 2)
)
script("the_state_fell", reading="literal", guids=True, duplicates=INFO, state_fell=ERROR)(
    connection(), messages(1, 2), ack(0.6, 2), message(1, 1, 0), ack(1.6, 1)
)
script(
    "the_answer_names_a_number_of_the_sequence_before", contradicted=ERROR, gap_expired=WARNING, unacknowledged=WARNING
)(connection(lasting=60), message(0, 1, 0), message(1, 5, 0, S + 1), message(2, 2, 1), ack(3, 2))
script("an_answer_that_no_reading_foretells", reading="neither")(connection(), messages(1, 2, 3), ack(0.6, 2))
script("answers_too_soon_or_to_what_was_not_captured", reading="unknown")(
    connection(), messages(1, 2), ack(0.1, 1), messages(3, at=1), ack(1.6, 9)
)
script("nothing_is_missing", coverage=(1.0, 1.0, 0))(connection(lasting=100, answers=False), messages(1))
script("a_gap_between_two_messages", coverage=(0.9, 0.7, 0))(
    connection(lasting=100, answers=False, recovered_bytes=900, missing_bytes=100),
    message(10, 1, 0),
    missing(length=40),
    missing(length=60),
    message(40, 2, 1),
)
script("unreadable_bytes_at_the_end", coverage=(0.9, 0.8, 0))(
    connection(lasting=100, answers=False), message(80, 1, 0), missing("quarantine", length=100, stage="decode")
)
script("a_gap_before_the_first_message", coverage=(0.9, 0.7, 0))(
    connection(lasting=100, answers=False, recovered_bytes=900, missing_bytes=100),
    missing(length=100),
    message(30, 1, 0),
)
script("what_is_no_part_of_a_stream_does_not_count", coverage=(1.0, 1.0, 0))(
    connection(lasting=100, answers=False), message(80, 1, 0), missing("quarantine", length=100, stage="tcp")
)
script("a_connection_caught_in_mid_stream", coverage=(1.0, 1.0, 1))(
    connection(lasting=100, answers=False, mid_stream=True), messages(1)
)
script("the_whole_of_one_connection_and_a_part_of_another", coverage=(0.95, 0.85, 0))(
    connection(0, lasting=100, answers=False),
    connection(1, lasting=100, answers=False, recovered_bytes=900, missing_bytes=100),
    message(80, 1, 0),
    missing(on=1),
    message(30, 2, 1, on=1, sequence=None),
)
script("a_capture_without_times", coverage=(None, None, 0))(
    connection(answers=False, recovered_bytes=0, first_captured_at=None, last_captured_at=None), messages(1)
)
script("a_stream_of_no_duration", coverage=(1.0, 1.0, 0))(connection(answers=False), message(0, 1, 0))
script("unread_bytes_in_a_stream_of_no_duration", coverage=(0.5, None, 0))(
    connection(answers=False, recovered_bytes=100), message(0, 1, 0), missing("quarantine", length=50, stage="decode")
)
script("one_of_two_connections_without_a_beginning", coverage=(1.0, None, 0))(
    connection(0, lasting=100, answers=False),
    connection(1, lasting=100, answers=False, first_captured_at=None),
    message(0, 1, 0),
    message(1, 2, 1, on=1),
)
script("a_gap_between_two_messages_whose_times_fall", coverage=(0.9, 1.0, 0))(
    connection(lasting=100, answers=False), message(60, 1, 0), missing(length=100), message(20, 2, 1)
)
script("a_gap_that_ends_after_its_stream", coverage=(0.9, 0.0, 0))(
    connection(lasting=100, answers=False), message(0, 1, 0), missing(length=100), message(300, 2, 1)
)
