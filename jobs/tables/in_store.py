"""Keeps tables in an object store: this process reads and writes them as it does those of a folder of this machine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from jobs.cli.errors import JobError, first_line
from jobs.cli.spark_session import is_local
from jobs.tables.declared import identifier, path_in
from jobs.tables.delta_commits import about_files
from jobs.tables.in_folder import InFolder
from jobs.tables.mirror import Mirror, Store, mirror_of
from jobs.tables.parquet_files import About
from jobs.tables.running import Mark
from jobs.tables.store_files import File, read_in_tasks
from jobs.tables.tasks import Made
from jobs.tables.warehouse import columns_of
from schemas.table import Table
from udfs.capture import stores


@dataclass(frozen=True)
class InStore(InFolder):
    """Implements `Warehouse` by delta-rs for a URI of an object store, by way of `jobs.tables.mirror`.

    Commits are put if absent, so that two runs on two machines cannot make the same version. A store shows an object
    when it is whole, so that no commit can be torn.
    """

    store: Store = field(kw_only=True, repr=False, compare=False)
    _before_spark: ClassVar[dict[str, Store]] = {}

    @classmethod
    def open(cls, spark: SparkSession, uri: str) -> Self:
        """Returns the warehouse at a URI; what was read of it before Spark started is used once."""
        store = cls._before_spark.pop(uri, None) or Store.open(uri)
        if spark is None:
            cls._before_spark[uri] = store
        return cls(spark, uri, store=store)

    @property
    def own_logs(self) -> Mapping[str, str]:
        """Returns nothing: no power failure tears an object."""
        return {}

    def mark(self) -> Mark:
        return Mark.of_place(stores.hadoop_uri(self.place))

    def name(self, table: Table) -> str:
        return f"delta.{identifier(stores.hadoop_uri(path_in(self.root, table.name)))}"

    def _read_files(self, table: Table, files: Mapping[str, About], columns: Sequence[str] = ()) -> DataFrame:
        if not files or self._runs_here():
            return super()._read_files(table, files, columns)
        return self._made_of(table, files, columns).rows()

    def read_in_tasks(self, table: Table, *columns: str) -> Made | None:
        if self._runs_here():
            return None
        files = about_files(self._at(table))
        return self._made_of(table, files, columns) if files else None

    def _runs_here(self) -> bool:
        """Returns whether Spark runs on this machine alone, where it reads copies of the files."""
        return not is_remote() and is_local(self.spark.conf.get("spark.master", "") or "")

    def _made_of(self, table: Table, files: Mapping[str, About], columns: Sequence[str]) -> Made:
        """Has tasks read the files from the store."""
        place, uri = self._at(table), self._mirror(table).uri
        found = [File(f"{uri}{file.removeprefix(place)}", *about) for file, about in files.items()]
        return read_in_tasks(self.spark, found, columns_of(table, columns or table.names))

    def _require(self, table: Table, files: Collection[str]) -> None:
        self._mirror(table).require(Path(file).name for file in files)

    def newest_entry(self, table: Table) -> tuple[int, int | None] | None:
        newest = super().newest_entry(table)
        return None if newest is None else (newest[0], None)

    def forget(self, *tables: Table) -> None:
        for table in tables:
            self._mirror(table).forget()

    def optimize(self, table: Table, *, sort: bool) -> tuple[int, int]:
        def work(delta: DeltaTable) -> Any:
            if sort and table.clustered_by:
                return delta.optimize.z_order(table.clustered_by)
            return delta.optimize.compact()

        made = self._in_store(table, work)
        return made["numFilesRemoved"], made["numFilesAdded"]

    def vacuum(self, table: Table, hours: int) -> None:
        self._in_store(
            table,
            lambda delta: delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True),
        )

    def shorten_log(self, table: Table) -> None:
        mirror = self._mirror(table)
        mirror.delete_log(mirror.log_before_checkpoint())

    def _in_store(self, table: Table, work: Callable[[DeltaTable], Any]) -> Any:
        """Has delta-rs change the table where it is."""
        self.check_lock(surely=True)
        uri = path_in(self.root, table.name)
        settings = stores.options(uri) if stores.in_store(uri) else {}
        try:
            return work(DeltaTable(uri, storage_options=settings))
        except (DeltaError, OSError) as error:
            raise JobError(f"{uri} cannot be maintained: {first_line(error)}") from error
        finally:
            self.forget(table)

    def _at(self, table: Table) -> str:
        return self.store.mirror(table.name)

    def _mirror(self, table: Table) -> Mirror:
        found = mirror_of(self._at(table))
        assert found is not None  # noqa: S101 - `_at` makes it
        return found
