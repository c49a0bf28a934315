"""Declares every option once; the command line, `Config` and `conf/base.toml` (by `make docs`) derive from that.

At run time a value comes from the declaration, then from the file of --config, then from the command line.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from jobs.app.errors import UsageError
from jobs.app.text_files import read_local
from schemas.ingest import Bodies
from schemas.replay import FindingKind, Reading, Scope, Severity, Verdict
from udfs.passes.options import IngestOptions
from udfs.tcp.overlap import Overlap

FAIL_ON = tuple(dict.fromkeys(map(str, ("lost", "stuck", "unknown", *Verdict, *FindingKind, *Severity))))
"""The values that `fail_on` accepts."""
DEMO = "demo"
"""The value of `scenario` that tells a story."""
LAST, ALL = "last", "all"
"""Values of `since` that are no times."""
NO_FLAG = "names_key"
"""The option that the command line does not take, because other users of the machine could read it there."""

_KEY_VARIABLE = "MSMQ_REPLAY_NAMES_KEY"
_SHORTEST_KEY = 16  # bytes
_MOST = (1 << 63) - 1  # TOML's own
_MOST_ROWS = 1_000_000  # of a list in a page that a browser opens
_MOST_SECONDS = 365 * 86_400
_SHOWN = 60  # characters of a wrong value
_INGEST = IngestOptions()


@dataclass(frozen=True, slots=True)
class Option:
    """Holds what is declared of an option beside its name, type and default."""

    help: str
    """One sentence for --help and the template, with the unit."""
    section: str
    """Section of the template, and the group that --help shows it in."""
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    reason: str = ""
    """A further sentence for the template."""
    least: int = 0
    most: int = _MOST
    """Bounds of a whole number."""


def _option(
    default: Any, help_text: str, *, section: str = "", choices: Iterable[str] = (), secret: bool = False, **more: Any
) -> Any:
    option = Option(help_text, section, tuple(map(str, choices)), **more)
    return field(default=default, repr=not secret, metadata={"option": option})


_ingest, _decode, _replay, _maintain, _report, _simulate = (
    partial(_option, section=name) for name in ("ingest", "decode", "replay", "maintain", "report", "simulate")
)
_rows = partial(_report, most=_MOST_ROWS)
_seconds = partial(_simulate, most=_MOST_SECONDS)


@dataclass(frozen=True, slots=True)
class Config:
    """Holds the value of every option of every command."""

    captures: tuple[str, ...] = _option(
        (),
        "files, folders or globs of captures, on any file system of pyarrow.fs",
        metavar="URI",
        reason="For example /data, file:, s3:, abfs:, hdfs: or /Volumes.",
    )
    warehouse: str = _option("", "folder of the Delta tables, a path or URI", metavar="URI")
    catalog_schema: str = _option(
        "", "registered tables, CATALOG.SCHEMA, in place of a folder", metavar="CATALOG.SCHEMA"
    )
    json: bool = _option(False, "print the run's summary as one JSON object on stdout")
    log_format: str = _option(
        "text", "progress on stderr: text for people, or one JSON object a line", choices=("text", "json")
    )
    verbose: bool = _option(
        False, "print what Spark's JVM says on stderr; otherwise it goes to a file that is kept if the run fails"
    )
    out: str = _option(
        "",
        "report: the HTML file, by default <warehouse>/report.html; look: the HTML file, by default none; "
        "simulate: the folder of captures; dissector: the Lua file",
        metavar="PATH",
    )
    fail_on: tuple[str, ...] = _option(
        (),
        "exit with 3 when the run found one of these: lost, stuck, unknown, a verdict, a finding kind or a severity, "
        "comma separated",
        choices=FAIL_ON,
        metavar="LIST",
    )
    names_skeleton: str = _option(
        "",
        "nightly: write a names file here with all GUIDs, addresses and queues seen, to be filled in; names that it or "
        "--names-file has are kept",
        metavar="FILE",
    )

    bodies: str = _ingest(Bodies.DROP.value, "whether packets.raw holds message bodies", choices=Bodies)
    overlap: str = _ingest(
        _INGEST.overlap.value,
        "which bytes win where TCP segments overlap with different data",
        choices=Overlap,
        reason="first is what Windows Vista, Server 2008 and later do.",
    )
    ports: tuple[int, ...] = _ingest(_INGEST.ports, "TCP ports that carry MSMQ, [MS-MQQB] 2.1.1", metavar="PORTS")
    split_bytes: int = _ingest(
        _INGEST.split_bytes,
        "bytes of a capture that one task reads",
        reason="64 MiB keeps a worker under 1 GiB.",
        least=1 << 14,
    )
    window_bytes: int = _ingest(
        _INGEST.window_bytes,
        "bytes that a segment may lie behind the newest one of its direction and still fill a gap",
        reason="A task holds this much of each direction of one connection.",
        least=1 << 16,  # a segment
    )
    quarantine_raw_bytes: int = _ingest(
        _INGEST.quarantine_raw_bytes,
        "bytes kept of each quarantined run",
        reason="Its length and place are kept in any case. With bodies = drop, only of packets that do not decode.",
        most=1 << 30,  # Spark's rows are smaller than 2 GiB
    )
    claim_seconds: int = _ingest(
        3600,
        "seconds without a sign of life after which a run elsewhere counts as dead and is rolled back",
        reason="A run renews its lock four times as often, and whoever waits for it measures this time by its own "
        "clock. A run that is gone from this machine, and from the same container, counts as dead at once.",
        least=20,
        most=30 * 86_400,
    )

    in_memory_bytes: int = _ingest(
        1 << 30,
        "bytes of new captures up to which they are processed in the driver's memory, which costs less",
        reason="At most a 32nd of the machine's memory counts; and 16 MiB where the tables are not in a folder of this "
        "machine.",
    )

    names: str = _decode(
        "keep",
        "labels and names of queues and senders as they are, or as HMAC-SHA-256 under a key",
        choices=("keep", "hash"),
        reason="packets.raw, packets.trailer, quarantine.raw and internal_connections hold them in any case.",
    )
    names_key: str = _decode(
        "", f"the key, the same every night; better in the environment, {_KEY_VARIABLE}", secret=True
    )

    in_memory_messages: int = _replay(
        5_000_000,
        "packets of a warehouse up to which replay and report run in the driver's memory",
        reason="Also where the captures are more than in_memory_bytes. As many count as take half of the "
        "machine's memory, at 4 KiB each.",
    )

    reading: str = _replay(
        Reading.CONFORMANT.value,
        "whether a rejected message leaves the state alone (conformant) or not, [MS-MQQB] 3.1.5.8.6",
        choices=Reading,
        reason="The literal reading judges arrivals only: outcomes, transactions, findings and incidents stay empty.",
    )
    scope: str = _replay(
        Scope.AUTO.value,
        "what one replayed sequence state belongs to",
        choices=Scope,
        reason="auto takes session or queue for each session and original sender: the one under which more messages "
        "find their predecessor.",
    )

    vacuum_hours: int = _maintain(
        168,
        "hours of table versions that VACUUM keeps readable",
        reason="A week. With less, running queries may fail.",
        most=100 * 366 * 24,
    )
    state_days: int = _maintain(
        30, "days of capture time for which connection states are kept, for captures that come late", most=100 * 366
    )

    since: str = _report(
        LAST,
        "from when on the report tells: last, all, or an ISO 8601 time (UTC)",
        metavar="TIME",
        reason="last begins with the earliest capture of the last run that brought any.",
    )
    names_file: str = _report(
        "",
        "TOML or CSV file of what people call queue managers and queues; shown beside the originals",
        metavar="FILE",
        reason="TOML has the tables queue_managers (GUID or address) and queues (format name), CSV the columns "
        "original and name.",
    )
    muted_file: str = _report(
        "",
        "TOML file of findings that people know of: they are counted, but not listed, and --fail-on leaves them out",
        metavar="FILE",
        reason="Each [[muted]] has kind, until (a day), why and, to narrow it down, queue.",
    )
    session: tuple[str, ...] = _report((), "report only these session_ids", metavar="ID")
    listed_messages: int = _rows(50, "messages in each list: lost, pending, unknown and so on; worst first")
    listed_incidents: int = _rows(100, "incidents that are listed, the worst first")
    listed_findings: int = _rows(
        25, "findings that are listed: of each incident, and of each kind without one, those with most messages"
    )
    listed_sessions: int = _rows(200, "sessions that are listed, the worst first")
    drawn_sessions: int = _rows(20, "of these, sessions with charts")
    drawn_pictures: int = _rows(3, "charts of each session: one for each replayed state (scope), the worst first")
    drawn_points: int = _rows(2000, "messages in a chart; of more, an even choice of each verdict is drawn")

    scenario: str = _simulate(
        "random",
        "random: as the options below say; demo: a morning in which one of three branches is refused and one is cloned",
        choices=("random", DEMO),
        reason="The demonstration decides messages, bodies and disorder itself.",
    )
    seed: int = _simulate(1, "the same seed makes the same traffic")
    messages: int = _simulate(1000, "transactional messages, of all senders together")
    smallest_body: int = _simulate(100, "bytes of the smallest message body")
    largest_body: int = _simulate(4000, "bytes of the largest message body")
    disorder: float = _simulate(0.1, "share of transactions, and of TCP segments, that have a fault")
    capture_loss: float = _simulate(0.0, "share of frames that the capture loses, at times several in a row")
    capture_begins_s: int = _seconds(0, "seconds of traffic before the capture begins, in the middle of connections")
    capture_ends_s: int = _seconds(0, "seconds of traffic after which the capture is cut inside a record; 0: never")
    situations: bool = _simulate(
        False, "add senders that are cloned, reset, stalled, balanced, answered elsewhere, or fail to connect"
    )
    both_ends: bool = _simulate(
        False, "capture the senders' end too, before address translation, by a clock that is 7 s ahead"
    )
    mirrored: bool = _simulate(False, "capture every frame twice, as a mirror port may")
    clock_step_s: int = _seconds(0, "seconds by which the capture's clock steps back, 20 s after the traffic began")
    ring_file_bytes: int = _simulate(
        0, "bytes of one file of the ring buffer; 0: a quarter of the traffic, at most 1 GiB"
    )

    @classmethod
    def load(cls, given: Mapping[str, Any], file: str | None) -> Self:
        """Returns the options: defaults, then the file, then those `given` on the command line (None: not given).

        Raises:
            UsageError: the file cannot be read, or an option is unknown or has a value that it cannot have.
        """
        names = {one.name for one in fields(cls)}
        values = _read(file, names) if file is not None else {}
        values |= {name: value for name, value in given.items() if name in names and value is not None}
        config = cls(**{name: _checked(name, value) for name, value in values.items()})
        untold = [name for name in config.fail_on if name not in set(Verdict)]
        if config.reading == Reading.LITERAL and untold:
            raise UsageError(
                f"With --reading literal, --fail-on cannot match {', '.join(untold)}: that reading judges arrivals, so "
                f"only verdicts can match. Leave the others out, or use --reading {Reading.CONFORMANT}."
            )
        if config.names == "hash" and len(config.hiding_key or b"") < _SHORTEST_KEY:
            raise UsageError(
                f"To hash names, set {_KEY_VARIABLE} in the environment (or names_key in a file that only the job can "
                f"read) to a secret of at least {_SHORTEST_KEY} bytes."
            )
        return config

    @property
    def hiding_key(self) -> bytes | None:
        """Returns the key that names are hashed with; None when they are kept."""
        key = self.names_key or os.environ.get(_KEY_VARIABLE, "")
        return key.encode("utf-8", "surrogateescape") if self.names == "hash" else None

    @property
    def ingest(self) -> IngestOptions:
        """Returns the options of the passes of ingest."""
        return IngestOptions(
            ports=self.ports,
            overlap=Overlap(self.overlap),
            keep_bodies=self.bodies == Bodies.KEEP,
            split_bytes=self.split_bytes,
            window_bytes=self.window_bytes,
            quarantine_raw_bytes=self.quarantine_raw_bytes,
            hiding_key=self.hiding_key,
        )


DECLARED: dict[str, Option] = {one.name: one.metadata["option"] for one in fields(Config)}
DEFAULTS = Config()


def parse_time(text: Any) -> datetime:
    """Returns the ISO 8601 time, in UTC where it names no zone.

    Raises:
        UsageError: the text is no such time.
    """
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong("since", text, f"give {LAST}, {ALL} or a time of ISO 8601") from error


def _read(file: str, names: set[str]) -> dict[str, Any]:
    """Returns the keys of all sections of a file together; no key stands in two sections."""
    try:
        tree = tomllib.loads(read_local(Path(file)).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"The configuration {file} cannot be read: {error}.") from error
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= value if isinstance(value, dict) else {key: value}
    if unknown := sorted(flat.keys() - names):
        raise UsageError(f"The configuration {file} has unknown options: {', '.join(unknown)}.")
    return flat


def _checked(name: str, value: Any) -> Any:
    """Returns the value in its option's type.

    Raises:
        UsageError: it is of another type, or the option cannot have it.
    """
    default, option = getattr(DEFAULTS, name), DECLARED[name]
    if name == "since" and value not in (LAST, ALL):
        parse_time(value)
    if isinstance(default, tuple):
        return _several(name, value, option)
    if isinstance(default, bool):
        return _of_type(name, value, bool, "it is true or false")
    if isinstance(default, float):
        share = _of_type(name, value, int | float, "it is a share, from 0 to 1")
        return float(_within(name, share, 0, 1, "it is a share, from 0 to 1"))
    if isinstance(default, int):
        why = f"it is a whole number from {option.least} to {option.most}"
        return _within(name, _of_type(name, value, int, why), option.least, option.most, why)
    return _one_of(name, _text(name, value), option.choices)


def _several(name: str, value: Any, option: Option) -> tuple[Any, ...]:
    """Returns the parts of a list, or of a text with commas for `ports` and `fail_on`."""
    if isinstance(value, str):
        value = value.split(",") if name in ("ports", "fail_on") else [value]
    parts = _of_type(name, value, list | tuple, "it is a list")
    if name == "ports":
        if not parts:
            raise _wrong(name, value, "it has at least one TCP port")
        return tuple(_port(name, part) for part in parts)
    texts = [_text(name, part) for part in parts]
    if name == "fail_on":
        return tuple(_one_of(name, part, option.choices) for part in map(str.strip, texts) if part)
    return tuple(texts)


def _of_type(name: str, value: Any, kind: Any, why: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(name, value, why)
    return value


def _within(name: str, value: Any, least: int, most: int, why: str) -> Any:
    if not least <= value <= most:
        raise _wrong(name, value, why)
    return value


def _text(name: str, value: Any) -> str:
    """Returns a text that can be a path."""
    text: str = _of_type(name, value, str, "it is a text")
    if "\0" in text:
        raise _wrong(name, value, "it has a null character")
    return text


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if choices and value not in choices:
        gone = "no sender numbers its messages by connection; " if (name, value) == ("scope", "connection") else ""
        raise _wrong(name, value, f"{gone}choose from {', '.join(choices)}")
    return value


def _port(name: str, value: Any) -> int:
    try:
        port = int(_of_type(name, value, int | str, "it is a TCP port"))
    except ValueError:
        port = -1
    if not 0 < port < 1 << 16:
        raise _wrong(name, value, f"{_shown(value)} is no TCP port")
    return port


def _wrong(name: str, value: Any, why: str) -> UsageError:
    """Returns an error that says why an option cannot have a value; the value of a secret is not shown."""
    cannot = "cannot have this value" if name == NO_FLAG else f"cannot be {_shown(value)}"
    return UsageError(f"The option {name} {cannot}: {why}.")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
