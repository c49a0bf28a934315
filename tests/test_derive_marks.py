"""What stands on the streams of each scope: messages, and places where a message may be missing."""

from typing import Any

import polars as pl
import pytest
from frames_of import frame_of

from schemas.judging import MARK
from schemas.messages import MESSAGES
from schemas.replay import ENDS
from udfs.derive.replay import marks as module
from udfs.derive.replay.acks import message_number
from udfs.derive.replay.marks import (
    doubtful_scopes,
    initial_marks,
    marks,
    number_streams,
    scopes_of_legs,
    with_stream_number,
)
from udfs.derive.replay.scopes import FLOW_KEY, TRANSACTIONAL
from udfs.replay.timeline import STREAM_END

S = 1 << 63
"""A TxSequenceID that is 0 when it is `signed`."""
_FLOW: dict[str, Any] = {
    **dict.fromkeys((*FLOW_KEY, "session_id", "receiver", "replay_scope", "scope_key"), pl.String),
    "arrived": pl.Int64,
    "first_ns": pl.Int64,
    "mid_stream": pl.Boolean,
    "doubtful": pl.Boolean,
}
_UNREAD: dict[str, Any] = {"stream_id": pl.String, "stream_offset": pl.Int64, "length": pl.Int64}
_PLACE: dict[str, Any] = {"source_queue_manager": pl.String, "stream_id": pl.String, "stream_offset": pl.Int64}
_INITIAL: dict[str, Any] = {
    "scope_key": pl.String,
    **dict.fromkeys(("sequence", "number", "ns"), pl.Int64),
    "resumed": pl.Boolean,
    "assumed_until": pl.Int64,
}
Rows = list[dict[str, Any]]


def flow(stream: str = "x", scope: str = "s", **columns: Any) -> dict[str, Any]:
    """Returns a flow from a to the queue q of b."""
    row: dict[str, Any] = dict(zip(FLOW_KEY, (stream, "a", None, "q"), strict=True))
    row |= {"session_id": "a->b", "receiver": "b", "replay_scope": "queue", "scope_key": scope, "arrived": 1}
    return row | {"first_ns": 1, "mid_stream": False, "doubtful": None} | columns


def message(at: int, stream: str = "x", **columns: Any) -> dict[str, Any]:
    """Returns a message of the flow with the stream's name."""
    row = {name: flow(stream)[name] for name in FLOW_KEY} | {"stream_offset": at, "captured_ns": at + 1_000}
    row |= {"tx_sequence_id": S, "tx_sequence_number": at, "previous_tx_sequence_number": 0, "message_id": f"a\\{at}"}
    return row | columns


def flows_of(rows: Rows) -> pl.DataFrame:
    """Returns flows as a frame."""
    return pl.DataFrame(rows, schema=_FLOW)


def unread_of(*ranges: tuple[str, int]) -> pl.DataFrame:
    """Returns unread ranges, each from an offset of a stream on."""
    rows = [{"stream_id": stream, "stream_offset": at, "length": 1} for stream, at in ranges]
    return pl.DataFrame(rows, schema=_UNREAD)


def ends_of(*streams: str, session: str = "a->b") -> pl.DataFrame:
    """Returns the ends of streams of a session; the first one began first."""
    rows = [{"stream_id": name, "session_id": session, "first_ns": 10 + i} for i, name in enumerate(streams)]
    return frame_of(ENDS, *rows)


def marks_of(
    messages: Rows,
    flows: Rows,
    *ranges: tuple[str, int],
    silent: tuple[str, ...] = (),
    legs: Rows | None = None,
    disputed: Rows | None = None,
) -> pl.DataFrame:
    """Returns rows of MARK, by scope, stream and offset, with the `scope_key` in place of the `scope_no`."""
    unread = unread_of(*ranges)
    streams = number_streams(flows_of(flows), unread, ends_of(*silent))
    rows = frame_of(MESSAGES, *messages).select(TRANSACTIONAL)
    of_legs = scopes_of_legs(flows_of(legs or []), streams)
    found = marks(rows, unread, streams, of_legs, pl.DataFrame(disputed or [], schema=_PLACE))
    assert found.columns == MARK.names
    names = streams.select("scope_no", "scope_key").unique()
    return found.join(names, on="scope_no", how="left").sort("scope_key", "stream_no", "stream_offset", "missing")


