"""Tables of names: what people call queue managers and queues, to join with every other table."""

from schemas.table import STRING, TIMESTAMP, Column, Table, array, row

ADDRESS = row(address=STRING, first_seen_at=TIMESTAMP, last_seen_at=TIMESTAMP)
_NAME = Column("name", STRING, "What the names file calls it; null without a name there.")

QUEUE_MANAGERS = Table(
    "queue_managers",
    "One row per queue manager that talked on a connection or sent a judged message. Its key is what "
    "source_queue_manager, sender and receiver say in other tables.",
    ("queue_manager",),
    (
        Column("queue_manager", STRING, "GUID; or its address, where no handshake names the GUID.", nullable=False),
        _NAME,
        Column("first_seen_at", TIMESTAMP, "When it was first seen to send, UTC; null if it was not."),
        Column("last_seen_at", TIMESTAMP, "When it was last seen to send, UTC; null if it was not."),
        Column(
            "addresses",
            array(ADDRESS),
            "Each IP address that it sent from, in order of first_seen_at; none of an original sender whose messages "
            "came by way of others.",
            nullable=False,
        ),
    ),
)

QUEUES = Table(
    "queues",
    "One row per destination queue of judged messages.",
    ("destination_queue",),
    (Column("destination_queue", STRING, "Format name.", nullable=False), _NAME),
)
