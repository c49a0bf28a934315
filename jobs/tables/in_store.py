"""Keeps tables in an object store: this process reads and writes them as it does those of a folder of this machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from jobs.cli.errors import JobError, first_line
from jobs.tables.declared import identifier, path_in
from jobs.tables.in_folder import InFolder
from jobs.tables.mirror import Mirror, Store, mirror_of
from jobs.tables.running import Mark
from jobs.tables.spark_rows import NO_GLOB
from jobs.tables.warehouse import Rows
from schemas.table import Table
from udfs.capture import stores

_LOCAL = "local"


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
        return Mark(None)

    def name(self, table: Table) -> str:
        return f"delta.{identifier(stores.hadoop_uri(path_in(self.root, table.name)))}"

    def read(self, table: Table) -> DataFrame:
        if self._is_spark_here():
            return super().read(table)
        place = self._at(table)
        files = [f"{path_in(self.root, table.name)}{file.removeprefix(place)}" for file in self._files(table)]
        if not files:
            return self.spark.createDataFrame([], table.spark)
        reader = self.spark.read.schema(table.spark).option(NO_GLOB, "false")
        return reader.parquet(*map(stores.hadoop_uri, files))

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
        self.check_lock()
        uri = path_in(self.root, table.name)
        settings = stores.options(uri) if stores.in_store(uri) else {}
        try:
            return work(DeltaTable(uri, storage_options=settings))
        except (DeltaError, OSError) as error:
            raise JobError(f"{uri} cannot be maintained: {first_line(error)}") from error
        finally:
            self.forget(table)

    def _write(self, table: Table, rows: Rows, *, overwrite: bool = False) -> None:
        if isinstance(rows, DataFrame) and not self._is_spark_here():
            raise JobError(
                f"Rows of {table.name} do not fit in this process, and a cluster's tasks cannot write to tables in "
                f"{self.place}. Give this process more memory, or raise in_memory_bytes and in_memory_messages."
            )
        super()._write(table, rows, overwrite=overwrite)

    def _is_spark_here(self) -> bool:
        """Returns whether Spark's tasks run on this machine, and so read and write its files."""
        master = self.spark.conf.get("spark.master", _LOCAL) or _LOCAL
        return master.startswith(_LOCAL)

    def _at(self, table: Table) -> str:
        return self.store.mirror(table.name)

    def _mirror(self, table: Table) -> Mirror:
        found = mirror_of(self._at(table))
        assert found is not None  # noqa: S101 - `_at` makes it
        return found
