"""Knows the file that Spark's JVM writes to, and reads in it why a run failed; needs no Spark."""

import shutil
import tempfile
from pathlib import Path

from jobs.app.errors import JobError

_OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
_LAST_LINES = 10


class SparkOutput:
    """Knows the file that the JVM of this process writes to."""

    path: Path | None = None

    @classmethod
    def create(cls, folder: Path) -> int:
        """Creates the file in the folder, which is deleted in the end, and returns its descriptor."""
        descriptor, name = tempfile.mkstemp(prefix="msmq-replay-spark-", suffix=".log", dir=folder)
        cls.path = Path(name)
        return descriptor


def keep_output() -> Path | None:
    """Keeps the file that Spark writes to when the process ends; returns its path, or None if there is no such file."""
    if SparkOutput.path is not None:
        SparkOutput.path = Path(shutil.move(SparkOutput.path, Path(tempfile.gettempdir(), SparkOutput.path.name)))
    return SparkOutput.path


def memory_error(error: Exception) -> JobError | None:
    """Returns what to do if Spark's JVM ran out of memory, which may have ended it before it could say so."""
    said = str(error) if SparkOutput.path is None else SparkOutput.path.read_text(errors="replace") + str(error)
    if _OUT_OF_MEMORY not in said:
        return None
    return JobError(
        "Spark's JVM ran out of memory. The next run does the step again: give it more memory, as in "
        "PYSPARK_SUBMIT_ARGS='--driver-memory 6g pyspark-shell', or less at a time with --in-memory-bytes 0 "
        "--in-memory-messages 0."
    )


def last_lines() -> tuple[str, ...]:
    """Returns the last lines that Spark wrote."""
    if SparkOutput.path is None:
        return ()
    return tuple(SparkOutput.path.read_text(errors="replace").splitlines()[-_LAST_LINES:])
