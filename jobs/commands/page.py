"""Makes the values of the report's page from the tables of any engine. No Spark here."""

from datetime import datetime
from typing import Any

import polars as pl

from jobs.cli.config import ALL, LAST, Config, parse_time
from jobs.cli.errors import UsageError
from jobs.cli.names import Names
from jobs.commands.headline import NOT_TOLD, WAITS, nothing_lost
from jobs.commands.headline_figures import Facts, headline_figures
from jobs.report_page import arrange
from schemas.outcomes import Outcome, count_column
from schemas.replay import FindingKind
from udfs.frames.engine import Engine, T
from udfs.replay.fitness.amiss import cut_short
from udfs.replay.outcomes.counts import NOT_READ, SINCE
from udfs.report.findings import errors_alone, found_alone, unheard
from udfs.report.flow import REPORTED, collect, read_few, why_nothing_in_period
from udfs.report.period import begin_of_last_run
from udfs.report.summary import unread_frames


def values(engine: Engine[T], config: Config, place: str, names: Names) -> dict[str, Any]:
    """Returns the values that the page shows; no part grows with the tables. `place` is that of the tables.

    Raises:
        UsageError: a session that was asked for is not there.
    """
    few = read_few(engine, *REPORTED)
    if unknown := sorted({*config.session} - {*few["sessions"]["session_id"]}):
        raise UsageError(f"The tables hold no session {', '.join(unknown)}.")
    since = begin_of_period(config, few["captures"])
    rows = collect(engine, few, since, config.session)
    numbers = arrange.numbers(rows)
    failed = found_alone(few["findings"], FindingKind.CANNOT_CONNECT)
    nothing_told = not numbers["messages"]
    facts = Facts(
        {outcome: numbers[count_column(outcome)] for outcome in Outcome},
        rows["places"],
        rows["machines"],
        rows["ways"],
        unread_frames(few["captures"]),
        rows["shown"],
        not_read=rows[NOT_READ],
        not_read_since_ns=rows[SINCE],
        **{name: numbers[name] for name in ("confirmed", "missing_bytes", "unjudged", "passing_through", "errors")},
        unfit=cut_short(few["captures"].to_dicts()) if nothing_told else "",
        why=why_nothing_in_period(engine, few, since, has_failed=bool(failed)) if nothing_told else "",
        apart=len(errors_alone(few["findings"])),
        silences=rows["silences"],
        failed=failed,
        unheard=len(unheard(few["findings"], few["incidents"])),
    )
    figures = headline_figures(facts, names)
    return arrange.page(rows, config, place) | {
        "not_told": NOT_TOLD,
        "captures_end_ns": rows["shown"].last_ns,
        "numbers": numbers,
        "headline": {
            **figures._asdict(),
            "doubted": figures.doubted,
            "nothing_lost": nothing_lost(figures),
            "waits": WAITS,
        },
    }


def begin_of_period(config: Config, captures: pl.DataFrame) -> datetime | None:
    """Returns the beginning of the period; None for all that the tables hold."""
    if config.since == ALL:
        return None
    return begin_of_last_run(captures) if config.since == LAST else parse_time(config.since)
