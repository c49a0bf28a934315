"""Errors that a person can act on: the command prints the sentence alone and exits with the code."""

import re
from collections.abc import Collection


class JobError(Exception):
    """Says why the run failed."""

    exit_code = 1
    details: tuple[str, ...] = ()
    """Lines of evidence, which are printed after the sentence."""


class UsageError(JobError):
    """Says what is wrong with the command's use or configuration."""

    exit_code = 2


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text: Spark adds its plan and the JVM's stack."""
    return str(error).partition("\n")[0]


_KNOWN: tuple[tuple[str, type[JobError], str], ...] = (
    (
        "java.lang.OutOfMemoryError",
        JobError,
        (
            "Spark's JVM ran out of memory. The next run does the step again: give it more memory, as in "
            "PYSPARK_SUBMIT_ARGS='--driver-memory 6g pyspark-shell', or less at a time with --in-memory-bytes 0 "
            "--in-memory-messages 0."
        ),
    ),
    (
        "No space left on device|Disk quota exceeded",  # of Python, Arrow, delta-rs and the JVM
        JobError,
        (
            "The disk is full. The next run rolls back what this one wrote: make room in the warehouse and in the "
            "folder for temporary files (TMPDIR)."
        ),
    ),
    (
        r"No FileSystem for scheme \S+",
        UsageError,
        "Spark cannot open the place ({}): take a folder, or a file system that it has the jars for.",
    ),
)
"""Known causes of failures: a pattern of what was said, and the error to raise, with a sentence on what to do."""


def known_error(error: BaseException | None, spark_said: str = "") -> JobError | None:
    """Returns what to do if the cause is a known one: of the error, what caused it, or what Spark's JVM said."""
    said = [spark_said]
    while error is not None:
        said.append(str(error))
        error = error.__cause__ or error.__context__
    for pattern, kind, sentence in _KNOWN:
        if found := re.search(pattern, "\n".join(said)):
            return kind(sentence.format(found[0]))
    return None


class ConflictError(JobError):
    """Says that another run wrote the same tables at the same time, so that nothing was written."""


class ChangedError(JobError):
    """Names captures that changed while they were read, so that nothing of them was kept."""

    def __init__(self, files: Collection[str]) -> None:
        named = ", ".join(sorted(files)[:3]) + ", …" * (len(files) > 3)  # noqa: PLR2004 - enough to find them
        super().__init__(f"{len(files)} files changed while they were read, and are left to the next run: {named}")
        self.files = files
