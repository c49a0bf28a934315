"""The queue managers at the ends of each stream, by handshakes here, on other connections, and in an earlier night."""

from typing import Any

import pytest
from table_frames import rows_of

from schemas.ingest import STREAMS
from schemas.messages import HANDSHAKES
from schemas.replay import ENDS
from udfs.derive.frames import to_arrow
from udfs.derive.replay.ends import NULL_GUID, find_ends

A, B, C, D = (f"{digit * 8}-1234-5678-9abc-def012345678" for digit in "abcd")
PORTS = "10.0.0.1:50000>10.0.0.2:1801"
Rows = list[dict[str, Any]]


def connection(name: str, client: str, server: str, **columns: Any) -> Rows:
    """Returns the two streams of a connection between two addresses."""
    row = {"connection_id": name, "recovered_bytes": 1, "missing_bytes": 0, "mid_stream": False} | columns
    return [
        row | {"stream_id": f"{name}>", "src_ip": client, "dst_ip": server, "from_initiator": True},
        row | {"stream_id": f"{name}<", "src_ip": server, "dst_ip": client, "from_initiator": False},
    ]


def handshake(name: str, client: str | None, server: str | None, response: str | None = None) -> Rows:
    """Returns the request and the response of a connection."""
    guids = {"client_guid": client, "server_guid": server}
    request = guids | {"stream_id": f"{name}>"}
    return [request, guids | {"stream_id": f"{name}<", "server_guid": response or server}]


def ends_of(streams: Rows, handshakes: Rows, previous: Rows | None = None) -> dict[str, dict[str, Any]]:
    """Returns ENDS by stream, after the table's own schema accepted them."""
    frames = rows_of(STREAMS, *streams), rows_of(HANDSHAKES, *handshakes), rows_of(ENDS, *previous or [])
    ends = find_ends(*frames)
    return {row["stream_id"]: row for row in to_arrow(ends.select(ENDS.names)).cast(ENDS.arrow).to_pylist()}


def test_without_knowing_who_opened_a_connection_guids_have_no_side() -> None:
    streams = [row | {"from_initiator": None} for row in connection("x", "1", "2")]
    ends = ends_of(streams, handshake("x", A, B))
    assert {row["session_id"] for row in ends.values()} == {"1->2", "2->1"}


def known(**columns: Any) -> Rows:
    """Returns rows of ENDS of the last stream between these ports, and of one before it."""
    row: dict[str, Any] = {"stream_id": f"{PORTS}#3", "sender_guid": A, "receiver_guid": B, "address": "1"}
    row |= {"last_ns": 20} | columns
    return [row, row | {"stream_id": f"{row['stream_id'][:-1]}2", "sender_guid": D, "last_ns": 10}]


def in_mid_stream(**columns: Any) -> Rows:
    """Returns a later stream between the ports of `known`."""
    way, _ = connection("x", "1", "2", mid_stream=True)
    return [way | {"stream_id": f"{PORTS}#7"} | columns]


@pytest.mark.parametrize(
    ("columns", "end", "session"),
    [
        ({}, {}, f"{A}->{B}"),
        ({"mid_stream": False}, {}, "1->2"),
        ({}, {"sender_guid": None, "receiver_guid": None}, "1->2"),
        ({}, {"stream_id": "10.0.0.1:50001>10.0.0.2:1801#3"}, "1->2"),
        ({}, {"last_ns": None}, f"{D}->{B}"),
        ({"from_initiator": False}, {}, f"{A}->{B}"),
    ],
)
def test_only_a_connection_between_the_same_ports_names_one_in_mid_stream(
    columns: dict[str, Any], end: dict[str, Any], session: str
) -> None:
    ends = ends_of(in_mid_stream(**columns), [], known(**end))
    assert ends[f"{PORTS}#7"]["session_id"] == session


def test_an_earlier_connection_without_times_names_none() -> None:
    ends = ends_of(in_mid_stream(), [], known(last_ns=None)[:1])
    assert ends[f"{PORTS}#7"]["session_id"] == "1->2"


def test_a_handshake_of_its_own_goes_before_the_earlier_night() -> None:
    streams = in_mid_stream()
    ends = ends_of(streams, [{"stream_id": f"{PORTS}#7", "client_guid": C, "server_guid": NULL_GUID}], known())
    assert ends[f"{PORTS}#7"]["session_id"] == f"{C}->2"


def test_an_address_named_here_does_not_have_the_guid_of_the_earlier_night() -> None:
    streams = [*connection("x", "9", "1"), *connection("y", "1", "8")]
    before = [{"stream_id": "old#0", "sender_guid": D, "address": "1", "last_ns": 1}]
    assert ends_of(streams, [], before)["x>"]["receiver_by_address"] == D
    assert ends_of(streams, handshake("y", A, B), before)["x>"]["receiver_by_address"] == A
