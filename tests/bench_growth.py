"""By hand: `python tests/bench_growth.py --nights 30` runs equal nights into one warehouse, and says what each cost.

The traffic of one simulation is cut into captures of equal size, each a night of its own. Captures of all nights
together are past `in_memory_bytes`, those of one night are not: so a warehouse grows for months. `--endless` is the
worst case: one sequence on one connection, of which nothing is acknowledged, so that every night judges all nights.
"""

import argparse
import sys
from ipaddress import IPv4Address
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from bench_nights import BODY, BYTES_PER_MESSAGE, DISORDER, markdown
from measure import Watched, watch

from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.simulator.build import user_message
from jobs.simulator.capture import RingBuffer
from jobs.simulator.network import Endpoint, FrameBuilder

STEPS = ("Starting Spark", "ingest", "decode", "replay", "report")
_NIGHTLY = (sys.executable, "-m", "jobs.main", "nightly", "--log-format", "json")
_IN_MEMORY = 1.5  # times the size of a night
_START_S = 1_772_000_000
_PUSH_ACK = 0x18


def grow(folder: Path, nights: int, megabytes: float, *, endless: bool) -> list[Watched]:
    """Runs the nights, one after the other, each in a process of its own, into the folder `warehouse`."""
    file_bytes = int(megabytes * 1e6)
    captures = folder / "sim"
    if endless:
        captures.mkdir()
        send_without_end(RingBuffer(captures, CAPTURE_PREFIX, file_bytes), nights * file_bytes)
    else:
        messages = int(nights * file_bytes / BYTES_PER_MESSAGE * 1.15)
        simulate(str(captures), 1, messages, bodies=(BODY, BODY), disorder=DISORDER, file_bytes=file_bytes)
    files = sorted(captures.glob(f"{CAPTURE_PREFIX}_*.pcap"))[:nights]
    if len(files) < nights or files[-1].stat().st_size < file_bytes / 2:
        raise ValueError(f"The traffic fills only {len(files)} captures.")
    options = ("--in-memory-bytes", str(int(file_bytes * _IN_MEMORY)), "--warehouse", str(folder / "warehouse"))
    return [watch([*_NIGHTLY, *options, "--captures", str(file)]) for file in files]


def send_without_end(ring: RingBuffer, size: int) -> None:
    """Writes so many bytes of messages of one sequence on one connection; nothing comes back."""
    way = FrameBuilder(Endpoint(IPv4Address("10.0.0.1"), 50_000), Endpoint(IPv4Address("10.0.0.2"), 1801))
    seq, written = 0, 0
    for number in count(1):
        if written >= size:
            break
        packet = user_message(
            UUID(int=1), message_id=number, sequence=(1 << 32, number, number - 1), body=bytes(BODY), sent_time=_START_S
        )
        frame = way.frame(seq, 0, _PUSH_ACK, packet)
        ring.write((_START_S + number) * 10**9, frame)
        seq, written = (seq + len(packet)) % (1 << 32), written + len(frame) + 16
    ring.close()


def costs(nights: list[Watched]) -> str:
    """Returns a Markdown table of CPU seconds: a row a night, a column a step."""
    rows = []
    for number, found in enumerate(nights, 1):
        steps = (f"{found.steps[name].cpu_s:.1f}" if name in found.steps else "-" for name in STEPS)
        rows.append((str(number), f"{found.cost.wall_s:.1f}", f"{found.cost.cpu_s:.1f}", *steps))
    return markdown(("night", "wall s", "CPU s", *STEPS), rows)


def main() -> int:
    parser = argparse.ArgumentParser("python tests/bench_growth.py", allow_abbrev=False)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--megabytes", type=float, default=7, help="size of the capture of a night")
    parser.add_argument("--endless", action="store_true", help="one sequence without end")
    parser.add_argument("--folder", type=Path, help="an empty folder that keeps captures and warehouse")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        nights = grow(options.folder or Path(temporary), options.nights, options.megabytes, endless=options.endless)
    print(costs(nights))  # noqa: T201 - the result
    return 0


if __name__ == "__main__":
    sys.exit(main())
