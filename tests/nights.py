"""By hand: `python tests/nights.py --rounds 50` ends a night with SIGKILL at a random moment and runs it again.

Each time it must end in the tables of one undisturbed run. Exits 1 on differences.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from warehouses import CAPTURES, all_rows, config

from jobs.cli.logs import progress
from jobs.cli.spark_session import open_session
from jobs.commands import nightly

FIRST, *OTHERS = (CAPTURES / f"branches_0000{number}.pcap.gz" for number in range(3))


def start(warehouse: Path) -> subprocess.Popen[bytes]:
    """Starts the second night in a process group of its own."""
    options = [part for capture in OTHERS for part in ("--captures", str(capture))]
    return subprocess.Popen(
        [sys.executable, "-m", "jobs.main", "nightly", "--warehouse", str(warehouse), *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=warehouse.with_suffix(".log").open("ab"),
    )


def kill(folder: Path, rounds: int, rng: random.Random) -> int:
    """Returns how many rounds went wrong."""
    spark = open_session("nights")
    first, wanted = folder / "first", folder / "wanted"
    nightly.run(spark, config(first, FIRST))
    shutil.copytree(first, wanted)
    began = time.monotonic()
    if start(wanted).wait():
        raise SystemExit("the undisturbed night failed")
    takes, expected, wrong = time.monotonic() - began, all_rows(wanted), 0
    for number in range(rounds):
        warehouse = folder / f"round{number}"
        shutil.copytree(first, warehouse)
        night, moment = start(warehouse), rng.uniform(0.2, 1) * takes
        time.sleep(moment)
        os.killpg(night.pid, signal.SIGKILL)
        night.wait()
        nightly.run(spark, config(warehouse, *OTHERS))
        found = all_rows(warehouse)
        differ = [name for name in expected if found[name] != expected[name]]
        progress(f"round {number}, killed after {moment:.1f} of {takes:.1f} s: {differ or 'equal'}")
        wrong += bool(differ)
        shutil.rmtree(warehouse)
    return wrong


def main() -> int:
    """Kills as often as was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        wrong = kill(Path(name), options.rounds, random.Random(options.seed))
    progress(f"{wrong} went wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
