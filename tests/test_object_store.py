"""A warehouse in an object store: nights in this process, two writers at once, and what the environment has to say."""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any, cast

import polars as pl
import pytest
from deltalake import DeltaTable
from object_stores import Server, running_store, tables_in
from pyspark.sql import SparkSession
from warehouses import CAPTURES, all_rows, config

from jobs.cli.capture_listing import capture_files, stamps
from jobs.cli.errors import ConflictError, JobError, UsageError
from jobs.commands import maintain, nightly, repair, report, status, unchanged_run
from jobs.tables.in_store import InStore
from jobs.tables.lock_state import PROPERTY
from jobs.tables.mirror import Store
from jobs.tables.places import open_warehouse
from schemas.ingest import CAPTURES as CAPTURES_TABLE
from schemas.ingest import STREAM_GAPS
from schemas.tables import TABLES
from udfs.capture import stores
from udfs.frames.tables import schema_of

_MISSING = "The package obstore, which tables in object stores need, is not installed."
refused = pytest.importorskip("obstore.exceptions", reason=_MISSING)

_MOST_REQUESTS = 15
"""Of a night, for each table."""
LATE, *IN_TIME = (CAPTURES / f"branches_0000{number}.pcap.gz" for number in range(3))
NIGHTS = (IN_TIME[:1], [LATE, *IN_TIME])
"""The captures of two nights; one of the second night is late."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A store with the bucket `lake`, to which the environment leads."""
    with running_store(tmp_path_factory.mktemp("store")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


def test_nights_on_a_store_leave_the_tables_of_a_folder(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    place = "s3://lake/msmq"
    for number, captures in enumerate(NIGHTS):
        before = len(server.requests())
        there = nightly.run(spark, config(cast(Path, place), *captures))
        asked = server.requests()[before:]
        assert len(asked) <= _MOST_REQUESTS * len(TABLES), f"night {number}: {len(asked)} requests"
        here = nightly.run(spark, config(tmp_path / "msmq", *captures))
        own = ("tables", "report", "seconds")
        assert {name: said for name, said in there.items() if name not in own} == {
            name: said for name, said in here.items() if name not in own
        }
    assert tables_in(place) == all_rows(tmp_path / "msmq")
    before = len(server.requests())
    again = config(cast(Path, place), LATE, *IN_TIME)
    assert unchanged_run.recall(again, stamps(capture_files(again.captures))) is not None
    unchanged = server.requests()[before:]
    assert len(unchanged) <= _MOST_REQUESTS * len(TABLES)
    assert not [line for line in unchanged if not line.startswith(("GET", "HEAD"))]


@pytest.mark.slow
@pytest.mark.usefixtures("server")
def test_commands_that_need_no_captures_change_no_row_on_a_store(spark: SparkSession) -> None:
    """After two nights, so that there are files to compact."""
    place = "s3://lake/kept"
    options = config(cast(Path, place))
    for captures in NIGHTS:
        nightly.run(spark, config(cast(Path, place), *captures))
    before = tables_in(place)
    assert status.run(spark, options)["runs"] == []
    assert repair.run(spark, options)["derived_again"] == []
    assert maintain.run(spark, config(cast(Path, place), vacuum_hours=0))["tables"] == place
    assert report.run(spark, options) == {"report": f"{place}/report.html"}
    assert repair.run(spark, options)["derived_again"] == []
    assert tables_in(place) == before


def two_writers(uri: str) -> list[InStore]:
    """Two runs, each with a view of its own."""
    return [InStore(cast(Any, None), uri, store=Store.open(uri)) for _ in range(2)]


def test_of_two_writers_one_commits_a_version(server: Server) -> None:
    uri, rounds = "s3://lake/race", 10
    one, other = two_writers(uri)
    one.create(CAPTURES_TABLE)

    def sets(writer: InStore, name: str) -> bool:
        try:
            writer.set_properties(CAPTURES_TABLE, {PROPERTY: name})
        except ConflictError:
            return False
        return True

    before = len(server.requests())
    with ThreadPoolExecutor(2) as threads:
        for number in range(rounds):
            for writer in (one, other):
                writer.forget(CAPTURES_TABLE)
                assert writer.newest_entry(CAPTURES_TABLE) == (number, None)
            done = [threads.submit(sets, writer, f"{number}{name}") for writer, name in ((one, "a"), (other, "b"))]
            won = [name for set_by, name in zip(done, "ab", strict=True) if set_by.result()]
            assert len(won) == 1
            there = DeltaTable(f"{uri}/{CAPTURES_TABLE.name}", storage_options=stores.options(uri))
            assert there.metadata().configuration[PROPERTY] == f"{number}{won[0]}"
    commits = [line for line in server.requests()[before:] if re.match(r"PUT .*/\d{20}\.json ", line)]
    assert len([line for line in commits if line.split()[1] == "200"]) == rounds
    assert all(line.endswith(" *") for line in commits)


def gap(offset: int) -> pl.DataFrame:
    """A gap at an offset."""
    rows = [{"stream_id": "a", "stream_offset": offset, "length": 1}]
    return pl.DataFrame(rows, schema_of(STREAM_GAPS.arrow))


def test_a_writer_goes_on_behind_another(tmp_path: Path) -> None:
    one, other = two_writers(f"file://{tmp_path}")
    one.create(STREAM_GAPS)
    other.create(STREAM_GAPS)
    for offset in range(25):  # past two checkpoints
        writer = (one, other)[offset % 2]
        if offset > 5:  # where a commit replaces others' files, a view that is out of date is a conflict
            writer.forget(STREAM_GAPS)
        writer.append(STREAM_GAPS, gap(offset))
    third = two_writers(f"file://{tmp_path}")[0]
    for writer in (one, other, third):
        writer.forget(STREAM_GAPS)
        assert sorted(writer.read_local(STREAM_GAPS)["stream_offset"]) == [*range(25)]
    assert [commit.version for commit in third.commits(STREAM_GAPS)] == [*range(25, -1, -1)]
    found = third.differences(STREAM_GAPS, 3, STREAM_GAPS.names)
    assert found is not None
    assert sorted(found[0]["stream_offset"]) == [*range(3, 25)]
    third.restore(STREAM_GAPS, 4)
    one.forget(STREAM_GAPS)
    assert one.count(STREAM_GAPS) == 4


def test_an_answer_that_is_lost_is_no_conflict(tmp_path: Path) -> None:
    writer, other = two_writers(f"file://{tmp_path}")
    writer.create(STREAM_GAPS)

    class Lossy:
        def __init__(self, objects: Any, error: type[Exception], *, writes: bool) -> None:
            self.objects, self.error, self.writes = objects, error, writes

        def __getattr__(self, name: str) -> Any:
            return getattr(self.objects, name)

        def put(self, path: str, data: bytes, **how: Any) -> Any:
            if not how:
                return self.objects.put(path, data)
            if self.writes:
                self.objects.put(path, data, **how)
            raise self.error("lost")

    def through(error: type[Exception], *, writes: bool) -> InStore:
        store = Store(writer.root, Lossy(writer.store.objects, error, writes=writes), tmp_path / str(monotonic()))
        return InStore(cast(Any, None), writer.root, store=store)

    through(refused.AlreadyExistsError, writes=True).append(STREAM_GAPS, gap(1))
    for writes in (False, True):
        lossy = through(refused.GenericError, writes=writes)
        with pytest.raises(JobError, match="lost"):
            lossy.append(STREAM_GAPS, gap(2 + writes))
        assert lossy.count(STREAM_GAPS) == 1 + writes
    other.forget(STREAM_GAPS)
    assert sorted(other.read_local(STREAM_GAPS)["stream_offset"]) == [1, 3]


@pytest.mark.parametrize(
    ("uri", "said", "sentence"),
    [
        ("s3://", {}, "names no bucket"),
        ("s3://lake/x", {}, "set AWS_REGION"),
        ("s3a://lake/x", {"AWS_ENDPOINT_URL": "store:9000"}, "set it to a URL"),
        ("s3://lake/x", {"AWS_REGION": "r", "AWS_ACCESS_KEY_ID": "k"}, "AWS_ACCESS_KEY_ID is set without"),
        ("s3://lake/x", {"AWS_REGION": "r", "AWS_SECRET_ACCESS_KEY": "k"}, "without AWS_ACCESS_KEY_ID"),
        ("abfs://lake/x", {}, "set AZURE_STORAGE_ACCOUNT_NAME"),
        ("gs://lake/x", {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere"}, "which is no file"),
        (
            "s3://lake/x",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"},
            "it does not answer: look at AWS_ENDPOINT_URL",
        ),
    ],
)
def test_what_the_environment_lacks_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, uri: str, said: dict[str, str], sentence: str
) -> None:
    for name in ("ENDPOINT_URL", "REGION", "DEFAULT_REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((UsageError, JobError), match=sentence):
        open_warehouse(None, config(cast(Path, uri))).has(CAPTURES_TABLE)


def test_each_library_gets_its_name() -> None:
    names = ("s3://a/b", "s3a://a/b", "abfs://a@c.dfs.core.windows.net/b", "gs://a/b", "hdfs://a/b", "/a/b")
    assert [*map(stores.hadoop_uri, names)] == [
        "s3a://a/b",
        "s3a://a/b",
        "abfss://a@c.dfs.core.windows.net/b",
        "gs://a/b",
        "hdfs://a/b",
        "/a/b",
    ]
    assert [stores.in_store(name) for name in names] == [True] * 4 + [False] * 2
    assert stores.options(names[2])["azure_storage_account_name"] == "c"


def test_tasks_are_told_of_the_stores_that_were_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing without a store; keys all together or not at all; what a task's machine knows itself stays."""
    for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setattr(stores, "_used", set())
    monkeypatch.setenv("AWS_REGION", "here")
    assert stores.handed_over() == {}
    stores.place_of("s3a://lake/x")
    assert stores.handed_over() == {"AWS_REGION": "here"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    given = stores.handed_over()
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": ""}
    assert given == {"AWS_REGION": "here"} | keys
    for name, value in {"ACCESS_KEY_ID": "o", "SESSION_TOKEN": "o", "DEFAULT_REGION": "o"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    stores.take_over(given)
    there = {name: os.environ.get(name, "") for name in (*keys, "AWS_REGION", "AWS_DEFAULT_REGION")}
    assert there == given | {"AWS_DEFAULT_REGION": "o"}
    stores.place_of("gs://lake/x")
    assert set(stores.handed_over()) >= set(given)
