"""Passes that run in several processes: the rows of one process, in the same order, and errors that are not lost."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from jobs.commands import increments
from jobs.engines.in_process import InProcess
from jobs.engines.processes import Processes, cores
from jobs.simulator import CAPTURE_PREFIX, simulate
from schemas import staging
from udfs.frames.rows import Batches
from udfs.ingest.flow import extract, find_new_captures
from udfs.ingest.options import IngestOptions

_ROWS = [pa.RecordBatch.from_pydict({"number": [number]}) for number in range(5)]


def with_process(batches: Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column("process", pa.array([os.getpid()] * batch.num_rows))


def refuse(batches: Batches) -> Iterator[pa.RecordBatch]:
    raise OSError(f"cannot read {next(iter(batches))['number'][0]}")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(2, "udfs.frames.rows") as two:
        yield two


def test_rows_keep_their_order_and_come_from_other_processes(processes: Processes) -> None:
    twice = [pa.Table.from_batches(processes.run(with_process, _ROWS)) for _ in range(2)]
    assert [made["number"].to_pylist() for made in twice] == [[0, 1, 2, 3, 4]] * 2
    used = {process for made in twice for process in made["process"].to_pylist()}
    assert os.getpid() not in used
    assert 1 <= len(used) <= 2


def test_an_error_in_a_process_is_an_error_here_and_changes_nothing_after_it(processes: Processes) -> None:
    with pytest.raises(OSError, match="cannot read 0"):
        list(processes.run(refuse, _ROWS))
    assert len(list(processes.run(with_process, _ROWS))) == len(_ROWS)


def test_captures_that_several_processes_read_give_the_rows_that_one_gives(
    processes: Processes, tmp_path: Path
) -> None:
    simulate(str(tmp_path), 3, 300, file_bytes=60_000)
    files = sorted(map(str, tmp_path.glob(f"{CAPTURE_PREFIX}_*.pcap")))
    options = IngestOptions(split_bytes=1 << 14)
    found = []
    for given in (None, processes):
        engine = InProcess(processes=given)
        captures = find_new_captures(engine, files, options)
        found.append((captures, extract(engine, captures, options).rows))
    (one, rows), (several, apart) = found
    assert len(files) > 1
    assert sum(len(capture["cursors"]) for capture in one) > len(files)
    assert one == several
    assert set(staging.EXTRACTED.names) == set(rows.columns)
    assert_frame_equal(rows, apart)


def test_small_captures_are_worth_no_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(increments, "Processes", lambda many, _: many)
    many: Any = increments.processes(1 << 30)
    assert many == (cores() if cores() > 1 else None)
    assert increments.processes(1 << 20) is None
