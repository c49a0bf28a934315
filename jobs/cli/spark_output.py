"""Knows the file that Spark's JVM writes to; needs no Spark."""

import shutil
import tempfile
from pathlib import Path


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


def spark_said() -> str:
    """Returns what Spark wrote to its file; an empty text if there is none."""
    return SparkOutput.path.read_text(errors="replace") if SparkOutput.path else ""
