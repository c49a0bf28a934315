"""Serializes a connection's state so that the next run can resume it."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from udfs.tcp.connections import Connection, Connections
from udfs.tcp.direction import Direction

_VERSION = 4
_PLAIN = (
    *("isn", "low", "first", "end", "sent", "held", "fin", "fixed", "done", "gaps", "conflict"),
    *("acked", "acked_low", "acked_ns"),
    *("last_ns", "shut_ns", "shut_longest_ns", "shut_longest_from_ns"),
)
_UNUSED = Direction()


def dump(connections: Connections, streams: Mapping[tuple[int, bool], Any]) -> str:
    """Returns the recent connections and the states of their streams as JSON; all their segments were delivered.

    `streams`: the state of each stream, of JSON types and bytes, by instance and direction (sent by b).
    """
    recent = connections.recent()
    current = next((at for at, one in enumerate(recent) if one is connections.current), None)
    return json.dumps(
        {
            "version": _VERSION,
            "current": current,
            "connections": [_connection(one, streams) for one in recent],
        },
        default=_bytes,
        separators=(",", ":"),
    )


def load(text: str, connections: Connections) -> dict[tuple[int, bool], Any]:
    """Restores the connections from this text; returns the states of their streams.

    Raises:
        ValueError: the text has another format version.
    """
    state = json.loads(text, object_hook=_object)
    if state["version"] != _VERSION:
        raise ValueError(f"connection state of version {state['version']} cannot be read: {_VERSION} is needed")
    restored: list[Connection] = []
    streams: dict[tuple[int, bool], Any] = {}
    for row in state["connections"]:
        connection = Connection(row["instance"], connections.window)
        connection.closed, connection.opened_by_b = row["closed"], row["opened_by_b"]
        connection.first_ns, connection.last_ns = row["first_ns"], row["last_ns"]
        connection.ended_by_b, connection.ended_ns = row["ended_by_b"], row["ended_ns"]
        connection.syns = [(from_b, seq, ack) for from_b, seq, ack in row["syns"]]
        sides = [
            Direction(**side | {"gaps": [(at, size) for at, size in side.get("gaps", ())]}) for side in row["sides"]
        ]
        connection.sides = sides[0], sides[1]
        restored.append(connection)
        streams |= {
            (connection.instance, bool(at)): stream for at, stream in enumerate(row["streams"]) if stream is not None
        }
    connections.restore(restored, state["current"])
    return streams


def _connection(one: Connection, streams: Mapping[tuple[int, bool], Any]) -> dict[str, Any]:
    return {
        "instance": one.instance,
        "closed": one.closed,
        "opened_by_b": one.opened_by_b,
        "first_ns": one.first_ns,
        "last_ns": one.last_ns,
        "ended_by_b": one.ended_by_b,
        "ended_ns": one.ended_ns,
        "syns": one.syns,
        "sides": [_side(side) for side in one.sides],
        "streams": [streams.get((one.instance, from_b)) for from_b in (False, True)],
    }


def _side(side: Direction) -> dict[str, Any]:
    """Returns what is other than at the beginning: a scan leaves many connections of which one segment is known."""
    values = ((name, getattr(side, name)) for name in _PLAIN)
    return {name: value for name, value in values if value != getattr(_UNUSED, name)}


def _bytes(value: bytes | memoryview) -> dict[str, str]:
    return {"base64": b64encode(value).decode()}


def _object(value: dict[str, Any]) -> Any:
    return b64decode(value["base64"]) if set(value) == {"base64"} else value
