"""What a run found, from the tables."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own habit

from jobs.warehouse import Warehouse
from schemas.ingest import BOOKS, CAPTURES, PACKETS, QUARANTINE
from schemas.messages import ACKS, DECODED, MESSAGES
from schemas.replay import FINDINGS, VERDICTS


def ingest_summary(warehouse: Warehouse) -> dict[str, Any]:
    """Where the tables are; captures by status, packets by type, quarantine by reason, books."""
    return {
        "tables": warehouse.place,
        "captures": _counts(warehouse.read(CAPTURES), "status"),
        "packets": _counts(warehouse.read(PACKETS), "packet_type"),
        "quarantine": _counts(warehouse.read(QUARANTINE), "reason"),
        "books": _books(warehouse.read(BOOKS)),
    }


def decode_summary(warehouse: Warehouse) -> dict[str, Any]:
    """Messages, transactional messages and acks; quarantine by reason, books."""
    messages = warehouse.read(MESSAGES)
    alone = sum(warehouse.read(table).where("decoded_alone").count() for table in DECODED)
    every, transactional = messages.agg(F.count("*"), F.count_if("transactional")).collect()[0]
    return {
        "messages": every,
        "transactional_messages": transactional,
        "acks": _counts(warehouse.read(ACKS), "ack_type"),
        "decoded_alone": alone,
        "quarantine": _counts(warehouse.read(QUARANTINE), "reason"),
        "books": _books(warehouse.read(BOOKS)),
    }


def replay_summary(warehouse: Warehouse) -> dict[str, Any]:
    """Verdicts and findings by kind."""
    return {
        "verdicts": _counts(warehouse.read(VERDICTS), "verdict"),
        "findings": _counts(warehouse.read(FINDINGS), "kind"),
    }


def summary(warehouse: Warehouse) -> dict[str, Any]:
    """All of these."""
    first = {"tables": warehouse.place, "captures": _counts(warehouse.read(CAPTURES), "status")}
    return first | decode_summary(warehouse) | replay_summary(warehouse)


def _counts(rows: DataFrame, column: str) -> dict[str, int]:
    """Rows by the values of an enumerated column, of which there are few."""
    return {row[0]: row[1] for row in rows.groupBy(column).count().orderBy(F.desc("count"), column).collect()}


def _books(books: DataFrame) -> dict[str, int]:
    laws, unbalanced = books.agg(F.count("*"), F.count_if(~F.col("balanced"))).collect()[0]
    return {"balanced": laws - unbalanced, "unbalanced": unbalanced}
