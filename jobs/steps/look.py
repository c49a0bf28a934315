"""Looks at captures in this process: says what became of messages, without Spark and without tables."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import polars as pl

from jobs.app.capture_listing import Stamp, capture_files, stamps
from jobs.app.command import Summary
from jobs.app.config import ALL, LAST, Config, parse_time
from jobs.app.errors import UsageError
from jobs.app.logs import step, warn
from jobs.app.memory import FEW_BYTES, bytes_of, share_of_memory
from jobs.app.muted import Muted, read_muted
from jobs.app.names import Names
from jobs.app.standard_input import STANDARD_INPUT, received
from jobs.steps.at_once import derive_tables
from jobs.steps.found import decoded, muted_counts, outcomes_told, with_names
from schemas.messages import DECODED_TABLES
from udfs.derive.report.findings import is_muted, worst_incidents
from udfs.derive.report.messages import harm_by_queue
from udfs.derive.report.summary import counted, counts, kinds_by_severity, told

_STEPS = 4
_MB = 10**6
_COUNTED = (
    *(("captures", "status"), ("messages", "transactional"), ("acks", "ack_type"), ("quarantine", "reason")),
    *(("books", "balanced"), ("verdicts", "verdict"), ("findings", "kind"), ("incidents", "outcome")),
)
"""Tables, and the column by whose values their rows are counted."""
_REPLAYED = ("verdicts", "findings", "incidents")
_ALONE = "decoded_alone"
_PROOF = ("role", "uri", "frame_number", "captured_at")
Tables = Mapping[str, pl.DataFrame]


def run(config: Config) -> Summary:
    """Looks at the captures; returns the summary, with all rows of what was found where JSON is asked for.

    Raises:
        UsageError: the captures are too large for the memory, or the options are wrong.
    """
    if not config.captures:
        raise UsageError("Name what to look at: captures, folders, globs, or - for standard input.")
    if config.continue_from:
        warn("look: continue_from is left out of account, because look reads no tables: nightly does")
    names, muted = Names.read(config.names_file), read_muted(config.muted_file)
    since = None if config.since in (ALL, LAST) else parse_time(config.since)
    with _captures(config) as (files, shown):
        tables = derive_tables(files, config, shown, _STEPS)
    with step("report" if config.out else "summary", _STEPS, _STEPS):
        found = summarize(tables, names, muted)
        if config.out:
            _write_report(tables, config, since, muted, names)
            found["report"] = config.out
        return found | ({"rows": _rows(tables)} if config.json else {})


@contextmanager
def _captures(config: Config) -> Iterator[tuple[Mapping[str, Stamp], Mapping[str, str]]]:
    """Yields the files, and what those are called that have another name than their own.

    Raises:
        UsageError: they are too large.
    """
    limit = min(config.in_memory_bytes, max(share_of_memory(), FEW_BYTES))
    given = [uri for uri in config.captures if uri != STANDARD_INPUT]
    if len(given) == len(config.captures):
        yield _of_at_most(limit, given), {}
        return
    with received(limit) as file:
        yield _of_at_most(limit, [*given, str(file)]), {str(file): STANDARD_INPUT}


def _of_at_most(limit: int, captures: Sequence[str]) -> Mapping[str, Stamp]:
    files = stamps(capture_files(captures))
    if bytes_of(files, limit) > limit:
        raise UsageError(
            f"There are more than {limit / _MB:,.0f} MB of captures, and look holds all of them in memory: a 32nd of "
            "this machine's, or what --in-memory-bytes says, if that is less. nightly has no such limit, because it "
            "puts Spark to work: msmq-replay nightly --captures FILE --warehouse FOLDER."
        )
    return files


def summarize(tables: Tables, names: Names, muted: Sequence[Muted] = ()) -> Summary:
    """Returns what `nightly` says of the same captures, and the frames that prove each incident."""
    found = [counted(tables[name], name, column) for name, column in _COUNTED]
    found += [counted(tables[table.name], _ALONE, _ALONE) for table in DECODED_TABLES]
    by_value = counts([*(name for name, _ in _COUNTED), _ALONE], found)
    harm = harm_by_queue(tables["outcomes"])
    summary = {"captures": by_value["captures"]} | decoded(by_value)
    summary |= {name: by_value[name] for name in _REPLAYED}
    summary |= outcomes_told(told(tables["sessions"], harm, tables["findings"], tables["incidents"]), names)
    if muted:
        known = tables["findings"].filter(is_muted([(one.kind, one.queue) for one in muted]))
        summary["muted"] = muted_counts(kinds_by_severity(known))
    proofs = dict(tables["incidents"].select("incident_id", "witness").iter_rows())
    for incident in summary.get("worst_incidents", ()):
        packets = proofs[incident["incident_id"]]
        incident["proof"] = [{name: _plain(packet[name]) for name in _PROOF} for packet in packets if packet["uri"]]
    return with_names(summary, names)


def _write_report(tables: Tables, config: Config, since: datetime | None, muted: Sequence[Muted], names: Names) -> None:
    """Writes the page to the place that --out names; what makes it is imported only where one is asked for."""
    from jobs.app.text_files import write_text  # noqa: PLC0415
    from jobs.report_page import arrange  # noqa: PLC0415
    from jobs.report_page.render import render  # noqa: PLC0415
    from jobs.report_page.saved import SAVED_FOR_EACH_LISTED  # noqa: PLC0415
    from jobs.steps.page_values import page_values  # noqa: PLC0415
    from udfs.derive.report import page  # noqa: PLC0415

    options = page.Options(
        since,
        config.session,
        tuple((one.kind, one.queue) for one in muted),
        config.listed_messages,
        config.listed_messages * SAVED_FOR_EACH_LISTED,
        config.listed_incidents,
        config.listed_findings,
        config.listed_sessions,
        config.drawn_sessions,
        config.drawn_pictures,
        config.drawn_points,
    )
    rows = page.collect(tables, options, arrange.steps)
    begin = since if rows["extent"][0]["cut"] else None
    write_text(config.out, render(page_values(rows, config, "", begin, muted, names), names=names))


def _rows(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    """Returns the incidents, the worst first, the findings and the outcomes, with their witnesses, for JSON."""
    incidents = tables["incidents"]
    order = worst_incidents(incidents, incidents.height).select("incident_id")
    found = {
        "incidents": order.join(incidents, on="incident_id", how="left", maintain_order="left"),
        "findings": tables["findings"].sort("found_at", "scope_key", "tx_sequence_id", "kind", nulls_last=True),
        "outcomes": tables["outcomes"].sort("first_seen_at", "scope_key", "tx_sequence_id", nulls_last=True),
    }
    # As a number, a TxSequenceID would lose its last digits in many readers of JSON.
    return {
        name: _plain(rows.with_columns(pl.col(pl.UInt64).cast(pl.String)).to_dicts()) for name, rows in found.items()
    }


def _plain(value: Any) -> Any:
    """Returns the value in a form that JSON can hold: times are texts of ISO 8601."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    return value.isoformat() if isinstance(value, datetime) else value
