"""Builds the parser of a command from the declared options: its own in groups, all others accepted but not shown."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.app.config import DECLARED, DEFAULTS, NO_FLAG

_TABLES = ("warehouse", "catalog_schema")
_WITHOUT_TABLES = ("look", "simulate", "dissector")
_POSITIONAL = "look"
"""The command that takes captures as arguments."""
_SHOWN: Mapping[str, Sequence[str]] = {
    "look": (
        *("out", "fail_on", "bodies", "overlap", "ports", "window_bytes", "quarantine_raw_bytes", "in_memory_bytes"),
        *("decode", "reading", "scope", "report"),
    ),
    "nightly": ("captures", "out", "fail_on", "names_skeleton", "ingest", "decode", "replay", "report"),
    "ingest": ("captures", "ingest"),
    "decode": ("decode", "claim_seconds"),
    "replay": ("fail_on", "replay", "claim_seconds", "names_file", "muted_file"),
    "report": ("out", "report"),
    "status": ("captures",),
    "repair": ("captures", "ingest", "decode", "replay"),
    "maintain": ("maintain", "claim_seconds"),
    "simulate": ("out", "simulate"),
    "dissector": ("out", "ports"),
}
"""Sections and single options that --help of a command shows beside what every command has."""
_EXAMPLES: Mapping[str, Sequence[str]] = {
    "look": ("a.pcap b.pcapng", "/data/pcap --out today.html", "--fail-on lost - < a.pcap"),
    "nightly": (
        "--captures '/data/pcap/*.pcapng' --warehouse /data/msmq",
        "--captures /data/pcap --catalog-schema main.msmq --fail-on duplicate,out_of_order",
    ),
    "ingest": ("--captures /data/pcap --warehouse /data/msmq", "--captures a.pcap --warehouse out/msmq --bodies keep"),
    "decode": ("--warehouse /data/msmq", "--catalog-schema main.msmq --names hash"),
    "replay": ("--warehouse /data/msmq", "--warehouse /data/msmq --reading literal --scope queue"),
    "report": (
        "--warehouse /data/msmq --since all",
        "--warehouse /data/msmq --since 2026-03-02T18:00 --out today.html",
    ),
    "status": ("--warehouse /data/msmq", "--warehouse /data/msmq --captures /data/pcap --json"),
    "repair": ("--warehouse /data/msmq", "--warehouse /data/msmq --captures /data/pcap"),
    "maintain": ("--warehouse /data/msmq", "--warehouse /data/msmq --vacuum-hours 24"),
    "simulate": (
        "--out out/captures",
        "--out out/captures --seed 7 --messages 5000 --disorder 0.3",
        "--out out/demo --scenario demo",
    ),
    "dissector": ("--out msmq.lua", "--out ~/.local/lib/wireshark/plugins/msmq.lua"),
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
    examples = "\n".join(f"  {program} {example}" for example in _EXAMPLES.get(command, ()))
    parser = argparse.ArgumentParser(
        program,
        f"{program} [options]{' FILE…' if command == _POSITIONAL else ''}",
        allow_abbrev=False,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file of options; conf/base.toml shows them all")
    if command == _POSITIONAL:
        text = f"{DECLARED['captures'].help}; - is standard input, read to its end"
        parser.add_argument(
            "captures", nargs="*", action="extend", default=argparse.SUPPRESS, metavar="FILE", help=text
        )
    groups: dict[str, argparse._ArgumentGroup] = {}
    shown = _SHOWN.get(command, ())
    everywhere = ("json", "log_format", *(() if command in _WITHOUT_TABLES else ("verbose", *_TABLES)))
    for name, option in DECLARED.items():
        if name == NO_FLAG:
            continue
        is_shown = name in everywhere or name in shown or option.section in shown
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
        repeated = isinstance(default, tuple) and name not in ("ports", "fail_on")
        if is_shown and (repeated or default not in ("", ())):
            listed = ",".join(map(str, default)) if isinstance(default, tuple) else default
            text += "; repeatable" if repeated else f"; default {listed}"
        target.add_argument(
            flag,
            action="append" if repeated else "store",
            type=type(default) if isinstance(default, int | float) else str,
            choices=option.choices if name != "fail_on" and option.choices else None,
            metavar=option.metavar or (None if option.choices else name.rpartition("_")[2].upper()),
            help=text,
        )
    return parser
