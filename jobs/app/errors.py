"""Errors that a person can act on: the command prints the sentence alone and exits with the code."""

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


class ConflictError(JobError):
    """Says that another run wrote the same tables at the same time, so that nothing was written."""


class ChangedError(JobError):
    """Names captures that changed while they were read, so that nothing of them was kept."""

    def __init__(self, files: Collection[str]) -> None:
        named = ", ".join(sorted(files)[:3]) + ", …" * (len(files) > 3)  # noqa: PLR2004 - enough to find them
        super().__init__(f"{len(files)} files changed while they were read, and are left to the next run: {named}")
        self.files = files
