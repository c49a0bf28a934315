"""Flows of messages, and the scope of each: a sender numbers by session or by queue."""

from typing import Any

import polars as pl
import pytest
from frames_of import frame_of

from schemas.messages import MESSAGES
from schemas.replay import ENDS, Scope
from udfs.derive.replay.ends import NULL_GUID
from udfs.derive.replay.scopes import TRANSACTIONAL, find_flows, scoped_flows, select_transactional, with_flow

S1 = (1 << 63) - 1
Rows = list[dict[str, Any]]


def message(stream: str, at: int, numbers: tuple[int, int | None, int | None], **columns: Any) -> dict[str, Any]:
    """Returns a transactional message of a sequence, number and previous number."""
    sequence, number, previous = numbers
    row = {"stream_id": stream, "stream_offset": at, "captured_ns": 1000 - at, "transactional": True}
    row |= {"tx_sequence_id": sequence, "tx_sequence_number": number, "previous_tx_sequence_number": previous}
    return row | {"source_queue_manager": "source", "destination_queue": "queue"} | columns


def end(stream: str, session: str = "a->b", **columns: Any) -> dict[str, Any]:
    """Returns a row of ENDS."""
    return {"stream_id": stream, "session_id": session, "receiver_guid": "b"} | columns


def flows_of(messages: Rows, ends: Rows) -> pl.DataFrame:
    """Returns the flows of messages."""
    return find_flows(select_transactional(frame_of(MESSAGES, *messages)), frame_of(ENDS, *ends))


def scopes_of(messages: Rows, ends: Rows, scope: Scope = Scope.AUTO) -> dict[tuple[str, str | None], str]:
    """Returns the `scope_key` of each stream and queue, and looks that its first word is the `replay_scope`."""
    flows = flows_of(messages, ends).filter(~pl.col("leg_unknown")).drop("leg_unknown")
    scoped = scoped_flows(flows, select_transactional(frame_of(MESSAGES, *messages)), scope)
    assert scoped.height == flows.height
    rows = scoped.rows(named=True)
    assert all(row["scope_key"].partition(" ")[0] == row["replay_scope"] for row in rows)
    return {(row["stream_id"], row["destination_queue"]): row["scope_key"] for row in rows}


