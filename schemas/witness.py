"""The column `witness`: the packets that prove an outcome, a finding or an incident."""

from enum import StrEnum

from schemas.table import LONG, STRING, TIMESTAMP, Column, RowType, Table, array, row


class Shows(StrEnum):
    """Lists what a packet of a witness shows; of other packets the role is their packet type."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    DUPLICATE = "duplicate"
    NOT_JUDGED = "not_judged"
    NOT_FOUND = "not_found"


MEANING = {
    Shows.ACCEPTED: "a message that the receiver accepted",
    Shows.REFUSED: "a message that it refused as out of order",
    Shows.DUPLICATE: "a message that it refused because its number had been accepted",
    Shows.NOT_JUDGED: "a message of which the captures do not tell",
    Shows.NOT_FOUND: "a place on a stream where no packet begins",
}
_PACKET = row(
    role=STRING,
    uri=STRING,
    capture_id=STRING,
    frame_number=LONG,
    captured_at=TIMESTAMP,
    stream_id=STRING,
    stream_offset=LONG,
)
WITNESS = Column(
    "witness",
    array(_PACKET),
    "The fewest packets that prove it, in order of time: `role` is what each shows ("
    + ", ".join(f"{role}: {meaning}" for role, meaning in MEANING.items())
    + "; or the packet type), and `uri`, `capture_id` and `frame_number` say where its first frame is.",
    nullable=False,
)


def keyed(table: Table) -> RowType:
    """Returns a table's row in which `witness` lists keys, `<stream_id>@<stream_offset>`: frames are looked up last."""
    return row(**{f.name: array(STRING) if f.name == WITNESS.name else f.type for f in table.arrow})
