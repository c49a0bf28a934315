"""Declares the rows between the queries and the passes that explain a replay, which exist only during a run."""

from schemas.outcomes import OUTCOMES
from schemas.replay import FINDINGS
from schemas.table import BOOL, DOUBLE, LONG, STRING, U16, RowType, Table, array, row

CHOSEN = row(
    scope_no=LONG,
    sequence=LONG,
    kind=STRING,
    cause=LONG,
    severity=STRING,
    messages=LONG,
    delivered=LONG,
    lost=LONG,
    waited_ms=DOUBLE,
    is_sent_later=BOOL,
    intervals=array(DOUBLE),
    role=STRING,
    replay_order=LONG,
)
"""A message that a finding shows in a `role`, beside the figures of the finding."""


def keyed(table: Table) -> RowType:
    """Returns a table's row in which `witness` lists keys, `<stream_id>@<stream_offset>`: frames are looked up last."""
    return row(**{f.name: array(STRING) if f.name == "witness" else f.type for f in table.arrow})


FOUND = keyed(FINDINGS)
"""A row of FINDINGS; `incident_id` is null until incidents are told."""

ARRIVAL = row(
    scope_key=STRING,
    sequence=LONG,
    number=LONG,
    plain_to=LONG,
    **{f"{when}_{name}": LONG for when in ("opening", "state") for name in ("sequence", "number")},
    state_assumed=BOOL,
    several_receivers=BOOL,
    due=LONG,
    replay_order=LONG,
    previous=LONG,
    source_queue_manager=STRING,
    message_id=STRING,
    content_hash=LONG,
    accepted_twice=BOOL,
    session_id=STRING,
    destination_queue=STRING,
    label=STRING,
    captured_us=LONG,
    accepted=BOOL,
    verdict=STRING,
    evidence=STRING,
    final_ack_class=U16,
    covered=BOOL,
    assumed=BOOL,
    cut_off=BOOL,
    missing_runs=LONG,
    behind_gap=BOOL,
    before_sequence=LONG,
    before_number=LONG,
    key=STRING,
)
"""An arrival in an unusual slot with what is known of its scope, or a run of plain ones (`udfs.replay.arrivals`)."""

OF_SLOT = row(outcome=keyed(OUTCOMES))
"""A row of `outcomes`, delivered messages among them."""
