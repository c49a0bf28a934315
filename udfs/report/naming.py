"""Lists queue managers and queues, with what people call them."""

from collections.abc import Iterable

import polars as pl

from schemas.names import ADDRESS, QUEUE_MANAGERS, QUEUES
from schemas.replay import ENDS, SEQUENCES, SESSIONS
from schemas.table import STRING, Table, row
from udfs.frames.columns import timestamp
from udfs.frames.derivation import derives
from udfs.frames.engine import Engine, T
from udfs.frames.tables import schema_of, with_columns_of

_NAME = row(what=STRING, original=STRING, name=STRING)
SOURCES = (ENDS, SEQUENCES, SESSIONS)


def list_names(engine: Engine[T], names: Iterable[tuple[str, str, str]]) -> dict[Table, T]:
    """Returns rows of QUEUE_MANAGERS and QUEUES; `names` are what (queue_manager or queue), original and name."""
    of = engine.table([dict(zip(_NAME.names, one, strict=True)) for one in names], _NAME)
    ends = engine.read(ENDS)
    seen = engine.union(
        engine.select(ends, "address", "copy_of", "first_ns", "last_ns", queue_manager="sender"),
        engine.select(ends, queue_manager="receiver"),
        engine.select(engine.read(SEQUENCES), queue_manager="source_queue_manager"),
    )
    sessions = engine.select(engine.read(SESSIONS), "destination_queues")
    return {
        QUEUE_MANAGERS: engine.derive(_queue_managers, seen=seen, names=of),
        QUEUES: engine.derive(_queues, sessions=sessions, names=of),
    }


@derives(("queue_manager",), ("names",))
def _queue_managers(seen: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of QUEUE_MANAGERS; on a copy of a stream an address is not the machine's own."""
    times = {"first_seen_at": timestamp(pl.min("first_ns")), "last_seen_at": timestamp(pl.max("last_ns"))}
    by_address = (
        seen.filter(pl.col("address").is_not_null(), pl.col("copy_of").is_null())
        .group_by("queue_manager", "address")
        .agg(**times)
        .sort("queue_manager", "first_seen_at", "address")
    )
    with_addresses = by_address.group_by("queue_manager", maintain_order=True).agg(
        pl.struct(ADDRESS.names).alias("addresses"), pl.min("first_seen_at"), pl.max("last_seen_at")
    )
    rows = seen.select("queue_manager").unique().join(with_addresses, on="queue_manager", how="left")
    named = rows.join(_of(names, "queue_manager"), on="queue_manager", how="left")
    none = pl.lit([], dtype=schema_of(QUEUE_MANAGERS.arrow)["addresses"])
    return with_columns_of(QUEUE_MANAGERS, named.with_columns(pl.coalesce("addresses", none)))


def _queues(sessions: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of QUEUES; the case of a queue's name does not count."""
    queues = sessions.select(destination_queue=pl.col("destination_queues").explode()).drop_nulls().unique()
    folded = queues.with_columns(queue=pl.col("destination_queue").map_elements(str.casefold, pl.String))
    return with_columns_of(QUEUES, folded.join(_of(names, "queue"), on="queue", how="left"))


def _of(names: pl.DataFrame, what: str) -> pl.DataFrame:
    """Returns the originals of one kind, as a column with its name, and their names."""
    return names.filter(pl.col("what") == what).select(pl.col("original").alias(what), "name")
