"""A state holds no bodies, and the packets are those of a run that was never interrupted."""

import json
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from random_packets import any_packet, damaged, user_message
from test_framing import hostile_stream, with_gaps

from udfs.msmq import framing, stream_window, without_bodies
from udfs.msmq.framing import FramedPackets, Framer
from udfs.msmq.packet_rows import packet_columns
from udfs.tcp import resume

Found = tuple[list[tuple[Any, ...]], list[tuple[int, int, str]]]


def continued(framer: Framer) -> Framer:
    """Returns the framer that the next run makes of what this one leaves."""
    state = json.loads(json.dumps(framer.state(keep_bodies=False), default=resume._bytes), object_hook=resume._object)
    return Framer.resume(state, raw_kept=0)


def framed(runs: Iterable[tuple[int, bytes]], rng: random.Random, *, mid_stream: bool, interrupted: bool) -> Found:
    """Returns the rows of the packets, and what is unframed; `interrupted`: another run continues after any part."""
    framer = Framer(mid_stream=mid_stream, raw_kept=0)
    packets: list[tuple[Any, ...]] = []
    unframed: list[tuple[int, int, str]] = []

    def collect(parts: Iterable[FramedPackets]) -> None:
        for part in parts:
            unframed.extend((run.offset, run.length, run.reason) for run in part.unframed)
            if part.starts:
                start, size = np.array(part.starts), np.array(part.sizes)
                buffer = np.frombuffer(part.data, np.uint8)
                columns = packet_columns(buffer, start, size, keep_bodies=False, dropped=part.dropped)
                rows = zip(*(columns[name].to_pylist() for name in columns), strict=True)
                packets.extend((part.base + at, *row) for at, row in zip(part.starts, rows, strict=True))

    for start, data in runs:
        if start > framer.end:
            collect(framer.gap(start - framer.end))
        at = 0
        while at < len(data):
            size = rng.randrange(1, 200)
            collect(framer.feed(data[at : at + size]))
            at += size
            if interrupted and rng.random() < 0.5:
                collect([framer.frame_decided()])
                framer = continued(framer)
    collect(framer.frame_rest())
    return packets, unframed


def stream_of(rng: random.Random) -> bytes:
    """Returns packets of all kinds, damaged ones, packets in bodies, TLS records, and garbage."""
    parts = []
    for _ in range(rng.randrange(1, 7)):
        kind = rng.random()
        if kind < 0.5:
            parts.append(any_packet(rng))
        elif kind < 0.65:
            parts.append(damaged(rng, any_packet(rng)))
        elif kind < 0.75:
            parts.append(user_message(rng, ["tx"])[: rng.randrange(20, 300)])
        elif kind < 0.85:
            parts.append(hostile_stream(rng))
        else:
            parts.append(bytes([rng.choice([20, 23]), 3, rng.randrange(6), 0, rng.randrange(256)]) * rng.randrange(1, 9))
    return b"".join(parts)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_packets_are_those_of_one_run(seed: int, windowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where packets have at most 400 bytes, so that bytes are decided while others are awaited."""
    if windowed:
        monkeypatch.setattr(stream_window, "LARGEST_PACKET", 400)
        monkeypatch.setattr(stream_window, "LOOKAHEAD", 2 * (400 + 16) + 16)
        monkeypatch.setattr(framing, "_WINDOW", 500)
    monkeypatch.setattr(without_bodies, "_FIRST_BYTES", 64)
    rng = random.Random(seed)
    for number in range(400):
        data = b"".join(stream_of(rng) for _ in range(1 + 2 * windowed))
        runs = with_gaps(rng, data) if rng.random() < 0.5 else [(0, data)]
        mid_stream = rng.random() < 0.3
        expected = framed(runs, rng, mid_stream=mid_stream, interrupted=False)
        assert framed(runs, rng, mid_stream=mid_stream, interrupted=True) == expected, (number, mid_stream, runs)
