"""What a warehouse must have so that another one can continue it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from warehouses import config

from jobs.app.errors import UsageError
from jobs.steps import previous_warehouse
from jobs.warehouse import local_commits
from jobs.warehouse.tables import path_in
from schemas.replay import ENDS, STATES


def test_one_of_an_older_version_is_replayed_first(tmp_path: Path) -> None:
    """It has the table `ends`, of which the name is `stream_ends` now."""
    no_spark: Any = None
    old = str(tmp_path / "old")
    given = config(tmp_path / "new", continue_from=old)
    for table in (STATES, replace(ENDS, name="ends")):
        local_commits.create(path_in(old, table.name), table, {})
    with pytest.raises(UsageError, match=r"no table stream_ends in .*/old: run msmq-replay replay there first\."):
        previous_warehouse.version(no_spark, given)
    local_commits.create(path_in(old, ENDS.name), ENDS, {})
    assert previous_warehouse.version(no_spark, given) == [old, {"states": 0, "stream_ends": 0}]
