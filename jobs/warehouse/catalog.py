"""Tells a catalog what a folder of tables cannot hold: the view `message_history` and, in Unity Catalog, keys and tags.

Keys and references are informational: they tell people and tools what joins to what, and nothing enforces them.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.logs import progress
from jobs.warehouse.tables import Tables, identifier, string_literal
from schemas.history import MESSAGE_HISTORY, spark_sql
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES, PACKETS, STREAM_GAPS, STREAMS
from schemas.messages import ACKS, HANDSHAKES, MESSAGES, NAME_COLUMNS, SESSION_ACKS
from schemas.outcomes import OUTCOMES
from schemas.replay import FINDINGS, SEQUENCES, SESSIONS, VERDICTS
from schemas.table import Table
from schemas.tables import TABLES

REFERENCES: Mapping[Table, tuple[Table, ...]] = {
    STREAM_GAPS: (STREAMS,),
    PACKETS: (STREAMS, CAPTURES),
    MESSAGES: (PACKETS, STREAMS, CAPTURES),
    ACKS: (PACKETS, CAPTURES),
    HANDSHAKES: (PACKETS, CAPTURES),
    SESSION_ACKS: (PACKETS, CAPTURES),
    VERDICTS: (MESSAGES, SEQUENCES, SESSIONS, CAPTURES),
    OUTCOMES: (SEQUENCES, SESSIONS),
    INCIDENTS: (SEQUENCES, SESSIONS),
    FINDINGS: (INCIDENTS,),
}
"""The tables whose key the columns of the same names refer to."""
_ADDRESSES = ("queue_manager_address", "src_ip", "dst_ip")
_BYTES = ("raw", "trailer", "state")
_DECLARATION = "msmq.view"
_TAG = "msmq_replay", "names"
"""Marks the columns that hold labels, names or addresses of people's machines, also within bytes of the wire."""


def describe(warehouse: Tables) -> None:
    """Creates the view and, in Unity Catalog, adds the keys, references and tags that are missing."""
    create_history(warehouse)
    try:
        there = set(_there(warehouse))
    except PySparkException:  # not Unity Catalog, which has an information schema
        return
    for name, statement in statements(warehouse.name):
        if name not in there:
            warehouse.spark.sql(statement)


def create_history(warehouse: Tables) -> None:
    """Creates the view `message_history` beside registered tables, unless it is there as declared.

    Who may write tables may lack the right to make views: then a line of the log says so.
    """
    view = warehouse.registered(MESSAGE_HISTORY.name)
    columns = ", ".join(
        f"{identifier(column.name)} COMMENT {string_literal(column.comment)}" for column in MESSAGE_HISTORY
    )
    about = f"({columns}) COMMENT {string_literal(MESSAGE_HISTORY.comment)}"
    query = spark_sql(warehouse.name)
    declared = hashlib.sha256(f"{about} {query}".encode()).hexdigest()[:16]
    try:
        there = warehouse.spark.sql(f"SHOW TBLPROPERTIES {view}").where(F.col("key") == _DECLARATION).collect()
    except PySparkException:  # there is none
        there = []
    if [row["value"] for row in there] == [declared]:
        return
    properties = f"TBLPROPERTIES ({string_literal(_DECLARATION)} = {string_literal(declared)})"
    try:
        warehouse.spark.sql(f"CREATE OR REPLACE VIEW {view} {about} {properties} AS {query}")
    except PySparkException as error:
        progress(f"the view {MESSAGE_HISTORY.name} could not be created: {str(error).splitlines()[0]}")


def has_key(table: Table) -> bool:
    """Tells whether the table's key can be a PRIMARY KEY, of which no column may be null."""
    return not any(column.nullable for column in table if column.name in table.key)


def statements(name: Callable[[Table], str]) -> Iterator[tuple[str, str]]:
    """Yields what is to be declared, as a name and a statement of Databricks SQL: keys before what refers to them."""
    for table in filter(has_key, TABLES):
        key = f"{table.name}_key"
        yield key, f"ALTER TABLE {name(table)} ADD CONSTRAINT {key} PRIMARY KEY ({', '.join(table.key)})"
    for table, parents in REFERENCES.items():
        for parent in parents:
            key, reference = ", ".join(parent.key), f"{table.name}_{parent.name}"
            refers = f"FOREIGN KEY ({key}) REFERENCES {name(parent)}"
            yield reference, f"ALTER TABLE {name(table)} ADD CONSTRAINT {reference} {refers}"
    for table in TABLES:
        for column in table:
            if column.name in (*NAME_COLUMNS, *_ADDRESSES, *_BYTES):
                tag = f"SET TAGS ({string_literal(_TAG[0])} = {string_literal(_TAG[1])})"
                yield (
                    f"{table.name}.{column.name}",
                    f"ALTER TABLE {name(table)} ALTER COLUMN {identifier(column.name)} {tag}",
                )


def _there(warehouse: Tables) -> Iterator[str]:
    """Yields the names that `statements` gives to what Unity Catalog has already."""
    catalog, _, schema = warehouse.catalog_schema.rpartition(".")
    views = f"{identifier(catalog)}.information_schema"
    constraints = warehouse.spark.table(f"{views}.table_constraints").where(F.col("table_schema") == schema)
    tags = warehouse.spark.table(f"{views}.column_tags").where(
        (F.col("schema_name") == schema) & (F.col("tag_name") == _TAG[0])
    )
    for row in constraints.select("constraint_name").collect():
        yield row[0]
    for row in tags.select(F.concat_ws(".", "table_name", "column_name")).collect():
        yield row[0]
