"""spark-submit with the zip, where nothing is installed but the dependencies."""

import gzip
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from archive import write_archive
from pyspark.sql import SparkSession
from warehouses import CAPTURES, all_rows, config

from jobs.cli.spark_session import ONE_COMPILER
from jobs.commands import nightly

ROOT = Path(__file__).parents[1]
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def archive_in(folder: Path) -> Path:
    """The zip that `make zip` makes."""
    archive = folder / "msmq_replay.zip"
    write_archive(archive)
    return archive


def bare_python(home: Path) -> Path:
    """A Python that sees the installed dependencies and not this project.

    A path in a .pth file is searched, but the .pth files in it (the editable install) are not read.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    python = home / "bin" / "python"
    missing = subprocess.run([python, "-c", "import udfs"], cwd=home, env=CLEAN, capture_output=True, check=False)
    assert b"ModuleNotFoundError" in missing.stderr
    return python


def submit(python: Path, folder: Path, *arguments: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and summary of a job."""
    command = Path(sysconfig.get_paths()["purelib"], "pyspark", "bin", "spark-submit")
    settings = ("--properties-file", ROOT / "conf" / "spark-defaults.conf", "--driver-java-options", ONE_COMPILER)
    done = subprocess.run(
        [command, *settings, *arguments, "--json"],
        cwd=folder,
        env=CLEAN | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1:]  # spark-submit joins a Python job's stderr and stdout
    assert last, done.stderr[-3000:]
    assert last[0].startswith("{"), done.stdout[-3000:]
    return done.returncode, json.loads(last[0])


def executors(submitted: int) -> list[int]:
    """Returns the processes of executors below that of spark-submit."""
    parents = {}
    for one in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(one.parent.name)] = int(one.read_text().rpartition(")")[2].split()[1])

    def is_below(pid: int) -> bool:
        while pid in parents and pid != submitted:
            pid = parents[pid]
        return pid == submitted

    found = []
    for pid in filter(is_below, parents):
        with suppress(OSError):
            if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_the_wheel_holds_what_the_zip_holds(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in ZipFile(archive_in(tmp_path)).namelist() if not name.endswith(("/", ".pyc"))}
    assert len(names) > 100
    assert names - set(ZipFile(wheel).namelist()) == set()


def of_zip(folder: Path, job: str) -> list[Any]:
    """Writes the zip and a job's script to the folder; returns spark-submit's arguments for them."""
    archive, script = archive_in(folder), folder / "jobs" / f"{job}.py"
    script.parent.mkdir()
    script.write_bytes((ROOT / "jobs" / script.name).read_bytes())
    return ["--py-files", archive, script]


_READING = """
import sys
from importlib import import_module
for name in sys.argv[1:]: import_module(name)
from jobs.report_page.render import files
from jobs.wireshark.generate import dissector
assert all(files()) and dissector()
"""


def test_all_of_the_zip_can_be_read_from_it(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    names = [name for name in ZipFile(archive).namelist() if name.endswith(".py") and "notebooks" not in name]
    modules = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in names]
    command: list[Any] = [bare_python(tmp_path / "bare"), "-c", _READING, *modules]
    environment = CLEAN | {"PYTHONPATH": str(archive)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "jobs.commands.nightly" in modules


@pytest.mark.spark
def test_a_job_of_the_zip_runs_under_spark_submit(tmp_path: Path) -> None:
    places = ("--captures", CAPTURES / "orders.pcapng", "--warehouse", tmp_path / "warehouse")
    job = (*of_zip(tmp_path, "nightly"), *places, "--fail-on", "duplicate")
    code, summary = submit(bare_python(tmp_path / "bare"), tmp_path, *job)
    assert code == 3
    assert summary["transactional_messages"] == 131
    assert summary["books"]["unbalanced"] == 0


@pytest.mark.slow
def test_two_workers_of_a_cluster_find_the_same_as_one_process(spark: SparkSession, tmp_path: Path) -> None:
    """Captures in splits, with bodies; the second capture of the ring buffer comes a night late."""
    job = ("--master", "local-cluster[2,1,2048]", *of_zip(tmp_path, "nightly"))
    captures = [tmp_path / packed.stem for packed in sorted(CAPTURES.glob("branches_*.pcap.gz"))]
    for capture in captures:
        capture.write_bytes(gzip.decompress((CAPTURES / f"{capture.name}.gz").read_bytes()))
    options = {"bodies": "keep", "split_bytes": 131_072, "in_memory_bytes": 0, "in_memory_messages": 0}
    python = bare_python(tmp_path / "bare")
    for night in (captures[::2], captures):
        given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        given += [f"--captures={capture}" for capture in night]
        code, _ = submit(python, tmp_path, *job, *given, "--warehouse", tmp_path / "cluster")
        assert code == 0
        nightly.run(spark, config(tmp_path / "process", *night, **options))
    assert all_rows(tmp_path / "cluster") == all_rows(tmp_path / "process")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["ingest", "decode", "replay"])
def test_an_executor_may_die(spark: SparkSession, tmp_path: Path, step: str) -> None:
    """One is killed some seconds after the step began; the tables are those of a night in this process."""
    options = {"bodies": "keep", "split_bytes": 131_072, "in_memory_bytes": 0, "in_memory_messages": 0}
    captures = sorted(CAPTURES.glob("branches_*.pcap.gz"))[:1]
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    given += [f"--captures={capture}" for capture in captures]
    program = Path(sysconfig.get_paths()["purelib"], "pyspark", "bin", "spark-submit")
    python = str(bare_python(tmp_path / "bare"))
    command: list[Any] = [program, "--properties-file", ROOT / "conf" / "spark-defaults.conf"]
    command += ["--master", "local-cluster[3,1,1024]", *of_zip(tmp_path, "nightly"), *given]
    run = subprocess.Popen(
        [*command, "--warehouse", tmp_path / "cluster"],
        cwd=tmp_path,
        env=CLEAN | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert run.stdout is not None
    said, killed = list[str](), list[int]()
    for line in run.stdout:
        said.append(line)
        if f"/5 {step} …" in line and not killed:
            time.sleep(3)
            killed = executors(run.pid)[:1]
            os.kill(killed[0], signal.SIGKILL)
    assert run.wait() == 0, "".join(said)[-4000:]
    assert killed
    nightly.run(spark, config(tmp_path / "process", *captures, **options))
    assert all_rows(tmp_path / "cluster") == all_rows(tmp_path / "process")
