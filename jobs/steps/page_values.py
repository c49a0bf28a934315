"""Puts the collected rows of a report into the values that its page shows, the headline among them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jobs.app.config import Config
from jobs.app.muted import Muted
from jobs.app.names import Names
from jobs.report_page import arrange
from jobs.steps.headline import NOT_TOLD, headline_figures, located
from schemas.outcomes import Outcome, count_column
from udfs.derive.report.rows import Rows


def page_values(
    rows: Mapping[str, Rows], config: Config, place: str, since: datetime | None, muted: Sequence[Muted], names: Names
) -> dict[str, Any]:
    """Returns the values of a report of `rows`, as `udfs.derive.report.page.collect` returns them.

    `place` names the tables, if there are any. `since` begins the period, None if it begins with the tables.
    """
    numbers = arrange.numbers(rows, only=bool(config.session))
    figures = headline_figures(
        {outcome: numbers[count_column(outcome)] for outcome in Outcome},
        **{name: numbers[name] for name in ("stuck", "missing_bytes", "unjudged", "errors")},
    )
    return arrange.page(rows, rows["extent"][0], config, place, since) | {
        "muted": [one._asdict() for one in muted],
        "muted_findings": rows["muted"],
        "not_told": NOT_TOLD,
        "numbers": numbers,
        "headline": located(figures, rows["places"][0], names)._asdict(),
    }
