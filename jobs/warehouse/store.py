"""Where the tables live: a folder of Delta tables, or registered ones. Every read and write goes through here.

Every commit says in its user metadata which step made it and, for a derived table, from which versions of which tables.
"""

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit
from pyspark.sql.utils import is_remote

from jobs.app.config import Config
from jobs.app.errors import ConflictError, JobError, UsageError
from jobs.app.logs import progress
from jobs.app.parallel import run_in_parallel
from jobs.warehouse.checkpoint import checkpoint
from jobs.warehouse.log import commit_info
from jobs.warehouse.log import versions as log_versions
from schemas.table import Column, Table

Origin = dict[str, Any]
"""What rows were derived from: versions of tables, and options."""

_CONFLICT = re.compile(r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)")
_NO_TABLE = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
_TAG = "spark.databricks.delta.commitInfo.userMetadata"
_UPKEEP = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES")
"""Operations that leave a table's rows as they are."""
_CHECK = "delta.constraints."
_SCHEMA = "msmq.schema"
_TOLD = "delta.dataSkippingStatsColumns"
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_COMMITS = 100
_LONGEST_WITH_READERS = 168
"""Hours that Delta wants files to be kept, so that no reader loses one."""
_ATTEMPTS = 5
POLL_S = 2.0
"""Seconds between two looks at what another run does."""


class Commit(NamedTuple):
    """One commit of a table: its version, what it did, and the tag that this program gave it, if it was its own."""

    version: int
    at: datetime
    operation: str
    parameters: dict[str, str]
    tag: dict[str, Any]

    @classmethod
    def of(cls, version: int, at: datetime, said: Mapping[str, Any]) -> Self:
        """The commit of which this is said in its `commitInfo`, or in a row of DESCRIBE HISTORY."""
        try:
            tag = json.loads(said.get("userMetadata") or "{}")
        except ValueError:  # another program's
            tag = {}
        parameters = said.get("operationParameters") or {}
        return cls(version, at, said.get("operation") or "", parameters, tag if isinstance(tag, dict) else {})

    @property
    def changed_rows(self) -> bool:
        """Whether the table's rows may be others than before."""
        return self.operation not in _UPKEEP


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _identifier(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


def _declared(table: Table) -> dict[str, str]:
    """The table's properties, but for its checks."""
    told = {_TOLD: ",".join(table.statistics_columns)} if table.statistics else {}
    return {_SCHEMA: table.fingerprint} | told


def _properties(pairs: Mapping[str, str]) -> str:
    return ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in pairs.items())


def _definition(column: Column) -> str:
    required = "" if column.nullable else " NOT NULL"
    return f"{_identifier(column.name)} {column.type.simpleString()}{required} COMMENT {_quoted(column.comment)}"


def _clustering(table: Table) -> str:
    return f"CLUSTER BY ({', '.join(map(_identifier, table.clustered_by))})" if table.clustered_by else ""


def located(folder: str, name: str) -> str:
    """Path of something in a folder of tables; a path without scheme is made absolute."""
    folder = folder if "://" in folder else str(Path(folder).absolute())
    return f"{folder.rstrip('/')}/{name}"


