"""Measures what each step of a replay in this process holds: `PYTHONPATH=. python tests/bench_memory.py 1000000 1`.

The arguments are how many messages and scopes to make. Memory is the most beyond what was held before the step.
"""

import argparse
import ctypes
import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import polars as pl
from made_rows import made
from replay_tables import replay

from jobs.engine.in_process import InProcess
from jobs.replaying.sources import read_sources
from udfs.derive.frames import Derivation, Frames, Work, to_frame
from udfs.derive.tables import schema_of

_MOST_SHOWN = 20


class Held(NamedTuple):
    """How many MB a step held, and how many seconds it took."""

    mb: float
    seconds: float
    name: str


def memory_mb(kind: str) -> float:
    """Returns the memory that this process has, VmRSS, or the most since it was last reset, VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def measure(messages: int, scopes: int) -> list[Held]:
    """Replays made messages; returns what each step held, the most first."""
    found: list[Held] = []
    tables = {table: to_frame(rows) for table, rows in made(messages, scopes).items()}
    libc = ctypes.CDLL("libc.so.6")

    def noted(name: str, work: Callable[[], Any]) -> Any:
        gc.collect()
        libc.malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before, began = memory_mb("VmRSS"), time.monotonic()
        result = work()
        found.append(Held(memory_mb("VmHWM") - before, time.monotonic() - began, name))
        return result

    def derive(_: InProcess, work: Work, **given: pl.DataFrame) -> Frames:
        name = getattr(work.func if isinstance(work, partial) else work, "__name__", "another derivation")
        return noted(name, lambda: Derivation.of(work).run(**given))  # type: ignore[no-any-return]

    plain = InProcess.run

    def run(engine: InProcess, rows: pl.DataFrame, work: Any, *arguments: Any, **options: Any) -> Any:
        name = getattr(work, "__qualname__", str(work))
        return noted(f"pass {name}", lambda: plain(engine, rows, work, *arguments, **options))

    sources = read_sources(InProcess(load=lambda table, *_: tables.get(table, schema_of(table.arrow).to_frame())))
    with mock.patch.object(InProcess, "derive", derive), mock.patch.object(InProcess, "run", run):
        replay(sources)
    return sorted(found, reverse=True)


def main() -> None:
    """Prints the steps that hold most."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", type=int)
    parser.add_argument("scopes", type=int)
    asked = parser.parse_args()
    for held in measure(asked.messages, asked.scopes)[:_MOST_SHOWN]:
        each = held.mb * (1 << 20) / asked.messages
        print(f"{held.mb:8.0f} MB, {each:6.0f} bytes a message, {held.seconds:6.1f} s  {held.name}")  # noqa: T201


if __name__ == "__main__":
    main()
