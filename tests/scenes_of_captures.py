"""Scenes of how traffic was captured: at both ends, by clocks that differ, on legs of routers."""

from random import Random

from replay_tables import NULL, T0, Tables

SECOND = 1_000_000_000
A, B, ROUTER, SOURCE = (f"00000000-0000-0000-0000-00000000000{n}" for n in range(1, 5))
LEGS: dict[str, tuple[list[str], int, int]] = {
    "10.0.1.1": ([], 0, 1),
    "10.0.1.2": ([B], 0, 0),
    "10.0.1.3": ([ROUTER], 1, 0),
    "10.0.1.4": ([B, ROUTER], 0, 1),
}
"""The queue managers that handshakes name at an address; how many messages for B pass through it, or may do so."""


def add_legs(tables: Tables) -> None:
    """Adds connections without a handshake: one message names its queue manager, and one has a direct format name."""
    for address, (elsewhere, *_) in LEGS.items():
        tables.stream(f"{address}>", "10.0.1.9", address)
        for at, source, named in ((1, f"{SOURCE} {address}", B), (2, f"{A} {address}", NULL)):
            tables.message((f"{address}>", at), T0 + at, (1, 1, 0), source_queue_manager=source)
            tables.rows["messages"][-1] |= {"queue_manager_address": named, "message_id": f"{source}\\1"}
        for number, server in enumerate(elsewhere, 1):
            tables.stream(f"{address} {number}>", "10.0.1.8", address)
            tables.stream(f"{address} {number}<", address, "10.0.1.8")
            tables.handshake(f"{address} {number}", "elsewhere", server)


def add_captures_of_both_ends(tables: Tables) -> None:
    """Adds one conversation of five messages, of which each end lacks some; the near end's clock is 7 s ahead."""
    for end, host, late, lacking, length in (
        ("far", "10.0.0.1", 0, (3,), 100),
        ("near", "192.168.0.1", 7, (2, 4), 200),
    ):
        begun = {
            "first_captured_at": T0 // 1000 + late * 1_000_000,
            "missing_bytes": length,
            "recovered_bytes": 500 - length,
        }
        tables.stream(f"{end}>", host, "10.0.0.9", initial_seq=77, **begun)
        tables.stream(f"{end}<", "10.0.0.9", host, initial_seq=88, **begun | {"missing_bytes": 0})
        tables.handshake(end, A, B)
        for row in tables.rows["handshakes"][-2:]:
            row["time_stamp_ms"] = 5
        for at in range(5):
            if at in lacking:
                gap = {"stream_id": f"{end}>", "stream_offset": 100 * at, "length": 100}
                tables.rows["stream_gaps"].append(gap)
            else:
                ns = T0 + (at + late) * SECOND
                key = f"{end}>", 100 * at
                tables.message(key, ns, (1, at + 1, at), source_queue_manager=SOURCE, capture_id=end)


def add_connections_of_one_end(tables: Tables) -> None:
    """Adds a sender with messages on eight connections, in any order, each of which only one end shows."""
    rng = Random(4)
    ends = [rng.choice(["near", "far"]) for _ in range(8)]
    for connection in range(8):
        tables.stream(f"any {connection}>", "10.0.4.7", "10.0.4.9")
        tables.stream(f"any {connection}<", "10.0.4.9", "10.0.4.7")
        tables.handshake(f"any {connection}", "any", B)
    second = 0
    for number in range(1, 300):
        second += rng.choice([0, 1, 1, 30])
        connection = rng.randrange(8)
        at = T0 + (second + 7 * (ends[connection] == "near")) * SECOND
        columns = {"source_queue_manager": "any", "message_id": f"any\\{number}", "capture_id": ends[connection]}
        tables.message((f"any {connection}>", 100 * number), at, (1, number, number - 1), **columns)


def add_all(tables: Tables) -> None:
    """Adds all scenes."""
    add_legs(tables)
    add_captures_of_both_ends(tables)
    add_connections_of_one_end(tables)
