"""Errors that a person can act on: the command prints the sentence alone and exits with the code."""

import re
from collections.abc import Collection

_FULL = re.compile("No space left on device|Disk quota exceeded")
"""What the operating system says, and with it Python, Arrow, delta-rs and the JVM."""
_UNKNOWN_SCHEME = re.compile(r"No FileSystem for scheme \S+")


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


def disk_error(error: BaseException | None) -> JobError | None:
    """Returns what to do if the error, or what caused it, is a disk that is full."""
    while error is not None:
        if _FULL.search(str(error)):
            return JobError(
                "The disk is full. The next run rolls back what this one wrote: make room in the warehouse and in the "
                "folder for temporary files (TMPDIR)."
            )
        error = error.__cause__ or error.__context__
    return None


def scheme_error(error: BaseException) -> UsageError | None:
    """Returns what is wrong if Spark knows no file system for the beginning of a place, such as `foo://`."""
    unknown = _UNKNOWN_SCHEME.search(str(error))
    if unknown is None:
        return None
    return UsageError(
        f"Spark cannot open the place ({unknown[0]}): take a folder, or a file system that it has the jars for."
    )


class ConflictError(JobError):
    """Says that another run wrote the same tables at the same time, so that nothing was written."""


class ChangedError(JobError):
    """Names captures that changed while they were read, so that nothing of them was kept."""

    def __init__(self, files: Collection[str]) -> None:
        named = ", ".join(sorted(files)[:3]) + ", …" * (len(files) > 3)  # noqa: PLR2004 - enough to find them
        super().__init__(f"{len(files)} files changed while they were read, and are left to the next run: {named}")
        self.files = files
