"""Runs `msmq-replay COMMAND …`, the console script."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from io import TextIOWrapper

from jobs.cli import command
from jobs.cli.code_version import VERSION
from jobs.cli.command_line import COMMANDS, parse

_HELP = {"-h", "--help"}


def _find(name: str) -> Callable[[Sequence[str]], int]:
    """Imports the module of a command alone, because all together take several times as long."""
    step = import_module(f"jobs.commands.{name.replace('-', '_')}")
    if hasattr(step, "main"):
        main: Callable[[Sequence[str]], int] = step.main
        return main
    return partial(command.main if COMMANDS[name].has_tables else command.main_alone, name, step.run)


def usage() -> str:
    """Returns the list of commands."""
    lines = (f"  {name:<14} {declared.about}" for name, declared in COMMANDS.items())
    return "\n".join(
        ("usage: msmq-replay COMMAND [options]", "", *lines, "", "msmq-replay COMMAND --help shows its options.")
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the arguments name and returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a console may not have all characters, such as arrows
            stream.reconfigure(errors="backslashreplace")
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name in _HELP:
        print(usage())  # noqa: T201 - the result
        return 0
    if name == "--version":
        print(f"msmq-replay {VERSION}")  # noqa: T201 - the result
        return 0
    if name not in COMMANDS:
        print(usage(), file=sys.stderr)  # noqa: T201 - an error goes to the terminal
        return 2
    if _HELP & {*rest}:
        parse(name, rest)  # which prints it and ends, without what the command needs
    return _find(name)(rest)


def run_script(name: str) -> None:
    """Runs the command of a script, by the process's arguments, and ends the process."""
    sys.exit(main([name, *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
