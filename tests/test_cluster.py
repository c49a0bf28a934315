"""Nights on a standalone cluster: a master, two workers, and an object store, all on loopback."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import pytest
from object_stores import Server, running_store, tables_in
from pyspark.sql import SparkSession
from test_submit import CLEAN, ROOT, bare_python, of_zip
from warehouses import CAPTURES, all_rows, config

from jobs.cli.spark_session import ONE_COMPILER
from jobs.commands import nightly
from udfs.capture import stores

pytestmark = [pytest.mark.slow, pytest.mark.spark]

_SPARK = Path(sysconfig.get_paths()["purelib"], "pyspark", "bin")
_STARTED_WITHIN_S = 180
_IN_TASKS = {"bodies": "keep", "split_bytes": 131_072, "in_memory_bytes": 0, "in_memory_messages": 0}
"""Options with which tasks do everything, as if nothing fitted in the driver."""
WAREHOUSE = "s3://lake/msmq"


class Cluster(NamedTuple):
    """A standalone cluster, and what a driver needs to run on it."""

    master: str
    folder: Path
    python: Path
    store: Server

    def submit(
        self, job: str, *options: str, killed_at: str = "", temporary: str = "here"
    ) -> tuple[int, dict[str, Any], str]:
        """Runs a job; returns its exit code, its summary, and all that it said.

        `killed_at`: the driver is killed when it has said that. `temporary`: its folder for temporary files, as a
        machine of its own has one.
        """
        (self.folder / temporary).mkdir(exist_ok=True)
        command: list[Any] = [_SPARK / "spark-submit", "--master", self.master]
        command += ["--properties-file", ROOT / "conf" / "cluster.conf"]
        command += ["--driver-java-options", ONE_COMPILER, "--conf", "spark.executor.memory=1g"]
        command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
        command += ["--py-files", self.folder / "msmq_replay.zip", ROOT / "jobs" / f"{job}.py"]
        pythons = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(self.python))
        run = subprocess.Popen(
            [*command, "--warehouse", WAREHOUSE, *options, "--json"],
            cwd=self.folder,
            env=CLEAN | self.store.environment | pythons | {"TMPDIR": str(self.folder / temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert run.stdout is not None
        said = []
        for line in run.stdout:
            said.append(line)
            if killed_at and killed_at in line:
                os.killpg(run.pid, signal.SIGKILL)
        found = [line for line in said if line.startswith("{")]
        return run.wait(), json.loads(found[-1]) if found else {}, "".join(said)


@contextmanager
def _server(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """Runs a part of the cluster, which knows nothing of the store, until it says that it has begun."""
    said = folder / f"{name}.txt"
    environment = {key: value for key, value in CLEAN.items() if not key.startswith("AWS_")}
    with said.open("w") as out:
        running = subprocess.Popen(
            [_SPARK / "spark-class", f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments],
            env=environment | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        begun, end = (
            ("I have been elected leader", "Successfully registered with master"),
            monotonic() + _STARTED_WITHIN_S,
        )
        while not any(words in said.read_text() for words in begun):
            if running.poll() is not None or monotonic() > end:
                pytest.skip(f"No standalone cluster can be started here: {said.read_text()[-300:]}")
            sleep(0.2)
        yield
    finally:
        running.terminate()
        running.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master, two workers, and the store."""
    folder = tmp_path_factory.mktemp("cluster")
    of_zip(folder, "nightly")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        store = running.enter_context(running_store(tmp_path_factory.mktemp("store")))
        running.enter_context(_server(folder, "master.Master", "--port", str(port), "--webui-port", "0"))
        for number in range(2):
            work = folder / f"worker{number}"
            work.mkdir()
            size = ("--cores", "1", "--memory", "1200m", "--webui-port", "0", "--work-dir", str(work))
            running.enter_context(_server(work, "worker.Worker", *size, master))
        yield Cluster(master, folder, bare_python(folder / "bare"), store)


def given(options: dict[str, Any]) -> list[str]:
    """Options as a command line has them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def put(captures: Sequence[Path]) -> list[str]:
    """Puts captures, without compression, into the store; returns where they are."""
    uris = [f"s3a://lake/pcap/{capture.stem}" for capture in captures]
    for uri, capture in zip(uris, captures, strict=True):
        stores.write(uri, gzip.decompress(capture.read_bytes()))
    return uris


def test_nights_on_a_cluster_with_a_store_leave_the_tables_of_a_folder(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first capture comes a night late, and that night's driver is killed; then nothing is new.

    Workers have no keys of the store. The next driver runs as if on another machine: it takes the dead one over.
    """
    for name, value in cluster.store.environment.items():
        monkeypatch.setenv(name, value)
    uris, local = put(sorted(CAPTURES.glob("branches_*.pcap.gz"))), tmp_path / "process"

    def as_in_a_folder(*captures: str) -> None:
        nightly.run(spark, config(local, *captures, bodies="keep"))
        assert tables_in(WAREHOUSE) == all_rows(local)

    def runs(job: str, *options: str, **how: str) -> dict[str, Any]:
        before = len(cluster.store.requests())
        code, found, said = cluster.submit(job, *options, **how)
        assert code == 0, said[-4000:]
        sys.stderr.write(f"{job}: {len(cluster.store.requests()) - before} requests, {found['seconds']} s\n")
        return found

    in_tasks = given(_IN_TASKS)
    runs("nightly", *in_tasks, *(f"--captures={uri}" for uri in uris[1:]))
    as_in_a_folder(*uris[1:])
    code, _, said = cluster.submit("nightly", *in_tasks, "--captures=s3a://lake/pcap", killed_at="4/5 replay …")
    assert code == -signal.SIGKILL, said[-4000:]
    repaired = runs("repair", *in_tasks, "--take-over", temporary="elsewhere")
    assert "killed" in repaired["undone"][0]
    assert runs("nightly", *in_tasks, "--captures=s3a://lake/pcap")["new_captures"] == 0
    as_in_a_folder(*uris)
    for command in ("report", "status", "maintain"):
        runs(command, *(in_tasks if command != "report" else ()))
    assert runs("repair", *in_tasks)["derived_again"] == []
    assert tables_in(WAREHOUSE) == all_rows(local)
