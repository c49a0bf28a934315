"""Writes the tables of names, `queue_managers` and `queues`."""

from jobs.cli import code_version
from jobs.cli.config import Config
from jobs.cli.names import Names
from jobs.engines.in_process import InProcess
from jobs.engines.on_spark import engine_of
from jobs.tables.provenance import derive
from jobs.tables.warehouse import Warehouse
from schemas.tables import NAMES
from udfs.report.naming import SOURCES, list_names


def step(warehouse: Warehouse, config: Config) -> bool:
    """Writes the tables, unless that was done for these tables and names; returns whether it did."""
    names = list(Names.read(config.names_file).rows())

    def write(_: object) -> None:
        engine = engine_of(warehouse)
        for table, rows in list_names(engine, names).items():
            engine.replace(table, rows)
            if isinstance(engine, InProcess):
                warehouse.replace(table, engine.read(table))

    return derive(warehouse, "names", NAMES, SOURCES, write, names=names, code=code_version.results_hash())
