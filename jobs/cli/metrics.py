"""Writes a run's figures for Prometheus, as node_exporter's textfile collector reads them.

The names and labels in METRICS are stable; `docs/metrics.md` and the dashboard in `conf/grafana` are made for them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from jobs.cli.alarm import matched
from jobs.cli.config import ANYTHING, OF_CAPTURES, OF_MESSAGES
from jobs.cli.logs import printable
from jobs.cli.text_files import write_text
from schemas.incidents import IncidentOutcome
from schemas.ingest import CaptureStatus
from schemas.outcomes import NOT_KNOWN, Outcome
from schemas.replay import FindingKind, Severity

PREFIX = "msmq_replay_"
_KINDS = (FindingKind.CANNOT_CONNECT.value, FindingKind.REPEATED_ORDER_ACK.value)
_ALARMS = (*OF_MESSAGES, *_KINDS, str(Severity.ERROR), *OF_CAPTURES)
_TIME = "%Y-%m-%d %H:%M:%S UTC"

Summary = Mapping[str, Any]
Sample = tuple[Mapping[str, str], int | float | None]
"""Labels and a number; None where it is not known: there is no sample then."""


class Metric(NamedTuple):
    """Declares a metric, which is a gauge; `name` is without the prefix."""

    name: str
    meaning: str
    samples: Callable[[Summary], Iterable[Sample]]
    labels: tuple[str, ...] = ()


def write_metrics(place: str, summary: Summary, exit_code: int) -> None:
    """Writes the file, whole or not at all.

    Raises:
        JobError: the place cannot be written.
    """
    ended = round(datetime.now(UTC).timestamp())
    write_text(place, exposition({**summary, "exit_code": exit_code, "ended": ended}))


def exposition(summary: Summary) -> str:
    """Returns the figures of a summary, of its `exit_code`, and of when it `ended`, in Prometheus's text format."""
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, summary))


def _lines(metric: Metric, summary: Summary) -> Iterator[str]:
    name = f"{PREFIX}{metric.name}"
    samples = [(labels, number) for labels, number in metric.samples(summary) if number is not None]
    if samples:
        yield f"# HELP {name} {metric.meaning}"
        yield f"# TYPE {name} gauge"
    for labels, number in samples:
        named = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        yield f"{name}{f'{{{named}}}' if named else ''} {number}"


def _escaped(value: str) -> str:
    """Returns the value of a label so that it ends neither its quotes nor its line, and that a terminal can show."""
    text = printable(value.encode("utf-8", "replace").decode())
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _figure(*path: str) -> Callable[[Summary], Iterable[Sample]]:
    """Returns what reads one figure of a summary."""

    def read(summary: Summary) -> Iterable[Sample]:
        found: Any = summary
        for name in path:
            found = (found or {}).get(name)
        return [({}, found)]

    return read


def _counts(path: str, label: str, values: Iterable[str]) -> Callable[[Summary], Iterable[Sample]]:
    """Returns what reads the counts by these values, 0 among them; nothing where the run did not count."""
    known = tuple(map(str, values))

    def read(summary: Summary) -> Iterable[Sample]:
        counts = summary.get(path)
        return [] if counts is None else [({label: value}, counts.get(value, 0)) for value in known]

    return read


def _outcomes(summary: Summary) -> Iterable[Sample]:
    return [] if summary.get("lost") is None else _counts("outcomes", "outcome", Outcome)(summary)


def _alarms(summary: Summary) -> Iterable[Sample]:
    found = matched([ANYTHING], summary)
    return [({"word": word}, int(word in found)) for word in _ALARMS]


def _unknown(summary: Summary) -> Iterable[Sample]:
    return [] if summary.get("lost") is None else [({}, sum(summary["outcomes"].get(one, 0) for one in NOT_KNOWN))]


def _time(which: str) -> Callable[[Summary], Iterable[Sample]]:
    def read(summary: Summary) -> Iterable[Sample]:
        text = (summary.get("period") or {}).get(which)
        return [({}, text and round(datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()))]

    return read


