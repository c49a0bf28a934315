"""Of more messages of the same connections, no more rows come to the driver where the replay runs in tasks."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from made_rows import nights_of, write_night
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from warehouses import config

from jobs.commands import replay
from jobs.engines import on_spark

_SCOPES, _MESSAGES = 4, 300
_FEW = 40
"""Rows that are few: less than one scope has messages."""


@pytest.mark.slow
def test_rows_that_come_to_the_driver_do_not_grow_with_messages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: Counter[str] = Counter()
    for name in ("toArrow", "collect"):
        monkeypatch.setattr(DataFrame, name, _counted(getattr(DataFrame, name), came))
    for name in ("_FEW_ROWS", "MOST_ROWS", "_FEW_BYTES"):
        monkeypatch.setattr(on_spark, name, _FEW)
    counts = []
    for times in (1, 2, 4):
        folder, messages = tmp_path / str(times), times * _MESSAGES
        write_night(folder, messages, _SCOPES, nights_of(messages, _SCOPES)[0])
        came.clear()
        replay.run(spark, config(folder, in_memory_messages=0, in_memory_bytes=0))
        counts.append(came.copy())
    most = {place: [of[place] for of in counts] for place in set().union(*counts)}
    many = {place: rows for place, rows in most.items() if max(rows) > _FEW + 1}
    assert most
    assert not many, (
        f"most rows that come at once, by where they are asked for, of 1, 2 and 4 times the messages: {many}"
    )


def _counted(ask: Any, came: Counter[str]) -> Any:
    """Counts the most rows that a method brings to the driver at once, by the line of the program that asks for them.

    Whoever asks whether rows are few gets one more than may be few.
    """

    def counted(self: DataFrame) -> Any:
        found = ask(self)
        frame = sys._getframe(1)
        while "/jobs/engines/" in frame.f_code.co_filename and frame.f_back:
            frame = frame.f_back
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        came[place] = max(came[place], len(found))
        return found

    return counted
