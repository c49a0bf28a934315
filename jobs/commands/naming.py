"""Writes the tables of names, `queue_managers` and `queues`."""

from jobs.cli import code_version
from jobs.cli.names import Names
from jobs.engines.on_spark import engine_of, write_if_held
from jobs.tables.provenance import derive
from jobs.tables.warehouse import Warehouse
from schemas.tables import NAMES
from udfs.report.naming import SOURCES, list_names


def step(warehouse: Warehouse, names: Names) -> bool:
    """Writes the tables, unless that was done for these tables and names; returns whether it did."""
    called = list(names.rows())

    def write(_: object) -> None:
        engine = engine_of(warehouse)
        for table, rows in list_names(engine, called).items():
            engine.replace(table, rows)
        write_if_held(warehouse, engine, *NAMES)

    return derive(warehouse, "names", NAMES, SOURCES, write, names=called, code=code_version.results_hash())
