"""Replays tables in this process: rows as dictionaries → Arrow tables → the tables that a replay writes. No Spark."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.engine.in_process import InProcess
from jobs.replaying.conversations import Conversations, unite
from jobs.replaying.flow import Options, replay
from jobs.replaying.in_process import with_literal_state
from jobs.replaying.judging import Accept
from jobs.replaying.sources import SOURCES, Sources, read_sources
from schemas.judging import CHAIN
from schemas.replay import Reading
from schemas.table import LONG, Table
from udfs.derive.frames import to_arrow, to_frame
from udfs.replay.acceptance import STATE, fold_scopes

Row = Mapping[str, Any]
_STATES = pa.schema([*CHAIN, *((name, LONG) for name in STATE)])


class Replayed(NamedTuple):
    """The tables of a replay, and the verdicts and other tables that it wrote, by name."""

    sources: Sources[pa.Table]
    once: Conversations[pa.Table]
    tables: dict[str, pa.Table]

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """Returns the rows of a table."""
        found: list[dict[str, Any]] = self.tables[table.name].to_pylist()
        return found


def arrow(table: Table, rows: Iterable[Row]) -> pa.Table:
    """Returns rows with all columns of a table; a column that a row lacks is null, and timestamps are us."""
    rows = list(rows)

    def column(field: pa.Field) -> pa.Array:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_decimal(field.type):
            return pa.array(values, pa.uint64()).cast(field.type)
        return pa.array(values, field.type)

    return pa.Table.from_arrays([column(field) for field in table.arrow], schema=table.arrow)


def sources_of(tables: Mapping[str, Iterable[Row]]) -> Sources[pa.Table]:
    """Returns the tables that a replay reads, made of rows by name; others have no rows."""
    made = {table.name: arrow(table, tables.get(table.name, ())) for table in SOURCES}
    return read_sources(InProcess(load=lambda table: made[table.name]), None, None)


def accept_in_process(engine: InProcess, reading: Reading = Reading.CONFORMANT) -> Accept[pa.Table]:
    """Returns what adds the receiver's state before each chain, by a fold over each scope."""

    def accept(chains: pa.Table) -> pa.Table:
        states = engine.run(chains, fold_scopes, _STATES, ("scope_no",), ("replay_order",))
        return to_arrow(with_literal_state(to_frame(states))) if reading is Reading.LITERAL else states

    return accept


def replay_here(sources: Sources[pa.Table], options: Options = Options()) -> Replayed:  # noqa: B008 - a NamedTuple
    """Replays tables."""
    engine = InProcess()
    once = unite(engine, sources)
    replay(engine, sources, once, accept_in_process(engine, options.reading), options)
    return Replayed(sources, once, engine.tables)
