"""Writes the Wireshark dissector."""

from jobs.cli.command import Summary
from jobs.cli.config import Config
from jobs.cli.errors import UsageError
from jobs.cli.text_files import write_text
from jobs.wireshark.generate import dissector, field_names


def run(config: Config) -> Summary:
    """Writes the dissector to the file --out; returns the summary.

    Raises:
        UsageError: --out is not given.
        JobError: the file cannot be written.
    """
    if not config.out:
        raise UsageError("Say where the dissector goes: --out FILE.")
    write_text(config.out, dissector(config.ports))
    return {"file": config.out, "fields": len(field_names())}