@dataclass(frozen=True, slots=True)
class Warehouse:
    """Tables at `<folder>/<name>` or, when `catalog_schema` is given, registered as CATALOG.SCHEMA.NAME."""

    spark: SparkSession
    folder: str = ""
    catalog_schema: str = ""
    histories: dict[str, list[Commit]] = field(default_factory=dict, repr=False, compare=False)
    kept: dict[str, tuple[int, DataFrame]] | None = field(default=None, repr=False, compare=False)
    """Rows of tables that were read or written, and the version that they are of at least."""

    @classmethod
    def of(cls, spark: SparkSession, config: Config) -> Self:
        """The warehouse that the options name.

        Raises:
            UsageError: they name none, or two.
        """
        if bool(config.warehouse) == bool(config.catalog_schema):
            raise UsageError("Give the tables one place: --warehouse URI or --catalog-schema CATALOG.SCHEMA.")
        return cls(spark, config.warehouse, config.catalog_schema)

    def keeping(self) -> Self:
        """The same, which reads a table once for as long as it does not change, and not at all one that it replaced.

        For small ones, as their rows are computed before they are written. Delta makes three queries of its own of the
        first scan of each version of a table, and one of every other.
        """
        return replace(self, kept={})

    @property
    def place(self) -> str:
        """The folder or the catalog and schema, as a person would look for it."""
        return self.catalog_schema or self.location("").rstrip("/")

    def name(self, table: Table) -> str:
        """The table as SQL names it."""
        if self.catalog_schema:
            return ".".join(_identifier(part) for part in (*self.catalog_schema.split("."), table.name))
        return f"delta.{_identifier(self.location(table.name))}"

    def location(self, name: str) -> str:
        """Path of something in the folder."""
        return located(self.folder, name)

    def create(self, table: Table, *, derived: bool = False) -> None:
        """Make the table with its comments and CHECK constraints, unless it is there.

        One of another declaration is made anew, empty, where its rows are `derived`; where they are not, it gets the
        columns that are new, if they may be null, and its checks, comments and clustering are brought up to date.

        Raises:
            JobError: it has columns of other types than this version of the program writes, or lacks one that it needs.
            UsageError: where it belongs lies something else.
        """
        verb = "CREATE TABLE IF NOT EXISTS"
        if self.has(table):
            properties = {
                row["key"]: row["value"] for row in self._sql(f"SHOW TBLPROPERTIES {self.name(table)}").collect()
            }
            if properties.get(_SCHEMA) == table.fingerprint:
                return
            if not derived:
                self._migrate(table, properties)
                return
            verb = "REPLACE TABLE"
        columns = ", ".join(_definition(column) for column in table)
        pairs = _declared(table) | {_CHECK + name: check for name, check in table.checks.items()}
        statement = (
            f"{verb} {self.name(table)} ({columns}) USING delta {_clustering(table)} "
            f"COMMENT {_quoted(table.comment)} TBLPROPERTIES ({_properties(pairs)})"
        )
        for _ in range(_ATTEMPTS):
            try:
                self._persist(lambda: self._sql(statement))
            except AnalysisException as error:
                if _NO_TABLE not in str(error):
                    raise
            if self.has(table):
                return
            time.sleep(POLL_S)  # a folder with something in it is left alone: another run may be making the table
        raise UsageError(f"The table {self.name(table)} cannot be made: in its folder lies something else.")

    def _migrate(self, table: Table, properties: dict[str, str]) -> None:
        """Bring the columns, checks, comments and clustering of a table of an older declaration up to date."""
        there = {field.name: field.dataType.simpleString() for field in self._scan(table).schema}
        new = [column for column in table if column.nullable and column.name not in there]
        wrong = [
            f"{column.name} {column.type.simpleString()} (there: {there.get(column.name)})"
            for column in table
            if column not in new and there.get(column.name) != column.type.simpleString()
        ]
        if wrong:
            raise JobError(
                f"The table {table.name} in {self.place} was made by another version of msmq-replay: it should have "
                f"{', '.join(wrong)}. Ingest the captures into a new warehouse, or use that version."
            )
        name = self.name(table)
        if new:
            self._sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(map(_definition, new))})")
        for column in table:
            comment = _quoted(column.comment)
            self._sql(f"ALTER TABLE {name} ALTER COLUMN {_identifier(column.name)} COMMENT {comment}")
        for key in properties:
            check = key.removeprefix(_CHECK)
            if check != key and check not in table.checks:
                self._sql(f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS {_identifier(check)}")
        for check, condition in table.checks.items():
            if "".join(properties.get(_CHECK + check, "").split()) != "".join(condition.split()):  # Delta spaces it
                self._sql(f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS {_identifier(check)}")
                self._sql(f"ALTER TABLE {name} ADD CONSTRAINT {_identifier(check)} CHECK ({condition})")
        if table.clustered_by:
            self._sql(f"ALTER TABLE {name} {_clustering(table)}")
        self.set_properties(table, _declared(table))

    def has(self, table: Table) -> bool:
        """Whether the table is there."""
        try:
            return bool(self._scan(table).schema)  # a Connect client asks for a table no earlier
        except AnalysisException:
            return False

    def require(self, table: Table, step: str) -> None:
        """Make sure the table is there.

        Raises:
            UsageError: it is not: `step` has to run first.
        """
        if not self.has(table):
            raise UsageError(f"There is no table {table.name} in {self.place}: run msmq-replay {step} first.")

    def read(self, table: Table) -> DataFrame:
        """The table's rows."""
        place = self._log_place(table)
        if self.kept is None or place is None or not (versions := log_versions(place)):
            return self._scan(table)
        if self.kept.get(table.name, (-1,))[0] < versions[0]:
            self.kept[table.name] = versions[0], checkpoint(self._scan(table), eager=False)
        return self.kept[table.name][1]

    def _scan(self, table: Table, version: int | None = None) -> DataFrame:
        """The table's rows, of a version if one is given."""
        reader = self.spark.read if version is None else self.spark.read.option("versionAsOf", version)
        return reader.table(self.name(table))

    def replace(self, table: Table, rows: DataFrame, tag: dict[str, Any], where: str = "true") -> None:
        """Replace the rows that fulfil `where` in one commit.

        Raises:
            ConflictError: another run wrote some of these rows meanwhile.
        """
        rows = conform(rows, table)
        keeps = self.kept is not None and where == "true" and self._log_place(table) is not None
        rows = checkpoint(rows) if keeps else rows
        writer = rows.write
        if self._untouched(table):  # for which Delta need not find out what is to be replaced
            writer = writer.mode("append").option("txnAppId", f"first {table.name}").option("txnVersion", 0)
        else:
            writer = writer.mode("overwrite")
            if where != "true" or table.clustered_by:  # a plain overwrite forgets what the table is clustered by
                writer = writer.option("replaceWhere", where)
        with _conflicts(table):
            self._write(table, writer, tag)
        if keeps:
            self._keep(table, rows, tag)

    def _keep(self, table: Table, rows: DataFrame, tag: dict[str, Any]) -> None:
        """Have these rows read for the table's, which a commit with this tag has just replaced, if it is the last."""
        last = self.history(table)[0]  # and not what `_seen` would remember: `derive` looks again when all is written
        if self.kept is not None and last.tag == tag:
            self.kept[table.name] = last.version, rows

    def _untouched(self, table: Table) -> bool:
        """Whether its log says that only its making was done to it; two that find so cannot both write first.

        Where Spark would have to be asked, that would cost what it saves.
        """
        return [commit.operation for commit in self._log(table)] == ["CREATE TABLE"]

    def _write(self, table: Table, writer: DataFrameWriter, tag: dict[str, Any]) -> None:
        self._forget(table)
        writer = writer.format("delta").option("userMetadata", json.dumps(tag, sort_keys=True))
        if self.catalog_schema:
            writer.saveAsTable(self.name(table))
        else:
            writer.save(self.location(table.name))

    def merge(
        self, table: Table, rows: DataFrame, tag: dict[str, Any], *, update: bool = False, empty: bool = False
    ) -> None:
        """Put rows in by key in one commit; those already there, by key, stay as they are, or are replaced.

        One run at a time may do this (`jobs.warehouse.publish_lock`); it is quicker where the table is known to be
        `empty`. A commit
        whose answer was lost is not made twice.
        """
        rows = conform(rows, table)
        if empty:
            writer = rows.write.mode("append").option("txnAppId", f"{tag['run']} {table.name}").option("txnVersion", 0)
            self._persist(lambda: self._write(table, writer, tag))
            return
        rows.createOrReplaceTempView(f"merged_{table.name}")
        matched = " WHEN MATCHED THEN UPDATE SET *" if update else ""
        self._change(
            table,
            f"MERGE INTO {self.name(table)} t USING merged_{table.name} s ON {_same_key(table)}{matched} "
            "WHEN NOT MATCHED THEN INSERT *",
        )

    def delete(self, table: Table, keys: DataFrame, where: str = "") -> None:
        """Remove, in one commit, the rows t for which a row s of `keys`, which are distinct, fulfils the condition.

        Without one: those whose key is among them.
        """
        where = where or _same_key(table)
        view = f"deleted_{table.name}"
        keys.createOrReplaceTempView(view)
        self._change(table, f"MERGE INTO {self.name(table)} t USING {view} s ON {where} WHEN MATCHED THEN DELETE")

    def _change(self, table: Table, statement: str) -> None:
        """Run a statement that may be repeated."""
        self._forget(table)
        self._persist(lambda: self._sql(statement))

    def restore(self, table: Table, version: int) -> None:
        """Make the table's rows those of an earlier version, in a new commit."""
        self._change(table, f"RESTORE TABLE {self.name(table)} TO VERSION AS OF {version}")

    @contextmanager
    def tagged(self, tag: dict[str, Any]) -> Iterator[None]:
        """With this tag on the commits of statements, where the platform lets a session do that."""
        with self._setting(_TAG, json.dumps(tag, sort_keys=True)):
            yield

    def set_properties(self, table: Table, pairs: Mapping[str, str]) -> None:
        """Set properties of the table, in a commit of its own."""
        statement = f"ALTER TABLE {self.name(table)} SET TBLPROPERTIES ({_properties(pairs)})"
        self._persist(lambda: self._sql(statement))

    def _sql(self, statement: str) -> DataFrame:
        return self.spark.sql(statement)

    @contextmanager
    def _setting(self, key: str, value: str) -> Iterator[None]:
        """With this setting of the session, where the platform lets one be set: serverless Databricks does not."""
        try:
            self.spark.conf.set(key, value)
        except PySparkException:
            yield
            return
        try:
            yield
        finally:
            self.spark.conf.unset(key)

    def _persist(self, work: Callable[[], Any]) -> None:
        """Do what may be repeated, again when another run's commit came between."""
        for attempt in range(_ATTEMPTS):
            try:
                work()
            except Exception as error:  # PySpark has no class for these, and none in common for both of its clients
                if not _CONFLICT.search(str(error)) or attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def history(self, table: Table) -> list[Commit]:
        """The table's last commits, the newest first."""
        if commits := self._log(table):
            return commits
        rows = self._sql(f"DESCRIBE HISTORY {self.name(table)} LIMIT {_COMMITS}").collect()
        return [Commit.of(row["version"], row["timestamp"], row.asDict()) for row in rows]

    def _log(self, table: Table) -> list[Commit]:
        """The same from the table's log, where that can be read here."""
        place = self._log_place(table)
        if place is None:
            return []
        infos = ((version, commit_info(place, version)) for version in log_versions(place)[:_COMMITS])
        return [
            Commit.of(version, datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC), info)
            for version, info in infos
        ]

    def _log_place(self, table: Table) -> str | None:
        """Where the table lies, if that is a folder of the machine that Spark's driver runs on."""
        if self.catalog_schema or "://" in self.folder or is_remote():
            return None
        return self.location(table.name)

    def versions(self, tables: Sequence[Table]) -> Origin:
        """The versions in which the tables' rows last changed."""
        histories = run_in_parallel(partial(self._seen, table) for table in tables)
        return {table.name: _last_change(seen).version for table, seen in zip(tables, histories, strict=True)}

    def _stale(
        self, step: str, tables: Sequence[Table], sources: Sequence[Table], options: Origin
    ) -> tuple[Origin, list[str]]:
        """What the step would derive its tables from now, and the names of those that come of something else."""
        self.versions((*tables, *sources))
        wanted = self.versions(sources) | options
        found = {table.name: _origin(self._seen(table), step) for table in tables}
        return wanted, [name for name, origin in found.items() if not wanted.items() <= origin.items()]

    def _seen(self, table: Table) -> list[Commit]:
        """The table's history as it was when this run asked for it last."""
        if table.name not in self.histories:
            self.histories[table.name] = self.history(table)
        return self.histories[table.name]

    def _newest(self, tables: Sequence[Table]) -> dict[str, int]:
        """The tables' versions, as far as they were seen."""
        return {table.name: self._seen(table)[0].version for table in tables}

    def _forget(self, *tables: Table) -> None:
        for table in tables:
            self.histories.pop(table.name, None)

    def left(self, step: str, tables: Sequence[Table]) -> list[DataFrame]:
        """The tables' rows as the step left them; nothing where it did not derive all of them from the same."""
        origins = [_origin(self._seen(table), step) for table in tables]
        if not origins[0] or origins.count(origins[0]) < len(tables):
            return []
        return [
            self._scan(table, version) for table, version in zip(tables, self._newest(tables).values(), strict=True)
        ]

    def check_unmoved(self, sources: Sequence[Table], tag: dict[str, Any]) -> None:
        """Make sure that all that was read of the sources is of the versions that the tag names.

        Raises:
            ConflictError: another run wrote one of them meanwhile.
        """
        now = replace(self, histories={}).versions(sources)
        if moved := [name for name, version in now.items() if tag["from"][name] != version]:
            raise ConflictError(f"Another run wrote {', '.join(moved)} at the same time.")

    def stale(self, step: str, tables: Sequence[Table], sources: Sequence[Table]) -> list[str]:
        """Names of the tables that the step derived from other versions of the sources than the present ones."""
        return self._stale(step, tables, sources, {})[1]

    def derive(
        self,
        step: str,
        tables: Sequence[Table],
        sources: Sequence[Table],
        write: Callable[[dict[str, Any]], None],
        **options: Any,
    ) -> bool:
        """Have `write` derive the tables, unless all were, from the sources as they are; returns whether it had to.

        `write` is given the tag for its commits. It is called again when another run wrote any of the tables meanwhile
        and, once let finish, did not leave them as they should be: at the end all come of the same versions.

        Raises:
            JobError: other runs do not let it finish.
        """
        run_in_parallel(partial(self.create, table, derived=True) for table in tables)
        written: tuple[Origin, dict[str, int]] | None = None
        seconds = 0.0

        def look() -> tuple[Origin, list[str], dict[str, int]]:
            origin, stale = self._stale(step, tables, sources, options)
            versions = self._newest(tables)
            # On some platforms no row where none had been makes no commit: then the table is as it was before.
            if written and written[0] == origin:
                stale = [name for name in stale if versions[name] != written[1][name]]
            return origin, stale, versions

        for attempt in range(_ATTEMPTS + 1):
            origin, stale, versions = look()
            if stale and attempt:
                progress(f"{step}: waiting for what another run writes")
                self._let_finish(step, tables, sources, options, seconds)
                origin, stale, versions = look()
            if not stale:
                return attempt > 0
            if attempt == _ATTEMPTS:
                break
            self._forget(*tables, *sources)  # what was seen before decides no more
            begun = time.monotonic()
            try:
                write({"step": step, "from": origin})
            except ConflictError as error:
                written = None
                progress(f"{step}: {error}")
            else:
                written = origin, versions
            seconds = time.monotonic() - begun
        raise JobError(f"{step} was begun {_ATTEMPTS} times, and other runs changed its tables each time.")

    def _let_finish(
        self, step: str, tables: Sequence[Table], sources: Sequence[Table], options: Origin, seconds: float
    ) -> None:
        """Wait until another run has derived the tables, or has written none, and no source, for about so long.

        Never for equally long, lest two runs that met meet again.
        """
        patience = seconds * random.uniform(1, 2)  # noqa: S311 - nothing to be kept secret
        seen: dict[str, int] = {}
        since = time.monotonic()
        while time.monotonic() - since < patience:
            self._forget(*tables, *sources)
            if not self._stale(step, tables, sources, options)[1]:
                return
            versions = self._newest((*tables, *sources))
            if versions != seen:
                seen, since = versions, time.monotonic()
            time.sleep(POLL_S)

    def optimize(self, table: Table) -> tuple[int, int]:
        """Put small files together and what is clustered in its place; how many files there were, and are now."""
        done = self._sql(f"OPTIMIZE {self.name(table)}").collect()[0]["metrics"]
        return done["numFilesRemoved"], done["numFilesAdded"]

    def vacuum(self, table: Table, hours: int) -> None:
        """Delete the files that no version of the table of the last hours needs."""
        with self._setting(_RETENTION_CHECK, str(hours >= _LONGEST_WITH_READERS).lower()):
            self._sql(f"VACUUM {self.name(table)} RETAIN {hours} HOURS").collect()


def _same_key(table: Table) -> str:
    """The condition that rows t and s have the same key."""
    return " AND ".join(f"t.{key} <=> s.{key}" for key in table.key)


@contextmanager
def _conflicts(table: Table) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _CONFLICT.search(str(error)):
            raise ConflictError(f"Another run wrote {table.name} at the same time.") from error
        raise


def _last_change(commits: list[Commit]) -> Commit:
    """The commit in which the table's rows last changed; the oldest that is known when none did."""
    return next((commit for commit in commits if commit.changed_rows), commits[-1])


def _origin(commits: list[Commit], step: str) -> Origin:
    """What the step derived its rows of the table from, when it wrote them last; nothing when that cannot be told."""
    for commit in filter(lambda commit: commit.changed_rows, commits):
        if commit.tag.get("step") == step:
            return dict(commit.tag["from"])
        if "step" not in commit.tag:
            break
    return {}


def conform(rows: DataFrame, table: Table) -> DataFrame:
    """The rows with the table's columns in its order, each of its type."""
    return rows.select([F.col(column.name).cast(column.type) for column in table])
