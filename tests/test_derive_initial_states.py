"""The receiver's state before a scope's first message: of an OrderAck before it, or of an earlier warehouse."""

from typing import Any

import polars as pl
import pytest
from frames_of import frame_of

from schemas.replay import STATES
from udfs.derive.replay.initial_states import find_initial_states, first_messages

S = 1 << 63
"""A TxSequenceID that is 0 when it is `signed`."""
NEVER = (1 << 63) - 1
_FLOW: dict[str, Any] = {
    **dict.fromkeys(("scope_key", "stream_id", "receiver", "source_queue_manager", "replay_scope"), pl.String),
    "first_ns": pl.Int64,
    "first": pl.Struct(dict.fromkeys(("offset", "ns", "sequence"), pl.Int64)),
}
_ACK: dict[str, Any] = {
    **dict.fromkeys(("receiver", "source_queue_manager"), pl.String),
    **dict.fromkeys(("sequence", "number", "ns"), pl.Int64),
}
Rows = list[dict[str, Any]]


def flow(scope: str = "scope", ns: int | None = 100, **columns: Any) -> dict[str, Any]:
    """Returns a flow whose first message, of sequence 0, was captured at a time."""
    row = {"scope_key": scope, "stream_id": "x", "receiver": "b", "source_queue_manager": "a", "first_ns": 1}
    return row | {"replay_scope": "session", "first": {"offset": 0, "ns": ns, "sequence": 0}} | columns


def ack(ns: int, number: int, sequence: int = 0, **columns: Any) -> dict[str, Any]:
    """Returns an OrderAck."""
    return {"receiver": "b", "source_queue_manager": "a", "sequence": sequence, "number": number, "ns": ns} | columns


def left(number: int, ns: int | None = 50, *, assumed: bool = False, **columns: Any) -> dict[str, Any]:
    """Returns a row of the STATES of the previous warehouse."""
    row = {"scope_key": "scope", "tx_sequence_id": S, "tx_sequence_number": number}
    return row | {"last_captured_ns": ns, "assumed": assumed} | columns


def states(flows: Rows, acks: Rows, previous: Rows = ()) -> Rows:  # type: ignore[assignment]
    """Returns the initial states, by scope."""
    frames = pl.DataFrame(flows, schema=_FLOW), pl.DataFrame(acks, schema=_ACK), frame_of(STATES, *previous)
    return find_initial_states(*frames).sort("scope_key").rows(named=True)


def state(flows: Rows, acks: Rows, previous: Rows = ()) -> tuple[Any, ...] | None:  # type: ignore[assignment]
    """Returns sequence, number and time of the only state, and where it comes from; None without any."""
    found = states(flows, acks, previous)
    assert len(found) < 2
    return next((tuple(row.values())[1:] for row in found), None)


def test_the_last_order_ack_before_the_first_message_counts() -> None:
    acks = [ack(90, 3), ack(99, 4), ack(98, 9), ack(100, 5), ack(101, 6)]
    assert state([flow()], acks) == (0, 4, 99, False, None)
    assert state([flow()], acks[3:]) is None


def test_of_order_acks_at_one_time_the_highest_counts() -> None:
    acks = [ack(90, 7, sequence=1), ack(90, 9), ack(90, 8, sequence=1)]
    assert state([flow()], acks) == (1, 8, 90, False, None)
    assert state([flow()], acks[::-1]) == (1, 8, 90, False, None)


def test_acks_of_other_pairs_count_for_other_scopes() -> None:
    acks = [ack(90, 3, receiver="c"), ack(90, 4, source_queue_manager="d"), ack(90, 5, receiver=None)]
    assert state([flow()], acks) is None
    others = [flow("1", receiver="c"), flow("2", source_queue_manager="d")]
    assert [row["number"] for row in states([flow(), *others], acks)] == [3, 4]


