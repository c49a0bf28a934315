"""Scopes, streams, acknowledgments and unknown legs are paired only with what belongs to them."""

from typing import Any

import polars as pl
import pytest
from table_frames import rows_of

from schemas.judging import RESUMED
from schemas.replay import ENDS
from udfs.derive.frames import to_frame
from udfs.derive.replay import marks as module
from udfs.derive.replay.acks import acknowledged, crowded
from udfs.derive.replay.marks import doubtful_scopes, number_streams, scopes_of_legs
from udfs.derive.replay.scopes import FLOW_KEY

_FLOW: dict[str, Any] = {
    **dict.fromkeys((*FLOW_KEY, "session_id", "receiver", "replay_scope", "scope_key"), pl.String),
    "arrived": pl.Int64,
    "first_ns": pl.Int64,
    "doubtful": pl.Boolean,
}
_UNREAD: dict[str, Any] = {"stream_id": pl.String, "stream_offset": pl.Int64, "length": pl.Int64}


def flow(stream: str = "x", scope: str = "s", **columns: Any) -> dict[str, Any]:
    """Returns a flow from a to the queue q of b."""
    row: dict[str, Any] = dict(zip(FLOW_KEY, (stream, "a", None, "q"), strict=True))
    row |= {"session_id": "a->b", "receiver": "b", "replay_scope": "queue", "scope_key": scope, "arrived": 1}
    return row | {"first_ns": 1, "doubtful": None} | columns


def flows_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Returns flows as a frame."""
    return pl.DataFrame(rows, schema=_FLOW)


def unread_of(*ranges: tuple[str, int]) -> pl.DataFrame:
    """Returns unread ranges, each from an offset of a stream on."""
    rows = [{"stream_id": stream, "stream_offset": at, "length": 1} for stream, at in ranges]
    return pl.DataFrame(rows, schema=_UNREAD)


def ends_of(*streams: str, session: str = "a->b") -> pl.DataFrame:
    """Returns the ends of streams of a session; the first one began first."""
    rows = [{"stream_id": name, "session_id": session, "first_ns": 10 + i} for i, name in enumerate(streams)]
    return rows_of(ENDS, *rows)


def numbered(flows: list[dict[str, Any]]) -> pl.DataFrame:
    """The streams of these flows, all of which are judged."""
    rows = flows_of(flows)
    return number_streams(rows, unread_of(), ends_of(), to_frame(RESUMED.empty_table()), rows)


@pytest.mark.parametrize("columns", [{"scope_key": "t"}, {"receiver": "c"}, {"source_queue_manager": "z"}])
def test_two_scopes_or_pairs_with_one_hash_are_not_mixed(
    monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any]
) -> None:
    monkeypatch.setattr(module, "number_of", lambda *_: pl.lit(1, pl.Int64))
    assert numbered([flow(), flow("y")]).height == 2
    with pytest.raises(ValueError, match=r"^Two scopes or pairs have the same hash; one is [st]$"):
        numbered([flow(), flow("y") | columns])


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


def test_a_message_on_an_unknown_leg_may_belong_to_each_scope_of_its_queue_and_to_its_session() -> None:
    flows = [
        flow("x", "queue"),
        flow("x", "other queue", destination_queue="r"),
        flow("x", "session", replay_scope="session", destination_queue="r"),
        flow("x", "other address", replay_scope="session", queue_manager_address="c"),
        flow("x", "other sender", source_queue_manager="z"),
        flow("x", "doubtful", doubtful=True),
    ]
    streams = numbered(flows)
    found = scopes_of_legs(flows_of([flow("leg")]), streams, flows_of(flows)).join(streams, on="scope_no")
    assert sorted(found["scope_key"]) == ["queue", "session"]


def test_an_acknowledgment_is_one_for_its_pair_however_many_streams_it_has() -> None:
    streams = numbered([flow("x"), flow("y"), flow("z", receiver="c")])
    given = {"receiver": "b", "source_queue_manager": "a", "sequence": 0, "number": 1, "ns": 5}
    acks = pl.DataFrame([given | {"message_class": None, "message_no": None}])
    assert acknowledged(acks, streams).height == 1


def test_a_session_of_more_than_sixteen_senders_is_crowded() -> None:
    senders = [flow(source_queue_manager=f"{i}") for i in range(17)]
    assert crowded(flows_of([*senders[1:], *senders[1:]])).is_empty()
    assert crowded(flows_of(senders)).height == 17
