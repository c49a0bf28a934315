"""Errors a person can act on; the command prints the sentence alone and exits with the code."""


class JobError(Exception):
    """The run failed."""

    exit_code = 1


class UsageError(JobError):
    """Wrong use or configuration."""

    exit_code = 2