def by_queue(stream: str, **columns: Any) -> Rows:
    """Returns eight messages to two queues in turn, of which each has numbers of its own."""
    numbers = ((S1 + i % 2, i // 2 + 1, i // 2) for i in range(8))
    return [message(stream, i, of, destination_queue=f"q{i % 2}", **columns) for i, of in enumerate(numbers)]


def by_session(stream: str, **columns: Any) -> Rows:
    """Returns eight messages to two queues in turn, with one row of numbers."""
    return [message(stream, i, (S1, i + 1, i), destination_queue=f"q{i % 2}", **columns) for i in range(8)]


def test_the_replay_reads_transactional_messages_and_few_of_their_columns() -> None:
    rows = [message("x", 0, (S1, 1, 0), transactional=is_transactional) for is_transactional in (True, False, None)]
    read = select_transactional(frame_of(MESSAGES, *rows))
    assert (read.height, tuple(read.columns)) == (1, TRANSACTIONAL)
    assert {"label", "body_crc32", "queue_manager_address"} < {*TRANSACTIONAL}
    assert "tx_sequence" not in TRANSACTIONAL


def test_a_flow_has_its_count_and_the_place_of_its_first_message() -> None:
    messages = [message("x", at, (S1 + at, 1, 0)) for at in (3, 1, 2)]
    other = [message("x", 5, (S1, 1, 0), destination_queue=None), message("y", 6, ((1 << 64) - 1, 1, 0))]
    flows = flows_of(messages + other, [end("x"), end("y", "c->b")])
    found = {(row["stream_id"], row["destination_queue"]): row for row in flows.rows(named=True)}
    assert {key: (row["arrived"], row["session_id"], row["first"]) for key, row in found.items()} == {
        ("x", "queue"): (3, "a->b", {"offset": 1, "ns": 999, "sequence": 0}),
        ("x", None): (1, "a->b", {"offset": 5, "ns": 995, "sequence": -1}),
        ("y", "queue"): (1, "c->b", {"offset": 6, "ns": 994, "sequence": (1 << 63) - 1}),
    }


def test_messages_that_pass_through_have_no_flow_and_those_that_may_have_one_of_an_unknown_leg() -> None:
    addressees = {"b": False, "elsewhere": None, NULL_GUID: False, None: False}
    messages = [message("x", at, (S1, 1, 0), queue_manager_address=to) for at, to in enumerate(addressees)]
    messages += [row | {"stream_id": "unknown"} for row in messages[:3]] + [
        row | {"stream_id": "no end"} for row in messages
    ]
    flows = flows_of(messages, [end("x"), end("unknown", receiver_guid=None)])
    found = {
        (stream, to): leg
        for stream, to, leg in flows.select("stream_id", "queue_manager_address", "leg_unknown").rows()
    }
    assert found == {("x", to): leg for to, leg in addressees.items() if leg is not None} | {
        ("unknown", "b"): True,
        ("unknown", "elsewhere"): True,
        ("unknown", NULL_GUID): False,
    }


def test_a_message_finds_its_flow_and_nulls_are_equal() -> None:
    rows = [message("x", at, (S1, 1, 0), destination_queue=to) for at, to in enumerate(("queue", None, "other"))]
    messages = select_transactional(frame_of(MESSAGES, *rows))
    flows = find_flows(messages.filter(pl.col("stream_offset") < 2), frame_of(ENDS, end("x")))
    found = with_flow(messages, flows, "session_id")
    assert sorted(found.select("stream_offset", "session_id").rows()) == [(0, "a->b"), (1, "a->b")]
    assert found.columns == [*messages.columns, "session_id"]


@pytest.mark.parametrize(
    ("scope", "key"), [(Scope.SESSION, "session a->b source"), (Scope.QUEUE, "queue source queue")]
)
def test_a_fixed_scope_names_the_original_sender(scope: Scope, key: str) -> None:
    assert scopes_of([message("x", 0, (S1, 1, 0))], [end("x")], scope) == {("x", "queue"): key}


def test_a_queue_without_a_name_has_a_scope() -> None:
    assert scopes_of([message("x", 0, (S1, 1, 0), destination_queue=None)], [end("x")]) == {("x", None): "queue source"}


def test_auto_takes_the_scope_under_which_predecessors_are_found() -> None:
    messages = by_queue("x") + by_session("y", source_queue_manager="other")
    assert scopes_of(messages, [end("x"), end("y")]) == {
        ("x", "q0"): "queue source q0",
        ("x", "q1"): "queue source q1",
        ("y", "q0"): "session a->b other",
        ("y", "q1"): "session a->b other",
    }


def test_auto_takes_a_scope_for_each_session() -> None:
    later = [row | {"tx_sequence_id": S1 + 9} for row in by_session("y")]
    messages = [*by_queue("x"), *later, message("z", 0, (S1, 9, 8))]
    assert {*scopes_of(messages, [end("x"), end("y", "a->c"), end("z", "a->d")]).items()} == {
        (("x", "q0"), "queue source q0"),
        (("x", "q1"), "queue source q1"),
        (("y", "q0"), "session a->c source"),
        (("y", "q1"), "session a->c source"),
        (("z", "queue"), "queue source queue"),
    }


def test_a_predecessor_in_the_queue_counts_on_any_session_and_at_any_time() -> None:
    """Message 3 finds 2 on its session, and 2 finds 1 in its queue alone: as many, so `queue`."""
    messages = [
        message("x", 0, (S1, 2, 1), destination_queue="q0"),
        message("x", 1, (S1, 3, 2), destination_queue="q1"),
        message("y", 2, (S1, 1, 0), destination_queue="q0"),
    ]
    ends = [end("x"), end("y", "a->c")]
    assert scopes_of(messages, ends)["x", "q0"] == "queue source q0"
    assert scopes_of(messages[:2], ends)["x", "q0"] == "session a->b source"


@pytest.mark.parametrize("missing", [0, None])
def test_a_number_that_is_none_is_no_predecessor(missing: int | None) -> None:
    numbers = ((S1, missing, missing), (S1, 1, missing), (S1, missing, missing), (S1, 2, missing))
    messages = [message("x", at, of, destination_queue=f"q{at % 2}") for at, of in enumerate(numbers)]
    assert {*scopes_of(messages, [end("x")]).values()} == {"queue source q0", "queue source q1"}


def test_messages_that_are_not_judged_have_no_say() -> None:
    """Of those alone, more would find their predecessor by session."""
    routed = [row | {"queue_manager_address": "elsewhere"} for row in by_session("x")]
    messages = [*routed, message("x", 20, (7, 2, 1)), message("x", 21, (8, 2, 1), destination_queue="q1")]
    assert {*scopes_of(messages, [end("x")]).values()} == {"queue source queue", "queue source q1"}


@pytest.mark.parametrize("scope", Scope)
def test_without_messages_there_are_no_scopes(scope: Scope) -> None:
    assert scopes_of([], [], scope) == {}
