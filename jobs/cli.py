"""Runs `msmq-replay COMMAND …`, the console script."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

from jobs.app import command
from jobs.app.code_version import VERSION

COMMANDS = {
    "look": "read captures at once, without Spark and tables, and say what became of messages",
    "nightly": "ingest, decode, replay and report, in order",
    "ingest": "read new captures into tables of streams and packets",
    "decode": "decode packets into messages and acknowledgments",
    "replay": "judge every transactional message, and sum up",
    "report": "write one HTML file from the tables",
    "status": "say what was read, what is pending, what failed and why",
    "repair": "finish what a killed run left",
    "maintain": "compact the tables, delete what is not needed",
    "simulate": "write captures of simulated queue managers, and their truth",
    "dissector": "write a Wireshark dissector in Lua",
    "decode-packet": "print one packet, given as hexadecimal or in a file, as a tree",
}
"""The commands, with a line for the usage text. Each is a module of `jobs.steps`."""
_WITHOUT_SPARK = ("look", "simulate", "dissector")


def _find(name: str) -> Callable[[Sequence[str]], int]:
    """Imports the module of a command alone, because all together take several times as long."""
    step = import_module(f"jobs.steps.{name.replace('-', '_')}")
    if hasattr(step, "main"):
        main: Callable[[Sequence[str]], int] = step.main
        return main
    return partial(command.main_alone if name in _WITHOUT_SPARK else command.main, name, step.run)


def usage() -> str:
    """Returns the list of commands."""
    lines = (f"  {name:<14} {about}" for name, about in COMMANDS.items())
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
    return _find(name)(rest)


if __name__ == "__main__":
    sys.exit(main())
