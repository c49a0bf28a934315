"""By hand: `python tests/nights.py kill --rounds 50`, `together --rounds 20`, `month`. Exits 1 on differences.

`kill` ends a night with SIGKILL at a random moment and runs it again; `together` runs two nights at once; `month` takes
thirty nights with late files and restarts. All must end in the tables of one undisturbed run.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession
from warehouses import CAPTURES, all_rows, config

from jobs.app.logs import progress
from jobs.app.spark_session import open_session
from jobs.simulator import simulate
from jobs.steps import nightly
from jobs.warehouse import local_commits
from jobs.warehouse.store import Warehouse

BRANCHES = [CAPTURES / f"branches_0000{number}.pcap.gz" for number in range(3)]
NIGHTS = 30
MESSAGES = 3_000
BYTES_PER_MESSAGE = 3_000  # of capture, everything on the wire counted


def digest(warehouse: Path) -> dict[str, str]:
    """A hash of what each table says."""
    return {name: hashlib.sha256(repr(rows).encode()).hexdigest()[:12] for name, rows in all_rows(warehouse).items()}


def same(found: Path, wanted: Path, what: str) -> bool:
    """Whether the tables say the same; says which do not."""
    left, right = digest(found), digest(wanted)
    wrong = [name for name in left if left[name] != right[name]]
    progress(f"{what}: {'differs in ' + ', '.join(wrong) if wrong else 'equal'}")
    return not wrong


def start(warehouse: Path, *captures: Path) -> subprocess.Popen[bytes]:
    """A night in a process group of its own."""
    options = [part for capture in captures for part in ("--captures", str(capture))]
    return subprocess.Popen(
        [sys.executable, "-m", "jobs.cli", "nightly", "--warehouse", str(warehouse), *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=warehouse.with_suffix(".log").open("ab"),
    )


def kill(spark: SparkSession, folder: Path, rounds: int, rng: random.Random) -> int:
    """Rounds that went wrong."""
    first, wanted = folder / "first", folder / "wanted"
    nightly.run(spark, config(first, BRANCHES[0]))
    shutil.copytree(first, wanted)
    began = time.monotonic()
    if start(wanted, *BRANCHES[1:]).wait():
        raise SystemExit("the undisturbed night failed")
    takes = time.monotonic() - began
    wrong = 0
    for number in range(rounds):
        warehouse = folder / f"round{number}"
        shutil.copytree(first, warehouse)
        night = start(warehouse, *BRANCHES[1:])
        moment = rng.uniform(0.2, 1) * takes
        time.sleep(moment)
        os.killpg(night.pid, signal.SIGKILL)
        night.wait()
        nightly.run(spark, config(warehouse, *BRANCHES[1:]))
        wrong += not same(warehouse, wanted, f"round {number}, killed after {moment:.1f} of {takes:.1f} s")
        shutil.rmtree(warehouse)
    return wrong


def together(spark: SparkSession, folder: Path, rounds: int, rng: random.Random) -> int:
    """Rounds that went wrong."""
    wanted, wrong = folder / "wanted", 0
    nightly.run(spark, config(wanted, *BRANCHES))
    for number in range(rounds):
        warehouse = folder / f"round{number}"
        nights = []
        for captures in (BRANCHES[:2], BRANCHES[1:]):
            nights.append(start(warehouse, *captures))
            time.sleep(rng.uniform(0, 5))
        codes = [night.wait() for night in nights]
        wrong += not same(warehouse, wanted, f"round {number}, exit codes {codes}") or codes != [0, 0]
    return wrong


class Stopped(BaseException):
    """A night that ends as if the machine had gone down."""


@contextmanager
def stopping_after(merges: int, commits: int) -> Iterator[None]:
    """Stops a night after so many merges by Spark or, if it is held in memory, after so many commits without Spark."""
    with ExitStack() as patches:
        for of, name, left in ((Warehouse, "merge", merges), (local_commits, "_settle", commits)):
            patches.enter_context(patch.object(of, name, counting_down(getattr(of, name), left)))
        yield


def counting_down(write: Callable[..., None], left: int) -> Callable[..., None]:
    """Returns the function, made to stop the night after so many calls."""
    calls = count(1)

    def stopping(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        if next(calls) == left:
            raise Stopped

    return stopping


def month(spark: SparkSession, folder: Path, rng: random.Random) -> int:
    """Whether thirty nights differ from one run over all of their captures."""
    simulate(str(folder), 7, MESSAGES, disorder=0.005, file_bytes=MESSAGES * BYTES_PER_MESSAGE // NIGHTS)
    captures = sorted(folder.glob("*.pcap"))
    progress(f"{len(captures)} captures")
    late = set(rng.sample(captures[:-3], len(captures) // 6))
    warehouse, waiting = folder / "nights", list[Path]()
    for number, capture in enumerate(captures):
        waiting.append(capture)
        tonight = [one for one in waiting if one not in late or (one is not capture and rng.random() < 1 / 3)]
        if number == len(captures) - 1:
            tonight = waiting
        waiting = [one for one in waiting if one not in tonight]
        given = captures[: number + 1] if rng.random() < 1 / 2 else tonight  # the folder as it is, or what is new
        given = [one for one in given if one not in waiting]
        if not given:
            continue
        if rng.random() < 1 / 3:
            with stopping_after(rng.randrange(1, 7), rng.randrange(1, 30)):
                try:
                    nightly.run(spark, config(warehouse, *given))
                except Stopped:
                    progress(f"night {number}: stopped")
        nightly.run(spark, config(warehouse, *given))
        progress(f"night {number}: {len(tonight)} new captures, {len(waiting)} late")
    nightly.run(spark, config(folder / "once", *captures))
    return not same(warehouse, folder / "once", f"{len(captures)} nights")


def main() -> int:
    """Run what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kill", "together", "month"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    spark = open_session("nights")
    with TemporaryDirectory() as name:
        folder = Path(name)
        if options.what == "month":
            wrong = month(spark, folder, rng)
        else:
            play = {"kill": kill, "together": together}[options.what]
            wrong = play(spark, folder, options.rounds, rng)
    progress(f"{wrong} went wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
