"""Declares the table of UDP pings, which `ingest` writes."""

from schemas import wire
from schemas.messages import some_columns
from schemas.table import BOOL, LONG, STRING, TIMESTAMP, U16, Column, Table

PINGS = Table(
    "pings",
    "One row per UDP ping, with which a queue manager asks another whether it would accept a session. The record is "
    "counted as other traffic of its capture.",
    ("capture_id", "frame_number"),
    (
        Column("capture_id", STRING, "Capture that contains the ping.", nullable=False),
        Column("frame_number", LONG, "1-based record number in the capture.", nullable=False),
        Column("captured_at", TIMESTAMP, "Time of the record, UTC."),
        Column("captured_ns", LONG, "The same in ns since 1970; null when the capture has no times."),
        Column("src_ip", STRING, "Sending address.", nullable=False),
        Column("src_port", U16, "Sending port.", nullable=False),
        Column("dst_ip", STRING, "Receiving address.", nullable=False),
        Column("dst_port", U16, "Receiving port.", nullable=False),
        Column("is_response", BOOL, "Sent from port 3527, which makes it an answer.", nullable=False),
        *some_columns(wire.PING, "refused", "cookie", "queue_manager"),
    ),
)
