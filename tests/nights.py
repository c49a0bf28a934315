"""By hand: `python tests/nights.py kill --rounds 50`, `together --rounds 20`. Exits 1 on differences.

`kill` ends a night with SIGKILL at a random moment and runs it again; `together` runs two nights at once. Both must end
in the tables of one undisturbed run.
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
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from warehouses import CAPTURES, all_rows, config

from jobs.app.logs import progress
from jobs.app.spark_session import open_session
from jobs.steps import nightly

BRANCHES = [CAPTURES / f"branches_0000{number}.pcap.gz" for number in range(3)]


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


def main() -> int:
    """Run what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kill", "together"))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    spark = open_session("nights")
    with TemporaryDirectory() as name:
        folder = Path(name)
        play = {"kill": kill, "together": together}[options.what]
        wrong = play(spark, folder, options.rounds, rng)
    progress(f"{wrong} went wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
