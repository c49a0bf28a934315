"""Declares the rows between the queries and the passes that explain a replay, which exist only during a run."""

from schemas.outcomes import OUTCOMES
from schemas.replay import FINDINGS
from schemas.table import STRING, RowType, Table, array, row


def keyed(table: Table) -> RowType:
    """Returns a table's row in which `witness` lists keys, `<stream_id>@<stream_offset>`: frames are looked up last."""
    return row(**{f.name: array(STRING) if f.name == "witness" else f.type for f in table.arrow})


FOUND = keyed(FINDINGS)
"""A row of FINDINGS; `incident_id` is null until incidents are told."""
EXPLAINED = keyed(OUTCOMES)
"""A row of OUTCOMES, or one of a delivered message that came more than once."""
