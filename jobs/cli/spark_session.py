"""Opens the Spark session of a job: the platform's own, or one with Delta on this machine."""

import atexit
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from jobs.cli.errors import JobError
from jobs.cli.spark_output import SparkOutput, spark_said
from jobs.cli.temporary import private_folder

_NEEDED = {
    # Else Spark replaces ${env:NAME} in a statement, as a path or a name may have it.
    "spark.sql.variable.substitute": "false",
    # Spark 4.1.1 and 4.2.1 assume that a union is partitioned like its two sides. Adaptive execution then coalesces
    # each side by itself, and rows of one key land in two partitions.
    "spark.sql.unionOutputPartitioning": "false",
    # Results do not depend on the machine, and no file is skipped in silence.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # A commit without rows must be written as well, because it records what its table was derived from.
    "spark.databricks.delta.skipRecordingEmptyCommits": "false",
}
UNCOMPILED = {
    # Generating and compiling Java code takes longer than the queries: 40 % of the JVM's work on a small night.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For queries whose rows are few in the JVM."""
FOR_LOGS = UNCOMPILED | {
    # All stages of a query in one job, and few tasks of each.
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""For Delta's own queries of the logs of tables."""
FOR_FEW_ROWS = FOR_LOGS | {
    # One task per stage.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # A plan is printed for each query, and nobody reads it.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "1",
}
FOR_NARROW_ROWS = {
    # Spark adds up the bytes of a batch again after each row: with columns in structs, more work than the row itself.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
"""For steps whose rows hold no bytes of packets."""
_LOOPBACK = "127.0.0.1"
_ADDRESSES = {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK}
_PRIVATE = {
    # The secret is a random one, which nobody else needs.
    "spark.authenticate": "true",
    "spark.connect.grpc.binding.address": _LOOPBACK,
}
"""Settings of a Spark that is only this process's own: nothing else may speak to it, also no other user."""
_IVY_NOT_WRITTEN = re.compile(
    r"(?:FileNotFoundException|AccessDeniedException|FileSystemException|IOException): .*?(\S*\.ivy2[^/\s]*)"
)
"""Finds the folder for downloaded jars, in the user's home directory, that the JVM says it cannot write to."""
_LOCAL = re.compile(r"local(\[.*\])?")
_JVM_ENDS_WITHIN_S = 20
_DELTA = {
    "4.1": "io.delta:delta-spark_4.1_2.13:4.3.1",
    "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
"""The Delta Lake that was tried with each release of Spark; that of the newest is in `conf/spark-defaults.conf`."""
_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Code that need not count calls for the second compiler runs faster: a small night takes a quarter less time."""
_NO_FILE = "-XX:-UsePerfData"
"""Else a JVM leaves a folder in /tmp, whatever its folder for temporary files is; Spark's own has this by default."""
_STDERR = 2
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark writes stack traces of failed queries to these, and so to stderr, also of a look whether a table exists."""
_LAST_LINES = 10
"""Lines of Spark's output that are shown if it does not start."""
_PACKAGES = "spark.jars.packages"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def spark_defaults(file: str = "spark-defaults.conf") -> dict[str, str]:
    """Returns the settings of a file in `conf`, with the Delta Lake that belongs to the installed Spark."""
    lines = files("conf").joinpath(file).read_text().splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    release = ".".join(pyspark.__version__.split(".")[:2])
    return settings | ({_PACKAGES: _DELTA[release]} if release in _DELTA else {})


def open_session(application: str, *, verbose: bool = False, is_short: bool = False) -> SparkSession:
    """Returns a session with the settings that results depend on, where its platform lets them be set.

    A JVM that this starts writes to stderr if `verbose`, else to a file that is deleted when the process ends. If the
    run `is_short`, it compiles with its first compiler only.

    Raises:
        JobError: Spark cannot start.
    """
    session = _session(application, verbose=verbose, is_short=is_short)
    for key, value in _NEEDED.items():
        with suppress(PySparkException):  # serverless Databricks lets few settings be set
            session.conf.set(key, value)
    return session


def starts_own_jvm() -> bool:
    """Returns whether `open_session` would start Spark: there is no session, no server and no spark-submit."""
    environment = {"SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"}
    return environment.isdisjoint(os.environ) and SparkSession.getActiveSession() is None


class StartingSession:
    """Stands for a session of a short run that starts in another thread.

    Whoever uses it first waits until it has started, and gets the error if it could not.
    """

    def __init__(self, application: str, *, verbose: bool) -> None:
        threads = ThreadPoolExecutor(1)
        self._session = threads.submit(open_session, application, verbose=verbose, is_short=True)
        threads.shutdown(wait=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wait(), name)

    def wait(self) -> SparkSession:
        """Waits for the session and returns it.

        Raises:
            JobError: Spark could not start.
        """
        return self._session.result()


@contextmanager
def session_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Gives the session these settings, where the platform permits, and takes them back."""
    before: dict[str, str | None] = {}
    with suppress(PySparkException):  # serverless Databricks lets few settings be set
        for key, value in wanted.items():
            there = spark.conf.get(key, None)
            spark.conf.set(key, value)
            before[key] = there
    try:
        yield
    finally:
        for key, there in before.items():
            if there is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, there)


def is_local(master: str) -> bool:
    """Returns whether a master of Spark, such as local[2], runs all in the driver; a local-cluster does not."""
    return _LOCAL.fullmatch(master) is not None


def _session(application: str, *, verbose: bool, is_short: bool) -> SparkSession:
    """Returns the active session (Databricks, notebooks), a Connect client if SPARK_REMOTE is set, or a new session.

    A new session has the settings that were given to spark-submit, and of those of this project only the others.
    SPARK_REMOTE=local[2] starts a Connect server on this machine as well, with the settings of a new session.

    Raises:
        JobError: Spark cannot start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = SparkSession.builder.appName(application)
    remote = os.environ.get("SPARK_REMOTE", "")
    if remote and not remote.startswith("local"):
        return builder.getOrCreate()
    starts_jvm = "PYSPARK_GATEWAY_PORT" not in os.environ  # else spark-submit has started it
    settings, output = spark_defaults(), _STDERR
    if is_short:
        settings[_JAVA_OPTIONS] += f" {ONE_COMPILER}"
    if starts_jvm:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers with the same packages
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", _NO_FILE)  # of the JVM that finds out how to start Spark's
        folder = private_folder()  # for the JVM's temporary files, blocks and shuffles among them
        atexit.register(_end_jvm, os.getpid(), folder)
        settings[_JAVA_OPTIONS] += f' "-Djava.io.tmpdir={folder}"'
        output = output if verbose else SparkOutput.create(folder)
    try:
        given = _reach_jvm(settings, output)
        if starts_jvm:
            settings |= _kept_private(given, remote)
        elif not is_local(given.get("spark.master", "")):
            settings = spark_defaults("cluster.conf")
            if given.contains("spark.executor.extraJavaOptions"):  # with two collectors, executors would not start
                settings.pop("spark.executor.defaultJavaOptions", None)
        for key, value in settings.items():
            builder = builder.config(key, given.get(key, value))
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        failure = JobError(_why_not_started(spark_said()))
        failure.details = tuple(spark_said().splitlines()[-_LAST_LINES:])
        raise failure from error
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    try:
        spark.sql("SHOW DATABASES").collect()  # loads the catalog, and with it Delta
    except Exception as error:
        if _DELTA_CATALOG not in str(error):
            raise
        package = spark_defaults()[_PACKAGES]
        raise JobError(f"Spark was started without Delta Lake: add --packages {package} to spark-submit.") from error
    return spark


def _why_not_started(said: str) -> str:
    """Returns why Spark could not start, by what its JVM said, and what to do."""
    if not (found := _IVY_NOT_WRITTEN.search(said)):
        return (
            "Spark could not start. It needs Java 17 or later (JAVA_HOME). Its first start also needs a Maven "
            "repository with Delta Lake's jars (or set spark.jars.ivySettings, or copy the jars and set spark.jars)."
        )
    return (
        f"Cannot write {found[1]}, where Spark keeps Delta Lake's jars. Give this user a home directory that can be "
        "written (or set HOME, if the user has none), or choose another folder for them: "
        "PYSPARK_SUBMIT_ARGS='--conf spark.jars.ivy=FOLDER pyspark-shell'."
    )


def _end_jvm(process: int, folder: Path) -> None:
    """Ends the JVM, so that it writes no more to its folder, and deletes that."""
    if os.getpid() != process:  # a copy of the process that started it
        return
    from pyspark import SparkContext  # noqa: PLC0415 - a Connect client need not have py4j

    context: Any = SparkContext
    gateway, running = context._gateway, context._active_spark_context  # noqa: SLF001 - PySpark has no other way
    jvm = getattr(gateway, "proc", None)
    if jvm is not None:
        with suppress(Exception):  # it may be gone
            running._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001 - else it prints that the JVM ended
            gateway.shutdown()  # else py4j complains of a lost connection
        jvm.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(_JVM_ENDS_WITHIN_S)
    shutil.rmtree(folder, ignore_errors=True)


def _reach_jvm(settings: dict[str, str], output: int) -> Any:
    """Starts the JVM, without a Spark in it yet, and returns the settings that it has: what its user set among them.

    One that spark-submit has started is there already, and has none of these `settings`. Else all output goes to the
    file descriptor `output`, as stdout is for the summary, and Delta's VACUUM prints there.
    """
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - a Connect client need not have py4j
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - the same

    remote = os.environ.pop("SPARK_REMOTE", None)  # spark-submit would take itself for a client
    try:
        if SparkContext._gateway is None:  # noqa: SLF001 - PySpark has no other way
            conf, to_output = SparkConf().setAll(list(settings.items())), {"stdout": output, "stderr": output}
            gateway = launch_gateway(conf, to_output)  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - the same
    finally:
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote
    return SparkConf()


def _kept_private(given: Any, remote: str) -> dict[str, str]:
    """Returns the settings that keep a Spark of this machine to itself, but for those that its user gave.

    A cluster's driver has to be reached from its executors, so there it gets none.
    """
    if not is_local(remote or given.get("spark.master", "")):
        return {}
    wanted = _PRIVATE if any(map(given.contains, _ADDRESSES)) else _PRIVATE | _ADDRESSES
    return {key: value for key, value in wanted.items() if not given.contains(key)}
