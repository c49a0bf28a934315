"""Declares the rows between the queries and the passes that explain a replay, which exist only during a run."""

from pyspark.sql.types import ArrayType

from schemas.incidents import INCIDENTS
from schemas.replay import FINDINGS
from schemas.table import BOOL, DOUBLE, LONG, STRING, row

CHOSEN = row(
    scope_no=LONG,
    scope_check=LONG,
    sequence=LONG,
    kind=STRING,
    cause=LONG,
    severity=STRING,
    messages=LONG,
    delivered=LONG,
    lost=LONG,
    waited_ms=DOUBLE,
    is_sent_later=BOOL,
    intervals=ArrayType(DOUBLE),
    role=STRING,
    replay_order=LONG,
)
"""A message that a finding shows in a `role`, beside the figures of the finding."""

EXPLAINED = row(finding=FINDINGS.spark, incident=INCIDENTS.spark)
"""A row of FINDINGS with its `incident_id`, or one of INCIDENTS."""
