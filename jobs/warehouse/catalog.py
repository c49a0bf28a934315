"""Creates the view `message_history` beside registered tables, which a folder of tables cannot hold."""

import hashlib

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.app.logs import progress
from jobs.warehouse.tables import Tables, identifier, string_literal
from schemas.history import MESSAGE_HISTORY, spark_sql

_DECLARATION = "msmq.view"


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
