"""Creates the view `message_history` beside registered tables, which a folder of tables cannot hold."""

from pyspark.errors import PySparkException

from jobs.cli.errors import first_line
from jobs.cli.logs import progress
from jobs.tables.declared import identifier, string_literal
from jobs.tables.warehouse import Warehouse
from schemas.history import MESSAGE_HISTORY, spark_sql


def create_history(warehouse: Warehouse) -> None:
    """Creates the view where there can be one, or replaces it: another version may have made it.

    Who may write tables may lack the right to make views: then a line of the log says so.
    """
    columns = ", ".join(
        f"{identifier(column.name)} COMMENT {string_literal(column.comment)}" for column in MESSAGE_HISTORY
    )
    about = f"({columns}) COMMENT {string_literal(MESSAGE_HISTORY.comment)}"
    try:
        warehouse.create_view(MESSAGE_HISTORY.name, spark_sql(warehouse.name), about)
    except PySparkException as error:
        progress(f"the view {MESSAGE_HISTORY.name} could not be created: {first_line(error)}")
