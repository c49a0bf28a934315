"""Declares the table `runs`: which versions of all tables belong together."""

from schemas.table import LONG, STRING, TIMESTAMP, Column, Table, array, row

TABLE_VERSION = row(table=STRING, version=LONG)

RUNS = Table(
    "runs",
    "One row per completed run of nightly, replay or repair that changed the tables, written last: the versions of one "
    "moment.",
    ("run_id",),
    (
        Column("run_id", STRING, "Identifier of the run.", nullable=False),
        Column("command", STRING, "The command: nightly, replay or repair.", nullable=False),
        Column("began_at", TIMESTAMP, "When it began, UTC.", nullable=False),
        Column("ended_at", TIMESTAMP, "When its tables and report were complete, UTC.", nullable=False),
        Column("version", STRING, "Release of msmq-replay.", nullable=False),
        Column("options", STRING, "Options with another value than their default, as JSON.", nullable=False),
        Column("new_captures", LONG, "Captures that it read, those that were read before included.", nullable=False),
        Column("captures", LONG, "Captures that the warehouse had then.", nullable=False),
        Column("messages", LONG, "User messages that the warehouse had then.", nullable=False),
        Column("lost_messages", LONG, "Messages lost, in all of the warehouse; null if the replay does not tell."),
        Column("stuck_messages", LONG, "Messages stuck, likewise."),
        Column("unacknowledged_messages", LONG, "Messages never acknowledged, likewise."),
        Column("unknown_messages", LONG, "Messages of which the captures do not tell, likewise."),
        Column("exit_code", LONG, "Exit code of the run: 3 if --fail-on matched.", nullable=False),
        Column(
            "tables",
            array(TABLE_VERSION),
            "Of each table a version with the rows that the run left: who reads these versions (VERSION AS OF) sees "
            "the tables as they belong together, also while a later run writes.",
            nullable=False,
        ),
    ),
)
