"""Runs `msmq-replay COMMAND …`, the console script."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

from jobs.app import command
from jobs.app.code_version import VERSION
from jobs.steps import (
    decode,
    decode_packet,
    dissector,
    ingest,
    maintain,
    nightly,
    repair,
    replay,
    report,
    simulate,
    status,
)

Command = Callable[[Sequence[str]], int]

COMMANDS: dict[str, tuple[Command, str]] = {
    "nightly": (nightly.main, "ingest, decode, replay and report, in order"),
    "ingest": (partial(command.main, "ingest", ingest.run), "read new captures into tables of streams and packets"),
    "decode": (partial(command.main, "decode", decode.run), "decode packets into messages and acknowledgments"),
    "replay": (partial(command.main, "replay", replay.run), "judge every transactional message, and sum up"),
    "report": (partial(command.main, "report", report.run), "write one HTML file from the tables"),
    "status": (partial(command.main, "status", status.run), "say what was read, what is pending, what failed and why"),
    "repair": (partial(command.main, "repair", repair.run), "finish what a killed run left"),
    "maintain": (partial(command.main, "maintain", maintain.run), "compact the tables, delete what is not needed"),
    "simulate": (
        partial(command.main_alone, "simulate", simulate.run),
        "write captures of simulated queue managers, and their truth",
    ),
    "dissector": (partial(command.main_alone, "dissector", dissector.run), "write a Wireshark dissector in Lua"),
    "decode-packet": (decode_packet.main, "print one packet, given as hexadecimal or in a file, as a tree"),
}
"""Maps each command to its function and a line for the usage text."""


def usage() -> str:
    """Returns the list of commands."""
    lines = (f"  {name:<14} {about}" for name, (_, about) in COMMANDS.items())
    return "\n".join(
        ("usage: msmq-replay COMMAND [options]", "", *lines, "", "msmq-replay COMMAND --help shows its options.")
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments name and returns its exit code."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in ("-h", "--help"):
        print(usage())  # noqa: T201 - the result
        return 0
    if name == "--version":
        print(f"msmq-replay {VERSION}")  # noqa: T201 - the result
        return 0
    if name not in COMMANDS:
        print(usage(), file=sys.stderr)  # noqa: T201 - an error goes to the terminal
        return 2
    return COMMANDS[name][0](rest)


if __name__ == "__main__":
    sys.exit(main())
