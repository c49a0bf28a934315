"""Findings, coverage and readings: one night of many small sessions, each a scene that shows a thing or nearly does."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest
from pyspark.sql import SparkSession
from replay_tables import T0, Tables, found, replay, summarised

from jobs.simulator import build
from jobs.transforms.summaries.summaries import transactions
from schemas.replay import FindingKind, Reading, Severity
from schemas.wire import UNLIMITED, MessageClass
from udfs.msmq.reference_rows import decode_packet

S = (1 << 63) - 1  # the next sequence no signed number holds
NS = 1_000_000_000
DAYS = 3 * 86_400


def guid(name: str) -> UUID:
    """The GUID of a queue manager."""
    return uuid5(NAMESPACE_OID, name)


@dataclass
class Scene:
    """A session of a sender `a` and a receiver `b`, known by address or, with `guids`, by handshake; times in s.

    What they send are packets, as `jobs.simulator.build` builds and `udfs.msmq.reference` decodes them.
    """

    tables: Tables
    name: str
    guids: bool = False
    offset: dict[str, int] = field(default_factory=dict)

    @property
    def sender(self) -> UUID:
        """The sender's GUID."""
        return guid(f"{self.name}.a")

    @property
    def session(self) -> str:
        """The session's ID."""
        ends = (self.sender, guid(f"{self.name}.b")) if self.guids else (f"ip.{self.name}.a", f"ip.{self.name}.b")
        return "->".join(map(str, ends))

    def connection(self, number: int = 0, lasting: float = 0, answers: bool = True, **columns: Any) -> None:
        """A connection that lasts so long; `columns` are of the stream from the sender, `back_…` of the way back."""
        ends = f"ip.{self.name}.a", f"ip.{self.name}.b"
        times = {"last_captured_at": T0 // 1000 + int(lasting * 1_000_000)}
        back = {name.removeprefix("back_"): columns.pop(name) for name in list(columns) if name.startswith("back_")}
        self.tables.stream(f"{self.name}.{number}>", *ends, **(times | columns))
        if answers:
            self.tables.stream(f"{self.name}.{number}<", *ends[::-1], **(times | back))
        if self.guids:
            self.handshake(f"{self.name}.{number}", self.sender, guid(f"{self.name}.b"))

    def handshake(self, connection: str, client: UUID, server: UUID) -> None:
        """EstablishConnection and its answer, which names the server."""
        self.packet("handshakes", (f"{connection}>", 0), 0, build.establish_connection(client))
        self.packet("handshakes", (f"{connection}<", 0), 0, build.establish_connection(client, server))

    def key(self, number: int = 0) -> tuple[str, int]:
        """The next place on a stream."""
        stream = f"{self.name}.{number}>"
        self.offset[stream] = self.offset.get(stream, -10) + 10
        return stream, self.offset[stream]

    def packet(self, table: str, key: tuple[str, int], at: float, packet: bytes) -> None:
        """A packet as the table shows it."""
        decoded = decode_packet(packet, None, len(packet))
        assert isinstance(decoded, dict)
        ns = T0 + int(at * NS)
        place = {"stream_id": key[0], "stream_offset": key[1], "captured_ns": ns, "captured_at": ns // 1000}
        record = {"capture_id": "c", "first_frame": 1, "last_frame": 1}
        self.tables.rows[table].append(decoded | place | record)

    def message(
        self, at: float, number: int, previous: int, sequence: int | None = S, on: int = 0, **fields: Any
    ) -> None:
        """A message, transactional unless it has no sequence; its message ID is its number unless told otherwise."""
        given: dict[str, Any] = {"message_id": number, "body": bytes(10)} | fields
        if sequence is not None:
            given["sequence"] = sequence, number, previous
        self.packet("messages", self.key(on), at, build.user_message(self.sender, **given))

    def messages(self, *numbers: int, at: float = 0) -> None:
        """Messages that follow one another, a ms apart."""
        for i, number in enumerate(numbers):
            self.message(at + i / 1000, number, number - 1)

    def ack(self, at: float, number: int) -> None:
        """An OrderAck, on the first connection's way back."""
        by = guid(f"{self.name}.b")
        packet = build.order_ack(by, sender=self.sender, message_id=1, sequence_id=S, number=number)
        self.packet("acks", (f"{self.name}.0<", int(at * 1000)), at, packet)

    def final_ack(self, at: float, number: int, message_class: MessageClass, named: int | None = None) -> None:
        """A FinalAck for a number, and for the message ID that goes with it or another one."""
        packet = build.final_ack(
            guid(f"{self.name}.b"),
            sender=self.sender,
            message_id=1,
            sequence_id=S,
            number=number,
            previous=number - 1,
            acknowledged_message_id=number if named is None else named,
            message_class=message_class,
        )
        self.packet("acks", (f"{self.name}.0<", int(at * 1000)), at, packet)

    def missing(self, table: str = "stream_gaps", length: int = 100, stage: str | None = None, on: int = 0) -> None:
        """Bytes that no capture holds, or that are in quarantine."""
        place = dict(zip(("stream_id", "stream_offset"), self.key(on), strict=True))
        self.tables.rows[table].append(place | {"length": length, "stage": stage})


K = FindingKind
SCENES: dict[str, tuple[Callable[[Scene], None], dict[FindingKind, Severity]]] = {}


def scene(**kinds: Severity) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """A scene, by its function's name, and the findings it must give: these and no others."""

    def named(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
        SCENES[play.__name__] = play, {FindingKind(kind): severity for kind, severity in kinds.items()}
        return play

    return named


INFO, WARNING, ERROR = Severity


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


@scene(duplicates=INFO, resend_schedule=WARNING)
def resent_too_soon(s: Scene) -> None:
    s.connection()
    for at in (0, 30, 42):
        s.message(at, 1, 0)


@scene(duplicates=INFO, duplicates_differ=ERROR, resend_schedule=INFO)
def one_number_for_two_bodies(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0)
    s.message(30, 1, 0, body=bytes(11))


@scene(duplicates=INFO, duplicates_differ=ERROR, resend_schedule=INFO)
def one_number_for_two_messages(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, message_id=7)
    s.message(30, 1, 0, message_id=8)


@scene(duplicates=INFO, resend_schedule=INFO)
def resent_with_a_bridged_previous_number(s: Scene) -> None:
    s.connection()
    s.messages(1, 2)
    s.message(30, 2, 0)


@scene(out_of_order=WARNING)
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


@scene(out_of_order=WARNING, gap_expired=WARNING)
def one_expired_that_was_sent_before(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.message(30, 5, 1)


@scene(out_of_order=WARNING, stuck_sequence=ERROR, resend_schedule=INFO)
def resent_and_refused_for_ever(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.message(30, 3, 2)
    s.message(60, 3, 2)


@scene(out_of_order=WARNING, resend_schedule=INFO)
def resent_and_accepted_at_last(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    s.message(30, 3, 2)
    s.message(31, 2, 1)
    s.message(60, 3, 2)


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


@scene(refused_for_cause=ERROR)
def refused_for_cause(s: Scene) -> None:
    s.connection()
    s.messages(1)
    s.final_ack(1, 1, MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED)


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


@scene(out_of_order=WARNING, sequence_regressed=ERROR)
def new_messages_under_an_old_sequence(s: Scene) -> None:
    s.connection()
    s.message(0, 1, 0, S + 5)
    s.message(1, 7, 6, S)


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
    s.messages(1)


@scene()
def the_answer_may_be_in_missing_bytes(s: Scene) -> None:
    s.connection(lasting=20)
    s.messages(1)
    s.tables.rows["stream_gaps"].append({"stream_id": f"{s.name}.0<", "stream_offset": 0, "length": 1})


@scene()
def the_answer_may_be_in_unreadable_bytes(s: Scene) -> None:
    s.connection(lasting=20)
    s.messages(1)
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


@scene(out_of_order=WARNING, repeated_order_ack=ERROR)
def the_same_answer_again_and_again(s: Scene) -> None:
    s.connection()
    s.messages(1, 3)
    for at in (1, 31, 62):
        s.ack(at, 1)


@scene(repeated_order_ack=WARNING, duplicates=INFO, resend_schedule=INFO)
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


@scene(expired_on_arrival=WARNING)
def too_late_for_the_queue(s: Scene) -> None:
    s.connection()
    s.message(61, 1, 0, sent_time=T0 // NS, time_to_reach_queue=60)


@scene(expired_on_arrival=WARNING)
def too_late_to_be_received(s: Scene) -> None:
    s.connection()
    s.message(61, 1, 0, sent_time=T0 // NS, time_to_reach_queue=DAYS, time_to_be_received=60, sequence=None)


@scene()
def just_in_time(s: Scene) -> None:
    s.connection()
    s.message(60, 1, 0, sent_time=T0 // NS, time_to_reach_queue=60)
    s.message(DAYS, 2, 1, sent_time=T0 // NS, time_to_reach_queue=UNLIMITED)


@scene(two_addresses=ERROR)
def one_identity_at_two_addresses(s: Scene) -> None:
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


# --- readings and coverage ------------------------------------------------------------------------------------------


READINGS: dict[str, str] = {}


def reads(reading: str, **kinds: Severity) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """A scene whose OrderAcks this reading explains."""

    def named(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
        READINGS[play.__name__] = reading
        return scene(**kinds)(play)

    return named


@reads("both")
def orderly_traffic_does_not_tell_readings(s: Scene) -> None:
    s.connection()
    s.messages(1, 2)
    s.ack(0.6, 2)


@reads("conformant", duplicates=INFO, resend_schedule=WARNING)
def the_state_stayed(s: Scene) -> None:
    s.connection()
    s.messages(1, 2)
    s.ack(0.6, 2)
    s.message(1, 1, 0)
    s.ack(1.6, 2)


@reads("literal", duplicates=INFO, resend_schedule=WARNING, state_fell=ERROR)
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


COVERED: dict[str, tuple[float | None, float | None, int]] = {}


def covered(
    byte_coverage: float | None, time_coverage: float | None, mid_stream: int = 0, **kinds: Severity
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """A scene with this coverage."""

    def named(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
        COVERED[play.__name__] = byte_coverage, time_coverage, mid_stream
        return scene(**kinds)(play)

    return named


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


@pytest.fixture(scope="module")
def night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Per reading the findings of each scene and the sessions, and the transactions."""
    tables = Tables()
    scenes = {name: Scene(tables, name) for name in SCENES}
    for name, (play, _) in SCENES.items():
        play(scenes[name])
    inputs = tables.on(spark, tmp_path_factory.mktemp("scenes"))
    rows: dict[str, Any] = {}
    for reading in Reading:
        result = replay(inputs, reading=reading)
        rows[reading] = {name: [] for name in SCENES} | {"sessions": summarised(inputs, result).collect()}
        named = {scene.session: name for name, scene in scenes.items()}
        for row in found(inputs, result).collect():
            name = named.get(row.session_id) or str(row.witness[0]).partition(".")[0]
            rows[reading][name].append(row)
        if reading is Reading.CONFORMANT:
            rows["transactions"] = transactions(result).collect()
            rows["verdicts"] = {(row.stream_id, row.stream_offset): row for row in result.collect()}
    return rows


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_gives_these_findings_and_no_others(night: dict[str, Any], name: str) -> None:
    given = {FindingKind(row.kind): Severity(row.severity) for row in night[Reading.CONFORMANT][name]}
    assert given == SCENES[name][1]
    assert all(row.witness for row in night[Reading.CONFORMANT][name])


def test_every_kind_is_shown() -> None:
    assert {kind for _, kinds in SCENES.values() for kind in kinds} == set(FindingKind)


WORDS = {
    "resent_although_accepted": (
        K.DUPLICATES,
        (
            f"1 message(s) of sequence {S} came again after the receiver had them, and were dropped. The first is "
            "number 1."
        ),
        ["resent_although_accepted.0>@0", "resent_although_accepted.0>@10"],
    ),
    "resent_too_soon": (
        K.RESEND_SCHEDULE,
        (
            f"No OrderAck came in time for sequence {S}: number 1 was sent again on the same connection after "
            "30.0, 12.0 s, which are not the intervals of 3.1.3.1 (30, 300, 1800 and 21600 s)."
        ),
        ["resent_too_soon.0>@0", "resent_too_soon.0>@10"],
    ),
    "one_number_for_two_messages": (
        K.DUPLICATES_DIFFER,
        (
            f"1 message(s) of sequence {S} bear a number that came before with another content (another message "
            "ID): two senders use one identity, or one was restored and numbers anew. The first is number 1."
        ),
        ["one_number_for_two_messages.0>@0", "one_number_for_two_messages.0>@10"],
    ),
    "one_expired_that_was_sent_before": (
        K.GAP_EXPIRED,
        (
            f"1 message(s) of sequence {S} were accepted over numbers that the sender gave up: they expired. The "
            "first is number 5; 3 number(s) before it expired, from 2 to 4. Sent before, and refused then: "
            f"number 3 ({guid('one_expired_that_was_sent_before.a')}\\3)."
        ),
        [f"one_expired_that_was_sent_before.0>@{offset}" for offset in (0, 20, 10)],
    ),
    "resent_and_refused_for_ever": (
        K.STUCK_SEQUENCE,
        (
            f"The sender resends and the receiver refuses: 2 resent message(s) of sequence {S} were refused "
            "again, and nothing of the sequence was accepted since. The first is number 3, which follows number "
            f"2; the receiver's state was: {S} number 1."
        ),
        [f"resent_and_refused_for_ever.0>@{offset}" for offset in (0, 10, 20)],
    ),
    "bytes_missing": (
        K.CAPTURE_GAP,
        (
            f"1 message(s) of sequence {S} cannot be judged: the captures are missing bytes before them, in which "
            "their predecessors may have been. The first is number 5, which follows number 4; the state before "
            f"the missing bytes was: {S} number 1."
        ),
        ["bytes_missing.0>@0", "bytes_missing.0>@20"],
    ),
    "bytes_missing_that_the_receiver_had": (
        K.MISSED_BY_CAPTURE,
        (
            f"The captures are missing bytes before 1 message(s) of sequence {S}, yet the receiver acknowledged "
            "them, so it had what the captures missed. The first is number 5; the state before the missing bytes "
            f"was: {S} number 1."
        ),
        ["bytes_missing_that_the_receiver_had.0>@0", "bytes_missing_that_the_receiver_had.0>@20"],
    ),
    "the_state_fell": (
        K.STATE_FELL,
        (
            f"The receiver's state fell back: after 1 message(s) of sequence {S} that it had had before, its OrderAck "
            "names their lower number. It follows the letter of 3.1.5.8.6 and may accept messages twice. The first "
            f"is number 1; the state before it was: {S} number 2."
        ),
        ["the_state_fell.0>@10", "the_state_fell.0>@20"],
    ),
    "refused_for_cause": (
        K.REFUSED_FOR_CAUSE,
        (
            f"A FinalAck says that 1 message(s) of sequence {S} were refused for cause. The first is number 1: "
            "NACK_ACCESS_DENIED."
        ),
        ["refused_for_cause.0>@0"],
    ),
    "new_messages_under_an_old_sequence": (
        K.SEQUENCE_REGRESSED,
        (
            f"1 new message(s) of sequence {S} bear a sequence or number below what the receiver had accepted: "
            "the sender was restored from a backup, or another machine has its identity. The first is number 7; "
            f"the receiver's state was: {S + 5} number 1."
        ),
        ["new_messages_under_an_old_sequence.0>@0", "new_messages_under_an_old_sequence.0>@10"],
    ),
    "message_ids_fall": (
        K.ORDINAL_REGRESSED,
        (
            f"The message IDs of sender {guid('message_ids_fall.a')} fell 1 time(s) while its clock went on, the first "
            "time from 11 to 5: it was restored from a backup, another machine has its identity, or its clock was set "
            "back."
        ),
        ["message_ids_fall.0>@10", "message_ids_fall.0>@20"],
    ),
    "never_acknowledged": (
        K.UNACKNOWLEDGED,
        (
            f"1 message(s) of sequence {S} were accepted and no OrderAck for them was captured, though the "
            "session was watched for 20.0 s after the first of them, number 2."
        ),
        ["never_acknowledged.0>@10"],
    ),
    "acknowledged_late": (
        K.SLOW_ACKNOWLEDGMENT,
        (
            f"1 message(s) of sequence {S} were acknowledged later than the timers allow, 10500 ms. The first is "
            "number 1: after 10600 ms."
        ),
        ["acknowledged_late.0>@0"],
    ),
    "the_same_answer_again_and_again": (
        K.REPEATED_ORDER_ACK,
        (
            f"The receiver sent the same OrderAck for number 1 of sequence {S} 3 times in 61 s and none for a "
            "higher number: it refuses what the sender sends above it."
        ),
        [f"the_same_answer_again_and_again.0<@{at * 1000}" for at in (1, 62)],
    ),
    "too_late_to_be_received": (
        K.EXPIRED_ON_ARRIVAL,
        (
            "1 message(s) had outlived their time when they came, and a receiver drops such. The first was sent "
            "61 s before, by its sender's clock, and its TimeToBeReceived (60 s) had run out."
        ),
        ["too_late_to_be_received.0>@0"],
    ),
    "one_identity_at_two_addresses": (
        K.TWO_ADDRESSES,
        (
            f"Queue manager {guid('one_identity_at_two_addresses.a')} is at 2 addresses at the same time "
            "(ip.one_identity_at_two_addresses.a, ip.other): two machines have one identity, or one has several "
            "networks."
        ),
        ["one_identity_at_two_addresses.0>@0", "one_identity_at_two_addresses.1>@0"],
    ),
    "no_last_message": (
        K.TORN_TRANSACTION,
        (
            f"1 transaction(s) that begin in sequence {S} are torn: the sender marked no first or no last "
            "message, and the numbers around them leave no room for one. The first has the ID 7 and 1 message(s)."
        ),
        ["no_last_message.0>@0", "no_last_message.0>@10"],
    ),
    "one_transaction_within_another": (
        K.INTERLEAVED_TRANSACTION,
        (
            f"1 transaction(s) that begin in sequence {S} are interleaved: messages of another transaction bear "
            "numbers between theirs. The first has the ID 7 and 2 message(s)."
        ),
        [f"one_transaction_within_another.0>@{offset}" for offset in (0, 20, 10)],
    ),
    "one_came_too_early": (
        K.OUT_OF_ORDER,
        (
            f"1 message(s) of sequence {S} were refused because they came out of order. The first is number 3, "
            f"which follows number 2; the receiver's state was: {S} number 1."
        ),
        ["one_came_too_early.0>@0", "one_came_too_early.0>@10"],
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_and_witness(night: dict[str, Any], name: str) -> None:
    kind, explanation, witness = WORDS[name]
    (row,) = [row for row in night[Reading.CONFORMANT][name] if row.kind == kind]
    assert row.explanation == explanation
    assert row.witness == witness


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refused_by_the_rule_yet_acknowledged", "or it had messages that no capture holds: 1 message(s)"),
        ("accepted_by_the_rule_yet_not_acknowledged", "are in order, yet an OrderAck that came 10500 ms later"),
        ("refused_by_the_rule_yet_read_from_its_queue", "or it had messages that no capture holds: 1 message(s)"),
    ],
)
def test_a_contradiction_says_which_way_it_goes(night: dict[str, Any], name: str, words: str) -> None:
    (row,) = night[Reading.CONFORMANT][name]
    assert words in row.explanation


@pytest.mark.parametrize("reading", list(Reading))
@pytest.mark.parametrize("name", READINGS)
def test_the_reading_that_explains_the_answers_does_not_depend_on_the_one_replayed(
    night: dict[str, Any], name: str, reading: Reading
) -> None:
    sender = str(guid(f"{name}.a")) if name == "the_state_fell" else f"ip.{name}.a"
    (row,) = [row for row in night[reading]["sessions"] if row.sender == sender]
    assert row.reading_explained == READINGS[name]


@pytest.mark.parametrize(
    ("name", "offset", "evidence", "final_ack_class"),
    [
        ("all_is_well", 0, "confirmed", None),
        ("bytes_missing_that_the_receiver_had", 20, "none", None),  # nobody said what it did
        ("refused_by_the_rule_yet_acknowledged", 10, "contradicted", None),
        ("refused_and_not_acknowledged", 10, "confirmed", None),
        ("accepted_by_the_rule_yet_not_acknowledged", 10, "contradicted", None),
        ("refused_by_the_rule_yet_read_from_its_queue", 10, "contradicted", MessageClass.MQMSG_CLASS_ACK_RECEIVE),
        ("read_from_its_queue", 0, "confirmed", MessageClass.MQMSG_CLASS_ACK_RECEIVE),
        ("refused_for_cause", 0, "none", MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED),
        ("another_message_was_refused_for_cause", 0, "none", None),
        ("answers_that_do_not_reach_the_sender", 10, "confirmed", None),
    ],
)
def test_evidence(night: dict[str, Any], name: str, offset: int, evidence: str, final_ack_class: int | None) -> None:
    row = night["verdicts"][f"{name}.0>", offset]
    assert (row.evidence, row.final_ack_class) == (evidence, final_ack_class)


LITERALLY: dict[str, set[FindingKind]] = {
    "all_is_well": set(),
    "refused_by_the_rule_yet_acknowledged": {K.OUT_OF_ORDER},  # the letter has the state move all the same
    "accepted_by_the_rule_yet_not_acknowledged": {K.UNACKNOWLEDGED},
    "resent_and_refused_for_ever": {K.OUT_OF_ORDER, K.RESEND_SCHEDULE},  # late: the state is there already
    "one_came_too_early": {K.OUT_OF_ORDER},
    "the_state_fell": {K.DUPLICATES, K.RESEND_SCHEDULE, K.STATE_FELL},
    "bytes_missing": {K.CAPTURE_GAP},
    "new_messages_under_an_old_sequence": {K.OUT_OF_ORDER, K.SEQUENCE_REGRESSED},
}


@pytest.mark.parametrize("name", LITERALLY)
def test_findings_under_the_literal_reading(night: dict[str, Any], name: str) -> None:
    assert {row.kind for row in night[Reading.LITERAL][name]} == LITERALLY[name]


@pytest.mark.parametrize(
    ("name", "torn", "by_sender", "interleaved"),
    [
        ("no_last_message", True, True, False),
        ("the_capture_ends_within_a_transaction", True, None, False),
        ("the_capture_begins_within_a_transaction", True, None, False),
        ("bytes_missing_within_a_transaction", True, None, False),
        ("one_transaction_within_another", False, False, True),
        ("one_transaction_after_another_of_the_same_id", False, False, False),
    ],
)
def test_transactions_torn_and_interleaved(
    night: dict[str, Any], name: str, torn: bool, by_sender: bool | None, interleaved: bool
) -> None:
    rows = [row for row in night["transactions"] if row.source_queue_manager == str(guid(f"{name}.a"))]
    flags = {(row.torn, row.torn_by_sender, row.interleaved) for row in rows}
    assert flags - {(False, False, False)} == {(torn, by_sender, interleaved)} - {(False, False, False)}


@pytest.mark.parametrize("name", COVERED)
def test_coverage(night: dict[str, Any], name: str) -> None:
    (row,) = [row for row in night[Reading.CONFORMANT]["sessions"] if row.sender == f"ip.{name}.a"]
    assert (row.byte_coverage, row.time_coverage, row.mid_stream) == pytest.approx(COVERED[name])