def missing(found: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Returns offset and count of the marks that are no messages."""
    return found.filter(pl.col("number").is_null()).select(*columns, "stream_offset", "missing").rows()


def test_a_message_is_a_mark() -> None:
    found = marks_of([message(5), message(9, captured_ns=None)], [flow(first_ns=77, mid_stream=True)])
    columns = [name for name in MARK.names if name not in {"scope_no", "pair_no", "message_no"}]
    assert found.select(columns).rows() == [
        (1, 5, 1_005, 1_005, True, 0, 5, 0, 0, None),
        (1, 9, 77, None, True, 0, 9, 0, 0, None),
    ]
    ids = pl.DataFrame({"acknowledged": ["a\\5", "a\\9"]}).select(message_number("acknowledged"))
    assert found["message_no"].to_list() == ids.to_series().to_list()
    assert found["pair_no"].null_count() == 0


def test_messages_of_other_flows_do_not_count() -> None:
    assert marks_of([message(5, stream="y"), message(5, destination_queue=None)], [flow()]).is_empty()
    assert marks_of([message(5, destination_queue=None)], [flow(destination_queue=None)]).height == 1


def test_streams_of_a_scope_are_numbered_by_the_time_they_began() -> None:
    flows = [
        flow("z", first_ns=2),
        flow("y", first_ns=2),
        flow("y", first_ns=2, destination_queue="other"),
        flow("x", first_ns=3),
        flow("w", first_ns=None),
        flow("x", "t", first_ns=3),
    ]
    found = number_streams(flows_of(flows), unread_of(), ends_of())
    numbers = found.select("scope_key", "stream_no", "stream_id").unique().sort("scope_key", "stream_no").rows()
    assert numbers == [("s", 1, "w"), ("s", 2, "y"), ("s", 3, "z"), ("s", 4, "x"), ("t", 1, "x")]
    assert found.height == len(flows)
    assert found["pair_no"].n_unique() == 1


def test_a_broken_stream_counts_for_each_scope_of_its_session_but_for_doubtful_ones() -> None:
    flows = [flow("x"), flow("x", "t"), flow("x", "u", doubtful=True), flow("x", "v", session_id="other")]
    found = number_streams(flows_of(flows), unread_of(("y", 1), ("y", 2)), ends_of("x", "y"))
    silent = found.filter(~pl.col("has_messages")).sort("scope_key")
    assert silent.select("scope_key", "stream_id", "stream_no", "first_ns", "receiver").rows() == [
        ("s", "y", 2, 11, None),
        ("t", "y", 2, 11, None),
    ]
    assert found["has_messages"].sum() == len(flows)


@pytest.mark.parametrize("columns", [{"scope_key": "t"}, {"receiver": "c"}, {"source_queue_manager": "z"}])
def test_two_scopes_or_pairs_with_one_hash_are_not_mixed(
    monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "number_of", lambda *_: pl.lit(1, pl.Int64))
    assert number_streams(flows_of([flow(), flow("y")]), unread_of(), ends_of()).height == 2
    with pytest.raises(ValueError, match=r"^Two scopes or pairs have the same hash; one is [st]$"):
        number_streams(flows_of([flow(), flow("y") | columns]), unread_of(), ends_of())


def test_messages_have_the_number_and_facts_of_their_stream() -> None:
    streams = number_streams(flows_of([flow("x", "s"), flow("y", "t")]), unread_of(("z", 1)), ends_of("z"))
    found = with_stream_number(frame_of(MESSAGES, message(1), message(2, "y"), message(3, "z")), streams)
    assert found.sort("stream_offset").select("stream_offset", "scope_key", "stream_no").rows() == [
        (1, "s", 1),
        (2, "t", 1),
    ]
    assert {"pair_no", "first_ns", "mid_stream", "session_id", "doubtful", "message_id"} <= set(found.columns)


def test_unread_ranges_between_two_messages_of_a_scope_are_one_row() -> None:
    ranges = [("x", at) for at in (2, 4, 6, 14, 22, 24)]
    messages, flows = [message(10), message(20), message(30)], [flow(), flow(destination_queue="r")]
    messages[2]["destination_queue"] = "r"
    found = marks_of(messages, flows, *ranges)
    assert missing(found) == [(6, 3), (14, 1), (24, 2), (STREAM_END, 0)]


def test_unread_ranges_count_for_each_scope_of_their_stream() -> None:
    both = [flow(), flow(scope="t", destination_queue="r"), flow("y", "u")]
    messages = [message(10), message(20, destination_queue="r"), message(20, destination_queue="r"), message(5, "y")]
    found = marks_of(messages, both, ("x", 2), ("x", 15), ("z", 1))
    assert missing(found, "scope_key") == [
        ("s", 2, 1),
        ("s", 15, 1),
        ("s", STREAM_END, 0),
        ("t", 15, 2),
        ("t", STREAM_END, 0),
    ]


def test_a_range_where_a_message_begins_comes_before_it() -> None:
    assert missing(marks_of([message(10), message(11)], [flow()], ("x", 10), ("x", 10))) == [(10, 2), (STREAM_END, 0)]


def test_a_broken_stream_without_messages_of_the_scope_counts_when_it_began() -> None:
    found = marks_of([message(10)], [flow(first_ns=9)], ("y", 1), ("y", 7), silent=("y",))
    assert missing(found, "stream_no", "at_ns") == [(2, 10, STREAM_END, 2)]


def test_messages_of_doubtful_scopes_have_a_range_before_them() -> None:
    found = marks_of([message(10), message(20), message(5, "y")], [flow(doubtful=True), flow("y", "t")])
    assert missing(found, "scope_key") == [("s", 9, 1), ("s", 19, 1)]


def test_disputed_messages_have_a_range_before_them() -> None:
    there = {"source_queue_manager": "a", "stream_id": "x", "stream_offset": 20}
    disputed = [there, there | {"stream_offset": 10, "source_queue_manager": "z"}, there | {"stream_offset": 11}]
    assert missing(marks_of([message(10), message(20)], [flow()], disputed=disputed)) == [(19, 1)]


def test_a_message_on_an_unknown_leg_may_belong_to_each_scope_of_its_queue_and_to_its_session() -> None:
    flows = [
        flow("x", "queue"),
        flow("y", "queue"),
        flow("x", "other queue", destination_queue="r"),
        flow("x", "session", replay_scope="session", destination_queue="r"),
        flow("x", "other address", replay_scope="session", queue_manager_address="c"),
        flow("x", "other sender", source_queue_manager="z"),
        flow("x", "doubtful", doubtful=True),
    ]
    messages = [message(1, "leg"), message(2, "leg", captured_ns=None), message(3, "leg", destination_queue="r")]
    found = marks_of(messages, flows, legs=[flow("leg"), flow("unused")])
    assert found.select("scope_key", "stream_offset", "at_ns", "missing").sort("scope_key", "at_ns").rows() == [
        ("queue", STREAM_END, None, 1),
        ("queue", STREAM_END, 1_001, 1),
        ("session", STREAM_END, None, 1),
        ("session", STREAM_END, 1_001, 1),
    ]
    assert found["stream_no"].max() < 0  # type: ignore[operator]
    assert found.select("scope_key", "stream_no").is_unique().all()


def test_names_that_are_null_are_equal_on_unknown_legs() -> None:
    streams = number_streams(flows_of([flow(destination_queue=None)]), unread_of(), ends_of())
    found = scopes_of_legs(flows_of([flow("leg", destination_queue=None), flow("leg")]), streams)
    assert found.select(FLOW_KEY).rows() == [("leg", "a", None, None)]


def test_marks_of_one_stream_do_not_depend_on_others() -> None:
    y, stream = flow("y", first_ns=11), pl.col("stream_id")
    flows = flows_of([flow(first_ns=10), y, y | {"scope_key": "t", "destination_queue": "r"}])
    messages = frame_of(MESSAGES, message(10), message(10, "y"), message(20, "y", destination_queue="r"))
    unread = unread_of(("x", 5), ("y", 15), ("y", 4), ("z", 1))
    streams = number_streams(flows, unread, ends_of("x", "y", "z"))
    legs, disputed = scopes_of_legs(flows.clear(), streams), messages.select(*_PLACE)
    whole = marks(messages, unread, streams, legs, disputed)
    tables = (messages, unread, streams, legs, disputed)
    parts = pl.concat(marks(*(table.filter(stream == name) for table in tables)) for name in "xyz")
    assert sorted(parts.rows(), key=str) == sorted(whole.rows(), key=str)
    assert whole.height == 3 + 3 + 4 + 6


def test_an_initial_state_stands_on_a_stream_before_the_others() -> None:
    rows = [("s", 3, 4, 50, False, None), ("t", 3, 5, 60, True, 70)]
    found = initial_marks(pl.DataFrame(rows, schema=_INITIAL, orient="row"))
    assert found.columns == MARK.names
    assert found.drop("scope_no").rows() == [
        (0, None, 0, 50, None, None, 3, 4, None, None, 0, None),
        (0, None, 0, 60, None, False, 3, 5, None, None, 0, 70),
    ]
    streams = number_streams(flows_of([flow(scope="s"), flow("y", "t")]), unread_of(), ends_of())
    assert found["scope_no"].to_list() == streams.sort("scope_key")["scope_no"].to_list()
    assert initial_marks(pl.DataFrame(schema=_INITIAL)).schema == found.schema


def test_scopes_with_which_too_much_would_be_paired_are_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PAIRS", 3)
    flows = [flow("x", "1"), flow("y", "1"), flow("x", "2"), flow("x", "3", session_id="other")]
    flows = [row | {"queue_manager_address": "b"} for row in (*flows, flow("x", "4", replay_scope="session"))]
    ends = pl.concat([ends_of("x", "y"), ends_of("z", session="other")])

    def doubtful(ranges: pl.DataFrame, *legs: dict[str, Any]) -> list[str]:
        return sorted(doubtful_scopes(flows_of(flows), ranges, ends, flows_of(list(legs)))["scope_key"])

    assert doubtful(unread_of(("x", 1), ("x", 2))) == []
    assert doubtful(unread_of(("x", 1), ("y", 1), ("z", 1))) == ["1", "2", "4"]
    assert doubtful(unread_of(), flow("leg", arrived=2, queue_manager_address="b"), flow("leg", arrived=9)) == []
    many = [flow(stream, arrived=2, queue_manager_address="b") for stream in ("leg", "other leg")]
    assert doubtful(unread_of(), *many) == ["4"]


def test_nothing_stands_on_no_streams() -> None:
    found = marks_of([], [])
    assert found.is_empty()
    assert found.drop("scope_key").schema == marks_of([message(1)], [flow()]).drop("scope_key").schema
