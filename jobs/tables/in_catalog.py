"""Keeps tables that are registered in a catalog."""

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrameWriter

from jobs.tables.declared import identifier
from jobs.tables.through_spark import ThroughSpark
from schemas.table import Table
from schemas.tables import ONCE_VIEWS


@dataclass(frozen=True)
class InCatalog(ThroughSpark):
    """Implements `Warehouse` by Spark's Delta, for tables that are registered as CATALOG.SCHEMA.NAME."""

    @property
    def place(self) -> str:
        return self.root

    def name(self, table: Table) -> str:
        return self._registered(table.name)

    def has(self, table: Table) -> bool:
        return super().has(table) and not self._is_view(table)

    def _create(self, table: Table, *, exists: bool) -> None:
        """Creates the table, in place of the view that an earlier version made."""
        if not exists and self._is_view(table):
            self.check_lock()
            self.spark.sql(f"DROP VIEW {self.name(table)}")
        super()._create(table, exists=exists)

    def _is_view(self, table: Table) -> bool:
        try:
            return table in ONCE_VIEWS and self.spark.catalog.getTable(self.name(table)).tableType == "VIEW"
        except AnalysisException:
            return False

    def path(self, name: str) -> str | None:
        """Returns None: the catalog says where files are."""

    def _registered(self, name: str) -> str:
        return ".".join(identifier(part) for part in (*self.root.split("."), name))

    def _save(self, table: Table, writer: DataFrameWriter) -> None:
        writer.saveAsTable(self.name(table))