def _lost_by(summary: Summary) -> Iterable[Sample]:
    return [
        ({"sender": row["source_queue_manager"] or "", "queue": row["destination_queue"] or ""}, row["lost"])
        for row in summary.get("lost_by", ())
    ]


METRICS = (
    Metric("run_ended_timestamp_seconds", "When the last run ended that told what it found.", _figure("ended")),
    Metric("run_duration_seconds", "How long it took.", _figure("seconds")),
    Metric(
        "run_exit_code", "Its exit code: 0, 1 where its books do not balance, 3 for --fail-on.", _figure("exit_code")
    ),
    Metric(
        "alarm",
        "1 where the word of --fail-on holds, as for --fail-on anything, whatever the run was asked for; else 0.",
        _alarms,
        ("word",),
    ),
    Metric("new_captures", "Captures that the run read.", _figure("new_captures")),
    Metric("newest_captures", "Captures of the last run that read any.", _figure("newest_captures", "captures")),
    Metric("newest_captures_messages", "MSMQ's messages in them.", _figure("newest_captures", "messages")),
    Metric(
        "newest_captures_missing_bytes",
        "Bytes of their connections that no capture holds.",
        _figure("newest_captures", "missing_bytes"),
    ),
    Metric(
        "newest_captures_missing_files",
        "Files that their series lacks, by number.",
        _figure("newest_captures", "missing_files"),
    ),
    Metric(
        "newest_captures_cut_segments",
        "Segments in them that are cut short.",
        _figure("newest_captures", "cut_segments"),
    ),
    Metric(
        "newest_captures_damaged_segments",
        "Damaged segments in them.",
        _figure("newest_captures", "damaged_segments"),
    ),
    Metric(
        "newest_captures_not_whole",
        "Those of them that could not be read, or only in part.",
        _figure("newest_captures", "not_whole"),
    ),
    Metric(
        "newest_captures_without_times",
        "Those of them whose records have no time.",
        _figure("newest_captures", "without_times"),
    ),
    Metric(
        "newest_captures_without_messages",
        "Those of them that hold no packet of MSMQ.",
        _figure("newest_captures", "without_messages"),
    ),
    Metric(
        "captures",
        "Captures by how much of them could be read.",
        _counts("captures", "status", CaptureStatus),
        ("status",),
    ),
    Metric("first_captured_timestamp_seconds", "Time of the first record in the captures.", _time("first")),
    Metric("last_captured_timestamp_seconds", "Time of the last record in the captures.", _time("last")),
    Metric("lost_messages", "Messages that are lost for good.", _figure("lost")),
    Metric("stuck_messages", "Messages that are refused again and again.", _figure("stuck")),
    Metric("unacknowledged_messages", "Messages that their receiver never acknowledged.", _figure("unacknowledged")),
    Metric("unknown_messages", "Messages of which the captures do not tell.", _unknown),
    Metric(
        "unjudged_messages",
        "Arrivals of other messages, which were not judged: no packet names their receiver.",
        _figure("unjudged"),
    ),
    Metric("confirmed_messages", "Delivered messages that an acknowledgment confirms.", _figure("confirmed")),
    Metric("unconfirmed_messages", "Other messages that were accepted, wait or are in doubt.", _figure("unconfirmed")),
    Metric(
        "accepted_not_read_messages",
        "Messages that were accepted and not read yet; absent where nothing reports it.",
        _figure("accepted_not_read_messages"),
    ),
    Metric("messages", "Transactional messages by what became of them.", _outcomes, ("outcome",)),
    Metric(
        "queue_lost_messages",
        "Lost messages of the three senders and queues that lost the most.",
        _lost_by,
        ("sender", "queue"),
    ),
    Metric("incidents", "Incidents by how they ended.", _counts("incidents", "outcome", IncidentOutcome), ("outcome",)),
    Metric("findings", "Findings by severity.", _counts("severities", "severity", Severity), ("severity",)),
    Metric("unbalanced_books", "Books that do not balance: a fault of msmq-replay.", _figure("books", "unbalanced")),
)