def test_a_queue_has_the_state_of_its_own_sequence_only() -> None:
    acks = [ack(80, 3), ack(90, 4, sequence=5)]
    assert state([flow(replay_scope="queue")], acks) == (0, 3, 80, False, None)
    assert state([flow(replay_scope="session")], acks) == (5, 4, 90, False, None)


def test_the_first_message_of_a_scope_is_that_of_its_earliest_stream() -> None:
    later = {"offset": 7, "ns": 40, "sequence": 1}
    flows = [
        flow(ns=60, receiver="c", replay_scope="queue"),
        flow(ns=50, stream_id="y", replay_scope="queue"),
        flow(stream_id="y", first=later, replay_scope="queue"),
    ]
    firsts = first_messages(pl.DataFrame(flows, schema=_FLOW), frame_of(STATES))
    assert firsts.select("receiver", "only", "first_ns").sort("receiver").rows() == [("b", 0, 50), ("c", 0, 50)]


def test_a_stream_whose_first_message_has_no_time_goes_by_its_own() -> None:
    flows = [flow(ns=60), flow(ns=None, stream_id="y", first_ns=59)]
    assert state(flows, [ack(58, 1)]) is None
    assert state([flow(ns=60), flow(ns=None, stream_id="y", first_ns=61)], [ack(58, 1)]) == (0, 1, 58, False, None)


def test_a_state_of_several_receivers_is_the_last_one() -> None:
    flows = [flow(), flow(receiver="c")]
    assert state(flows, [ack(90, 9), ack(91, 3, receiver="c")]) == (0, 3, 91, False, None)


def test_the_higher_of_an_ack_and_what_was_left_counts() -> None:
    assert state([flow()], [ack(90, 4)], [left(5)]) == (0, 5, 50, True, None)
    assert state([flow()], [ack(90, 6)], [left(5)]) == (0, 6, 90, True, None)
    assert state([flow()], [ack(90, 5)], [left(5, assumed=True)]) == (0, 5, 90, True, None)
    assert state([flow()], [ack(90, 9)], [left(5, tx_sequence_id=S + 1)]) == (1, 5, 50, True, None)


@pytest.mark.parametrize(("ns", "counts"), [(99, True), (100, False), (None, False)])
def test_only_a_state_older_than_the_first_message_counts(ns: int | None, counts: bool) -> None:
    assert state([flow()], [], [left(5, ns)]) == ((0, 5, ns, True, None) if counts else None)
    assert state([flow(ns=None)], [], [left(5, ns)]) is None


def test_an_assumed_state_stays_so_until_an_order_ack_covers_it() -> None:
    assumed = [left(5, assumed=True)]
    assert state([flow()], [], assumed) == (0, 5, 50, True, NEVER)
    acks = [ack(300, 4), ack(230, 6), ack(220, 7), ack(210, 9, sequence=1), ack(205, 9, receiver="c")]
    assert state([flow()], acks, assumed) == (0, 5, 50, True, 220)
    assert state([flow(), flow(receiver="c")], [*acks, ack(200, 5, receiver="c")], assumed) == (0, 5, 50, True, 200)


def test_scopes_of_one_pair_have_their_own_states() -> None:
    previous = [left(3, scope_key="1"), left(5, scope_key="2", assumed=True), left(5, scope_key="other")]
    found = states([flow("1"), flow("2"), flow("3")], [ack(200, 5)], previous)
    assert [(row["scope_key"], row["number"], row["assumed_until"]) for row in found] == [("1", 3, None), ("2", 5, 200)]


def test_nothing_is_known_of_nothing() -> None:
    assert states([], [ack(1, 1)], [left(1)]) == []
    found = find_initial_states(pl.DataFrame(schema=_FLOW), pl.DataFrame(schema=_ACK), frame_of(STATES))
    assert dict(found.schema) == {
        "scope_key": pl.String,
        **dict.fromkeys(("sequence", "number", "ns"), pl.Int64),
        "resumed": pl.Boolean,
        "assumed_until": pl.Int64,
    }
