"""Declares every option once; the command line, `Config` and `conf/base.toml` (by `make docs`) derive from that.

At run time a value comes from the declaration, then from the file of --config, then from the command line.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, Self

from jobs.cli.code_version import VERSION
from jobs.cli.errors import UsageError
from jobs.cli.text_files import read_text
from jobs.cli.webhook import refusal
from schemas.ingest import Bodies
from schemas.replay import FindingKind, Reading, Scope, Severity, Verdict
from udfs.ingest.options import IngestOptions
from udfs.tcp.delivery import Overlap

ANYTHING = "anything"
"""The value of `fail_on` that stands for all that a person has to see."""
OF_CAPTURES = ("no_messages", "missing_bytes", "unreadable", "no_new_captures")
"""Values of `fail_on` that say what a run could not see."""
OF_MESSAGES = ("lost", "stuck", "unacknowledged", "unknown", "unconfirmed", "delivered_twice", "not_read")
FAIL_ON = tuple(dict.fromkeys(map(str, (ANYTHING, *OF_MESSAGES, *OF_CAPTURES, *Verdict, *FindingKind, *Severity))))
"""The values that `fail_on` accepts."""
NO_EFFECT = (
    "json",
    "log_format",
    "verbose",
    "fail_on",
    "prometheus",
    "webhook",
    "out_orders",
    "claim_seconds",
    "take_over",
)
"""Options that change neither the tables nor the report; `webhook` may hold a secret."""
DEMO = "demo"
"""The value of `scenario` that tells a story."""
LAST, ALL = "last", "all"
"""Values of `since` that are no times."""
COMMA_SEPARATED = ("ports", "fail_on")
"""Lists that a text with commas can give."""

_KEY_VARIABLE = "MSMQ_REPLAY_NAMES_KEY"
_SHORTEST_KEY = 16  # bytes
_MOST = (1 << 63) - 1  # TOML's own
_MOST_SECONDS = 365 * 86_400
_SHOWN = 60  # characters of a wrong value
_INGEST = IngestOptions()


class Form(StrEnum):
    """Lists how the simulator writes a capture; `jobs.simulator.forms` says what they are."""

    PLAIN = "plain"
    SECTIONS = "sections"
    TAPS = "taps"
    INTERFACES = "interfaces"
    DIRECTIONS = "directions"
    APPENDED = "appended"
    HOSTS = "hosts"
    KEEP_ALIVES = "keep_alives"
    RENUMBERED = "renumbered"
    RENUMBERED_TRANSLATED = "renumbered_translated"


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
    """Bounds of a number."""


def _option(default: Any, help_text: str, *, section: str = "", choices: Iterable[str] = (), **more: Any) -> Any:
    return field(default=default, metadata={"option": Option(help_text, section, tuple(map(str, choices)), **more)})


_monitor, _repair, _ingest, _decode, _replay, _maintain, _report, _simulate = (
    partial(_option, section=name)
    for name in ("monitor", "repair", "ingest", "decode", "replay", "maintain", "report", "simulate")
)
_seconds = partial(_simulate, most=_MOST_SECONDS)
_share = partial(_simulate, most=1)


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
        "simulate: the folder of captures; dissector: the Lua file; export: the NDJSON file, by default, and with -, "
        "stdout",
        metavar="PATH",
    )
    out_orders: str = _option(
        "",
        "folder for lists of messages, CSV and NDJSON: those to send again, and those accepted from a suspected copy, "
        "to check",
        metavar="FOLDER",
    )
    fail_on: tuple[str, ...] = _option(
        (),
        f"exit with 3 when the run found one of these, comma separated: {', '.join(OF_MESSAGES)}, a verdict, a finding "
        f"kind or a severity; or when it was blind: {', '.join(OF_CAPTURES)}; {ANYTHING} stands for all that a person "
        "has to see",
        choices=FAIL_ON,
        metavar="LIST",
    )

    prometheus: str = _monitor(
        "",
        "file of figures for Prometheus, which node_exporter's textfile collector reads: NAME.prom in its folder",
        metavar="FILE",
        reason="It is replaced at the end of nightly and look. docs/metrics.md has the metrics.",
    )
    webhook: str = _monitor(
        "",
        "URL to post JSON to if --fail-on matched or the run failed: https, or http to this machine",
        metavar="URL",
        reason="It may hold a secret, so give it in a file that only the run's user can read. docs/metrics.md has the "
        "fields.",
    )

    take_over: bool = _repair(
        False,
        "the run that is writing to the tables is dead: do not wait until claim_seconds are over",
        reason="For a run on another machine; one that is alive on this machine is not taken over. If it lives after "
        "all, it stops at its next commit.",
    )

    again: tuple[str, ...] = _ingest(
        (),
        "captures to read again although the tables have them: files, folders or globs; what they gave is replaced",
        metavar="URI",
        reason="For captures that were read with other --ports or --overlap, or by a release with a fault.",
    )
    bodies: str = _ingest(Bodies.DROP.value, "whether packets.raw holds message bodies", choices=Bodies)
    overlap: str = _ingest(
        _INGEST.overlap.value,
        "which bytes win where TCP segments overlap with different data",
        choices=Overlap,
        reason="first is what Windows Vista, Server 2008 and later do.",
    )
    ports: tuple[int, ...] = _ingest(
        _INGEST.ports, "TCP ports that carry MSMQ, [MS-MQQB] 2.1.1", metavar="PORTS", least=1, most=(1 << 16) - 1
    )
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
        reason="At most a 24th of the machine's memory counts; and 16 MiB where the tables are not in a folder of this "
        "machine.",
    )

    names: str = _decode(
        "keep",
        f"labels and names of queues and senders as they are, or as HMAC-SHA-256 under the key in {_KEY_VARIABLE}",
        choices=("keep", "hash"),
        reason="packets.raw, packets.trailer, quarantine.raw and internal_connections hold them in any case.",
    )

    in_memory_messages: int = _replay(
        5_000_000,
        "packets of a warehouse up to which replay and report run in the driver's memory",
        reason="Also where the captures are more than in_memory_bytes. As many count as take half of the "
        "memory that a JVM of 3 GiB leaves, at 4 KiB each; up to four times as "
        "many if a night judges no more messages than that.",
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
        "from when on report and export tell: last, all, or an ISO 8601 time (UTC)",
        metavar="TIME",
        reason="last begins with the earliest capture of the last run that brought any.",
    )
    until: str = _report("", "export: up to when, an ISO 8601 time (UTC) that is left out itself", metavar="TIME")
    names_file: str = _report(
        "",
        "TOML or CSV file of what people call queue managers and queues; shown beside the originals",
        metavar="FILE",
        reason="TOML has the tables queue_managers (GUID or address) and queues (format name), CSV the columns "
        "original and name.",
    )
    session: tuple[str, ...] = _report((), "report only these session_ids", metavar="ID")

    scenario: str = _simulate(
        "random",
        "random: as the options below say; demo: a morning in which one of three branches is refused and one is cloned",
        choices=("random", DEMO),
        reason="The demonstration decides messages, bodies and disorder itself.",
    )
    seed: int = _simulate(1, "the same seed makes the same traffic")
    messages: int = _simulate(1000, "transactional messages, of all senders together")
    disorder: float = _share(0.1, "share of transactions, and of TCP segments, that have a fault")
    capture_loss: float = _share(0.0, "share of frames that the capture loses, at times several in a row")
    capture_begins_s: int = _seconds(0, "seconds of traffic before the capture begins, in the middle of connections")
    capture_ends_s: int = _seconds(0, "seconds of traffic after which the capture is cut inside a record; 0: never")
    situations: bool = _simulate(
        False, "add senders that are cloned, reset, stalled, balanced, answered elsewhere, or fail to connect"
    )
    troubles: bool = _simulate(
        False, "add senders whose messages are not acknowledged, each for another reason, or not read"
    )
    both_ends: bool = _simulate(
        False, "capture the senders' end too, before address translation, by a clock that is 7 s ahead"
    )
    mirrored: bool = _simulate(False, "capture every frame twice, as a mirror port may")
    clock_step_s: int = _seconds(0, "seconds by which the capture's clock steps back, 20 s after the traffic began")
    form: str = _simulate(
        Form.PLAIN.value,
        "sections: one for each direction; taps: two sections with all frames; interfaces: one for each direction, in "
        "turns of a second; directions, hosts: a file for each; appended: one direction behind the other; keep_alives: "
        "two captures that each miss some frames, and keep-alives with garbage; renumbered: inside and outside a "
        "firewall that draws new TCP sequence numbers; renumbered_translated: the same with address translation",
        choices=Form,
    )
    encapsulation: str = _simulate(
        "plain", "what each captured frame is in: plain, vxlan, gre, erspan_2, mpls, …; a wrong name lists all"
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
        untold = [name for name in config.fail_on if name not in {*Verdict, *OF_CAPTURES}]
        if config.reading == Reading.LITERAL and untold:
            raise UsageError(
                f"With --reading literal, --fail-on cannot match {', '.join(untold)}: that reading judges arrivals, so "
                f"only verdicts and {', '.join(OF_CAPTURES)} can match. Leave the others out, or use "
                f"--reading {Reading.CONFORMANT}."
            )
        if config.until and config.since not in {LAST, ALL} and parse_time(config.since) >= parse_time(config.until):
            raise UsageError(f"Nothing is from {config.since} (--since) on and before {config.until} (--until).")
        if config.names == "hash" and len(config.hiding_key or b"") < _SHORTEST_KEY:
            raise UsageError(
                f"To hash names, set {_KEY_VARIABLE} in the environment to a secret of at least {_SHORTEST_KEY} bytes, "
                "the same every night."
            )
        if config.webhook and (why := refusal(config.webhook)):
            raise UsageError(why)
        return config

    @property
    def hiding_key(self) -> bytes | None:
        """Returns the key that names are hashed with; None when they are kept."""
        return (os.fsencode(os.environ.get(_KEY_VARIABLE, "")) or None) if self.names == "hash" else None

    @property
    def ingest(self) -> IngestOptions:
        """Returns the options of the passes of ingest."""
        return IngestOptions(
            ports=self.ports,
            overlap=Overlap(self.overlap),
            keep_bodies=self.bodies == Bodies.KEEP,
            split_bytes=self.split_bytes,
            window_bytes=self.window_bytes,
            hiding_key=self.hiding_key,
            release=VERSION,
        )


DECLARED: dict[str, Option] = {one.name: one.metadata["option"] for one in fields(Config)}
DEFAULTS = Config()


def parse_time(text: Any, name: str = "since") -> datetime:
    """Returns the ISO 8601 time that is the value of an option, in UTC where it names no zone.

    Raises:
        UsageError: the text is no such time.
    """
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, OverflowError) as error:
        words = f"{LAST}, {ALL} or " if name == "since" else ""
        raise _wrong(name, text, f"give {words}a time of ISO 8601") from error


def _read(file: str, names: set[str]) -> dict[str, Any]:
    """Returns the keys of all sections of a file together; no key stands in two sections."""
    try:
        tree = tomllib.loads(read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"The configuration {file} cannot be read: {error}.") from error
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= value if isinstance(value, dict) else {key: value}
    if unknown := sorted(flat.keys() - names):
        raise UsageError(f"The configuration {file} has unknown options: {', '.join(unknown)}.")
    return flat


def _checked(name: str, value: Any) -> Any:
    """Returns the value in its option's type; the elements of a list each in theirs.

    Raises:
        UsageError: the option cannot have it.
    """
    default = getattr(DEFAULTS, name)
    if name == "since" and value not in (LAST, ALL):
        parse_time(value)
    if name == "until" and value:
        parse_time(value, name)
    if not isinstance(default, tuple):
        return _single(name, value, type(default))
    if isinstance(value, str):
        value = [part for part in map(str.strip, value.split(",")) if part] if name in COMMA_SEPARATED else [value]
    if not isinstance(value, list | tuple) or len(value) < len(default):
        raise _wrong(name, value, "it is a list" if not default else "it is a list of at least one")
    return tuple(_single(name, part, type(default[0]) if default else str) for part in value)


def _single(name: str, value: Any, kind: type[bool] | type[int] | type[float] | type[str]) -> Any:
    option = DECLARED[name]
    try:
        if isinstance(value, list | tuple | dict) or isinstance(value, bool) is not (kind is bool):
            raise TypeError  # noqa: TRY301 - as a conversion does
        found: Any = value if kind is bool else kind(str(value))
    except (TypeError, ValueError):
        raise _wrong(name, value, f"it is {_KINDS[kind]}") from None
    if kind in (int, float) and not option.least <= found <= option.most:
        raise _wrong(name, value, f"it is {_KINDS[kind]} from {option.least} to {option.most}")
    if option.choices and found not in option.choices:
        raise _wrong(name, value, f"choose from {', '.join(option.choices)}")
    if "\0" in str(found):
        raise _wrong(name, value, "it has a null character")
    return found


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _wrong(name: str, value: Any, why: str) -> UsageError:
    text = repr(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return UsageError(f"The option {name} cannot be {shown}: {why}.")
