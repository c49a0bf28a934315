"""Writes the Wireshark dissector."""

from pathlib import Path

from jobs.app.command import Summary
from jobs.app.config import Config
from jobs.app.errors import JobError, UsageError
from jobs.app.local_files import NOT_REGULAR, is_other_than_file
from jobs.wireshark.generate import dissector, field_names


def run(config: Config) -> Summary:
    """Writes the dissector to the file --out; returns the summary.

    Raises:
        UsageError: --out is not given.
        JobError: the file cannot be written.
    """
    if not config.out:
        raise UsageError("Say where the dissector goes: --out FILE.")
    out = Path(config.out)
    try:
        if is_other_than_file(out):
            raise JobError(f"{config.out} cannot be written: {NOT_REGULAR}.")
        out.write_text(dissector(config.ports), encoding="utf-8")
    except OSError as error:
        raise JobError(f"{config.out} cannot be written: {error.strerror}.") from error
    return {"file": config.out, "fields": len(field_names())}
