"""Measures the command `replay` on generated rows: `python tests/bench_replay.py --messages 1000000 --scopes 1000`.

The warehouse is generated as `decode` leaves it, so ten million messages need no capture and no decoding. Each run is
a process of its own. CPU time is that of all its processes; memory is what each process held most, and what all held at
one time. Of scopes with several connections, the last hundredth comes in a later night.
"""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from made_rows import nights_of, write_night
from measure import Watched, watch

from jobs.cli.logs import log_as, step
from jobs.cli.spark_session import open_session

_STARTING, _COPYING, _REPLAYING = "Starting Spark", "copy", "replay"  # as logged
_HEADS = ("run", "wall s", "CPU s", "the JVM, MB", "all at one time, MB", "each Python process, MB")
_REPLAY = (sys.executable, "-m", "jobs.main", "replay")


def copy_messages(warehouse: Path) -> None:
    """Reads the messages of a warehouse and writes them back, beside the others."""
    log_as("json")
    with step(_STARTING):
        spark = open_session("messages, written back")
    with step(_COPYING):
        rows = spark.read.format("delta").load(str(warehouse / "messages"))
        rows.write.format("delta").save(str(warehouse / "messages_again"))


def measure(warehouse: Path, messages: int, scopes: int) -> list[str]:
    """Returns the cost of replays, and of reading the messages and writing them back, as lines of Markdown."""
    first, *later = nights_of(messages, scopes)
    write_night(warehouse, messages, scopes, first)
    copied = watch([sys.executable, __file__, "--copy", str(warehouse)])
    replay = (*_REPLAY, "--warehouse", str(warehouse), "--log-format", "json")
    replayed = watch(replay)
    rows = [_row("messages read and written back", copied), _row("replay", replayed)]
    for night in later:
        write_night(warehouse, messages, scopes, night)
        rows.append(_row("replay of a later night", watch(replay)))
    cpu_s, base_s = replayed.steps[_REPLAYING].cpu_s, copied.steps[_COPYING].cpu_s
    sentence = (
        f"Without starting Spark, replay takes {cpu_s:.1f} CPU s, {cpu_s / messages * 1e6:.1f} µs a message: "
        f"{cpu_s / base_s:.1f} times as much as reading the messages and writing them back ({base_s:.1f} CPU s)."
    )
    return [f"| {' | '.join(_HEADS)} |", f"| --- |{' ---: |' * (len(_HEADS) - 1)}", *rows, "", sentence]


def _row(name: str, run: Watched) -> str:
    seconds = f"{run.cost.wall_s:.1f} | {run.cost.cpu_s:.1f}"
    memory = f"{run.jvm_mb:.0f} | {run.together_mb:.0f} | {', '.join(f'{mb:.0f}' for mb in run.pythons_mb)}"
    return f"| {name} | {seconds} | {memory} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--scopes", type=int, nargs="+", default=[1, 1_000, 100_000])
    parser.add_argument("--heap", default="4g", help="of the JVM")
    parser.add_argument("--copy", type=Path, help=argparse.SUPPRESS)  # what a process of its own does
    asked = parser.parse_args()
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--master local[2] --driver-memory {asked.heap} pyspark-shell")
    if asked.copy:
        copy_messages(asked.copy)
    else:
        with TemporaryDirectory() as folder:
            for scopes in asked.scopes:
                warehouse = Path(folder, str(scopes))
                print(f"\n{asked.messages:,} messages in {scopes:,} scopes\n", flush=True)  # noqa: T201
                print(*measure(warehouse, asked.messages, scopes), sep="\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
