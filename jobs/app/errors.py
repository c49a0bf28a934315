"""Errors a person can act on; the command prints the sentence alone and exits with the code."""

from collections.abc import Collection


class JobError(Exception):
    """The run failed."""

    exit_code = 1


class UsageError(JobError):
    """Wrong use or configuration."""

    exit_code = 2


class ConflictError(JobError):
    """Another run wrote the same rows at the same time; what was to be written is not."""


class ChangedError(JobError):
    """Captures were written to, or replaced, while they were read; nothing of them is kept."""

    def __init__(self, files: Collection[str]) -> None:
        named = ", ".join(sorted(files)[:3]) + ", …" * (len(files) > 3)  # noqa: PLR2004 - enough to find them
        super().__init__(f"{len(files)} files changed while they were read, and are left for the next run: {named}")
        self.files = files
