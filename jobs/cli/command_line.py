"""Declares the commands, and builds their parsers from the declared options.

A command shows its own options in groups, and accepts all others.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jobs.cli.config import COMMA_SEPARATED, DECLARED, DEFAULTS

_TABLES = ("warehouse", "catalog_schema")
_POSITIONAL = "look"
"""The command that takes captures as arguments."""


class Command(NamedTuple):
    """Declares a command, which is a module of `jobs.commands`."""

    about: str
    """A line for the usage text."""
    shown: Sequence[str] = ()
    """Sections and single options that its --help shows beside what every command has."""
    examples: Sequence[str] = ()
    has_tables: bool = True
    """Whether the command works on the tables of a warehouse, which needs Spark."""


COMMANDS: Mapping[str, Command] = {
    "look": Command(
        "read captures at once, without Spark and tables, and say what became of messages",
        (
            *("out", "out_orders", "fail_on", "monitor", "bodies", "overlap", "ports", "window_bytes"),
            *("in_memory_bytes", "decode", "reading", "scope", "report"),
        ),
        ("a.pcap b.pcapng", "/data/pcap --out today.html", "--fail-on lost a.pcap"),
        has_tables=False,
    ),
    "nightly": Command(
        "ingest, decode, replay and report, in order",
        ("captures", "out", "fail_on", "monitor", "ingest", "decode", "replay", "report"),
        (
            "--captures '/data/pcap/*.pcapng' --warehouse /data/msmq --fail-on anything",
            "--captures /data/pcap --catalog-schema main.msmq --fail-on duplicate,out_of_order",
        ),
    ),
    "ingest": Command(
        "read new captures into tables of streams and packets",
        ("captures", "ingest"),
        ("--captures /data/pcap --warehouse /data/msmq", "--captures a.pcap --warehouse out/msmq --bodies keep"),
    ),
    "decode": Command(
        "decode packets into messages and acknowledgments",
        ("decode", "claim_seconds"),
        ("--warehouse /data/msmq", "--catalog-schema main.msmq --names hash"),
    ),
    "replay": Command(
        "judge every transactional message, and sum up",
        ("fail_on", "replay", "claim_seconds", "names_file"),
        ("--warehouse /data/msmq", "--warehouse /data/msmq --reading literal --scope queue"),
    ),
    "report": Command(
        "write one HTML file from the tables",
        ("out", "report"),
        ("--warehouse /data/msmq --since all", "--warehouse /data/msmq --since 2026-03-02T18:00 --out today.html"),
    ),
    "export": Command(
        "write messages, findings and incidents as NDJSON for log stores",
        ("out", "since", "until"),
        (
            "--warehouse /data/msmq --out /var/log/msmq/night.ndjson",
            "--warehouse /data/msmq --since 2026-03-02 --until 2026-03-03 --out -",
        ),
    ),
    "status": Command(
        "say what was read, what is pending, what failed and why",
        ("captures",),
        ("--warehouse /data/msmq", "--warehouse /data/msmq --captures /data/pcap --json"),
    ),
    "repair": Command(
        "finish what a killed run left",
        ("captures", "repair", "ingest", "decode", "replay"),
        ("--warehouse /data/msmq", "--warehouse /data/msmq --captures /data/pcap"),
    ),
    "maintain": Command(
        "compact the tables, delete what is not needed",
        ("maintain", "claim_seconds", "replay"),
        ("--warehouse /data/msmq", "--warehouse /data/msmq --vacuum-hours 24"),
    ),
    "simulate": Command(
        "write captures of simulated queue managers, and their truth",
        ("out", "simulate"),
        (
            "--out out/captures",
            "--out out/captures --seed 7 --messages 5000 --disorder 0.3",
            "--out out/demo --scenario demo",
        ),
        has_tables=False,
    ),
    "dissector": Command(
        "write a Wireshark dissector in Lua",
        ("out", "ports"),
        ("--out msmq.lua", "--out ~/.local/lib/wireshark/plugins/msmq.lua"),
        has_tables=False,
    ),
}


def parse(command: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the options that were given, by name; None for those that were not."""
    parser = command_parser(command)
    # Captures may stand before, between and behind the options.
    given = parser.parse_intermixed_args(arguments) if command == _POSITIONAL else parser.parse_args(arguments)
    return vars(given)


def command_parser(command: str) -> argparse.ArgumentParser:
    """Returns the parser of `msmq-replay COMMAND`; an option that was not given is None in what it parses."""
    program = f"msmq-replay {command}"
    declared = COMMANDS.get(command, Command(""))
    examples = "\n".join(f"  {program} {example}" for example in declared.examples)
    parser = argparse.ArgumentParser(
        program,
        f"{program} [options]{' FILE…' if command == _POSITIONAL else ''}",
        allow_abbrev=False,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file of options; conf/base.toml shows them all")
    if command == _POSITIONAL:
        text = DECLARED["captures"].help
        parser.add_argument(
            "captures", nargs="*", action="extend", default=argparse.SUPPRESS, metavar="FILE", help=text
        )
    groups: dict[str, argparse._ArgumentGroup] = {}
    everywhere = ("json", "log_format", *(("verbose", *_TABLES) if declared.has_tables else ()))
    for name, option in DECLARED.items():
        is_shown = name in everywhere or name in declared.shown or option.section in declared.shown
        if is_shown and option.section not in groups:
            groups[option.section] = parser.add_argument_group(option.section or "all commands")
        default = getattr(DEFAULTS, name)
        flag = f"--{name.replace('_', '-')}"
        text = option.help if is_shown else argparse.SUPPRESS
        target = groups[option.section] if is_shown else parser
        if isinstance(default, bool):
            flags = ("-v", flag) if name == "verbose" else (flag,)
            target.add_argument(*flags, action="store_true", default=None, help=text)
            continue
        repeated = isinstance(default, tuple) and name not in COMMA_SEPARATED
        if is_shown and (repeated or default not in ("", ())):
            listed = ",".join(map(str, default)) if isinstance(default, tuple) else default
            text += "; repeatable" if repeated else f"; default {listed}"
        choices = f"{{{','.join(option.choices)}}}" if option.choices else name.rpartition("_")[2].upper()
        target.add_argument(
            flag, action="append" if repeated else "store", metavar=option.metavar or choices, help=text
        )
    return parser
