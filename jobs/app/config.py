"""Options: `conf/base.toml`, then the file of --config, then the command line."""

import argparse
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from jobs.app.errors import UsageError
from schemas.ingest import Bodies
from schemas.replay import Reading, Scope, Verdict
from udfs.passes.options import IngestOptions
from udfs.tcp.connections import Overlap

_NAMES_KEY = "MSMQ_REPLAY_NAMES_KEY"
_SHORTEST_KEY = 16
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "log_format": ("text", "json"),
    "names": ("keep", "hash"),
    "bodies": tuple(Bodies),
    "overlap": tuple(Overlap),
    "reading": tuple(Reading),
    "scope": tuple(Scope),
}

LAST, ALL = "last", "all"
"""Periods of the report."""


@dataclass(frozen=True, slots=True)
class Config:
    """Every option of every command; units and reasons are in `conf/base.toml`."""

    captures: tuple[str, ...]
    warehouse: str
    catalog_schema: str
    json: bool
    log_format: str
    fail_on: tuple[str, ...]
    bodies: str
    overlap: str
    ports: tuple[int, ...]
    split_bytes: int
    window_bytes: int
    survey_bytes: int
    quarantine_raw_bytes: int
    claim_seconds: int
    names: str
    names_key: str = field(repr=False)
    reading: str
    scope: str
    continue_from: str
    vacuum_hours: int
    state_days: int
    out: str
    since: str
    session: tuple[str, ...]
    listed_findings: int
    listed_sessions: int
    drawn_sessions: int
    drawn_pictures: int
    drawn_points: int
    seed: int
    messages: int
    smallest_body: int
    largest_body: int
    disorder: float
    capture_loss: float
    capture_begins_s: int
    capture_ends_s: int
    ring_file_bytes: int

    @classmethod
    def load(cls, given: Mapping[str, Any], file: str | None) -> Self:
        """The options with those `given` on the command line on top.

        Raises:
            UsageError: the file cannot be read, or an option is unknown or has a value it cannot have.
        """
        values = _flat(tomllib.loads(files("conf").joinpath("base.toml").read_text()))
        if file is not None:
            values |= _known(_flat(_read(file)), values, file)
        values |= {name: value for name, value in given.items() if name in values and value is not None}
        config = cls(**{name: _checked(name, value) for name, value in values.items()})
        if config.names == "hash" and len(config.hiding_key or b"") < _SHORTEST_KEY:
            raise UsageError(
                f"To hash names, set {_NAMES_KEY} in the environment (or names_key in a file that only the job can "
                f"read) to a secret of at least {_SHORTEST_KEY} bytes."
            )
        return config

    @property
    def hiding_key(self) -> bytes | None:
        """The key that names are hashed with; None when they are kept."""
        return (self.names_key or os.environ.get(_NAMES_KEY, "")).encode() if self.names == "hash" else None

    @property
    def ingest(self) -> IngestOptions:
        """What the passes of ingest are told."""
        return IngestOptions(
            ports=self.ports,
            overlap=Overlap(self.overlap),
            keep_bodies=self.bodies == Bodies.KEEP,
            split_bytes=self.split_bytes,
            window_bytes=self.window_bytes,
            survey_bytes=self.survey_bytes,
            quarantine_raw_bytes=self.quarantine_raw_bytes,
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command line of every command; no default here, so that what is given can be told from what is not."""
    add = parser.add_argument
    add("--captures", action="append", metavar="URI", help="file, folder or glob of captures; repeatable")
    add("--warehouse", metavar="URI", help="folder of the Delta tables")
    add("--catalog-schema", metavar="CATALOG.SCHEMA", help="registered tables in place of a folder")
    add("--config", metavar="FILE", help="TOML file of options; conf/base.toml shows them all")
    add("--json", action="store_true", default=None, help="print the summary as one JSON object")
    add("--log-format", choices=_CHOICES["log_format"], help="progress on stderr as text (default) or JSON lines")
    add("--bodies", choices=_CHOICES["bodies"], help="drop (default) or keep message bodies in packets.raw")
    add("--names", choices=_CHOICES["names"], help="keep (default) or hash labels and names of queues and senders")
    add("--reading", choices=_CHOICES["reading"], help="reading of [MS-MQQB] 3.1.5.8.6; default conformant")
    add("--scope", choices=_CHOICES["scope"], help="what one replayed state belongs to; default auto")
    add(
        "--continue-from",
        metavar="URI",
        help="an earlier warehouse (with --catalog-schema: CATALOG.SCHEMA), where this one's sessions stood before",
    )
    add("--overlap", choices=_CHOICES["overlap"], help="whose bytes win where TCP segments differ; default first")
    add("--ports", metavar="PORTS", help="TCP ports that carry MSMQ, comma separated; default 1801")
    add("--fail-on", metavar="VERDICTS", help="exit 3 when one of these verdicts was found, comma separated")
    add("--out", metavar="PATH", help="report: the HTML file; simulate: the folder")
    add(
        "--since", metavar="TIME", help="report: last (default) run's captures, all, or a time such as 2026-03-02T18:00"
    )
    add("--session", action="append", metavar="ID", help="report: only this session_id; repeatable")
    add("--seed", type=int, help="simulate: the same seed makes the same traffic")
    add("--messages", type=int, help="simulate: transactional messages")
    add("--disorder", type=float, metavar="SHARE", help="simulate: of transactions and TCP segments, with a fault")
    add("--capture-loss", type=float, metavar="SHARE", help="simulate: of frames, that the capture loses")
    add("--capture-begins-s", type=int, metavar="S", help="simulate: the capture begins so late, in mid-stream")
    add("--capture-ends-s", type=int, metavar="S", help="simulate: the capture is cut then; 0 is never")


def _read(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"The configuration {file} cannot be read: {error}.") from error


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of all sections together; no key stands in two of them."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= value if isinstance(value, dict) else {key: value}
    return flat


def _known(values: dict[str, Any], base: Mapping[str, Any], file: str) -> dict[str, Any]:
    unknown = sorted(values.keys() - base.keys())
    if unknown:
        raise UsageError(f"The configuration {file} has unknown options: {', '.join(unknown)}.")
    return values


def _checked(name: str, value: Any) -> Any:
    """The value in its type."""
    expected = {one.name: one.type for one in fields(Config)}[name]
    if name == "ports":
        return tuple(_port(part) for part in (value.split(",") if isinstance(value, str) else value))
    if name == "fail_on":
        chosen = tuple(part.strip() for part in (value.split(",") if isinstance(value, str) else value))
        return tuple(_one_of(name, part, tuple(Verdict)) for part in chosen if part)
    if name in _CHOICES:
        return _one_of(name, value, _CHOICES[name])
    if name == "since" and value not in (LAST, ALL):
        moment(value)
    if name in ("captures", "session"):
        return tuple(str(part) for part in ([value] if isinstance(value, str) else value))
    if expected is float:
        return _share(name, value)
    if not isinstance(value, expected) or (expected is int and (isinstance(value, bool) or value < 0)):  # type: ignore[arg-type]
        raise UsageError(f"The option {name} cannot be {value!r}.")
    return value


def moment(text: Any) -> datetime:
    """A time of ISO 8601, UTC where it names no zone.

    Raises:
        UsageError: it is none.
    """
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise UsageError(f"The option since cannot be {text!r}: give {LAST}, {ALL} or a time of ISO 8601.") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise UsageError(f"The option {name} cannot be {value!r}: choose from {', '.join(choices)}.")
    return value


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError(f"The option {name} cannot be {value!r}: it is a share, from 0 to 1.")
    return float(value)


def _port(text: Any) -> int:
    try:
        port = int(text)
    except (TypeError, ValueError):
        port = -1
    if not 0 < port < 1 << 16:
        raise UsageError(f"{text!r} is no TCP port.")
    return port
