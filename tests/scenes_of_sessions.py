"""Scenes that show which reading a receiver follows, and how much of a session was captured."""

from scene import ERROR, INFO, Scene, covered, reads


@reads("both")
def orderly_traffic_does_not_tell_readings(s: Scene) -> None:
    s.connection()
    s.messages(1, 2)
    s.ack(0.6, 2)


@reads("conformant", duplicates=INFO)
def the_state_stayed(s: Scene) -> None:
    s.connection()
    s.messages(1, 2)
    s.ack(0.6, 2)
    s.message(1, 1, 0)
    s.ack(1.6, 2)


@reads("literal", duplicates=INFO, state_fell=ERROR)
def the_state_fell(s: Scene) -> None:
    s.guids = True
    s.connection()
    s.messages(1, 2)
    s.ack(0.6, 2)
    s.message(1, 1, 0)
    s.ack(1.6, 1)


@reads("neither")
def an_answer_that_no_reading_foretells(s: Scene) -> None:
    s.connection()
    s.messages(1, 2, 3)
    s.ack(0.6, 2)


@reads("unknown")
def answers_too_soon_or_to_what_was_not_captured(s: Scene) -> None:
    s.connection()
    s.messages(1, 2)
    s.ack(0.1, 1)
    s.messages(3, at=1)
    s.ack(1.6, 9)


@covered(1.0, 1.0)
def nothing_is_missing(s: Scene) -> None:
    s.connection(lasting=100, answers=False)
    s.messages(1)


@covered(0.9, 0.7)
def a_gap_between_two_messages(s: Scene) -> None:
    s.connection(lasting=100, answers=False, recovered_bytes=900, missing_bytes=100)
    s.message(10, 1, 0)
    s.missing(length=40)
    s.missing(length=60)
    s.message(40, 2, 1)


@covered(0.9, 0.8)
def unreadable_bytes_at_the_end(s: Scene) -> None:
    s.connection(lasting=100, answers=False)
    s.message(80, 1, 0)
    s.missing("quarantine", length=100, stage="decode")


@covered(0.9, 0.7)
def a_gap_before_the_first_message(s: Scene) -> None:
    s.connection(lasting=100, answers=False, recovered_bytes=900, missing_bytes=100)
    s.missing(length=100)
    s.message(30, 1, 0)


@covered(1.0, 1.0)
def what_is_no_part_of_a_stream_does_not_count(s: Scene) -> None:
    s.connection(lasting=100, answers=False)
    s.message(80, 1, 0)
    s.missing("quarantine", length=100, stage="tcp")


@covered(1.0, 1.0, mid_stream=1)
def a_connection_caught_in_mid_stream(s: Scene) -> None:
    s.connection(lasting=100, answers=False, mid_stream=True)
    s.messages(1)


@covered(0.95, 0.85)
def the_whole_of_one_connection_and_a_part_of_another(s: Scene) -> None:
    s.connection(0, lasting=100, answers=False)
    s.connection(1, lasting=100, answers=False, recovered_bytes=900, missing_bytes=100)
    s.message(80, 1, 0)
    s.missing(on=1)
    s.message(30, 2, 1, on=1, sequence=None)


@covered(None, None)
def a_capture_without_times(s: Scene) -> None:
    s.connection(answers=False, recovered_bytes=0, first_captured_at=None, last_captured_at=None)
    s.messages(1)
