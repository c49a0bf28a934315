"""Makes the values of the report's page from the tables of any engine. No Spark here."""

from datetime import datetime
from typing import Any

from jobs.app.config import ALL, LAST, Config, parse_time
from jobs.app.names import Names
from jobs.engine.engine import Engine, T
from jobs.report_page import arrange
from jobs.reporting.few import REPORTED, Few, read_few
from jobs.reporting.flow import Collected, collect
from jobs.steps.headline import NOT_TOLD, headline_figures, located
from schemas.outcomes import Outcome, count_column
from udfs.derive.report.page import Options
from udfs.derive.report.period import begin_of_last_run
from udfs.derive.report.summary import machines_to_blame

_LIMITS = (
    *("listed_messages", "listed_incidents", "listed_findings", "listed_sessions"),
    *("drawn_sessions", "drawn_pictures", "drawn_points"),
)
_SAVED_FOR_EACH_LISTED = 100
"""Messages that a list can be saved with, for each that the page may show of it."""
OPTIONS = ("since", "session", *_LIMITS)
"""Names of the options that say what the page shows."""


def collected_rows(engine: Engine[T], config: Config) -> Collected:
    """Returns the rows that the page shows; no part grows with the tables."""
    few = read_few(engine, *REPORTED)
    options = Options(
        since=_since(config, few),
        session=config.session,
        saved_messages=config.listed_messages * _SAVED_FOR_EACH_LISTED,
        **{name: getattr(config, name) for name in _LIMITS},
    )
    return collect(engine, few, options)


def values(collected: Collected, config: Config, place: str, names: Names) -> dict[str, Any]:
    """Returns the values that the page shows; `place` is that of the tables."""
    rows = collected.rows
    numbers = arrange.numbers(rows, only=bool(config.session))
    machines = machines_to_blame(collected.chosen.incidents)
    figures = headline_figures(
        {outcome: numbers[count_column(outcome)] for outcome in Outcome},
        **{name: numbers[name] for name in ("stuck", "missing_bytes", "unjudged", "errors")},
    )
    return arrange.page(rows, config, place, collected.chosen.period.since) | {
        "not_told": NOT_TOLD,
        "numbers": numbers,
        "headline": located(figures, rows["places"][0], machines, names)._asdict(),
    }


def _since(config: Config, few: Few) -> datetime | None:
    """Returns the beginning of the period; None for all that the tables hold."""
    if config.since == ALL:
        return None
    return begin_of_last_run(few["captures"]) if config.since == LAST else parse_time(config.since)
