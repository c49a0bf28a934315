"""Chooses the engine for a warehouse."""

from typing import Any

from jobs.engine.engine import Engine
from jobs.engine.in_process import InProcess
from jobs.engine.on_spark import OnSpark
from jobs.warehouse.store import Warehouse


def engine_of(warehouse: Warehouse) -> Engine[Any]:
    """Returns an engine in this process for a warehouse that is held in memory, else one on Spark."""
    return OnSpark(warehouse) if warehouse.local is None else InProcess(load=warehouse.read_local)
