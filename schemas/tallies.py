"""The tables that let a replay keep what it need not judge again: sums of each sequence, and findings on messages."""

from schemas.outcomes import NOT_READ_SINCE, OUTCOME_COUNTS, SCOPE_KEY, SOURCE
from schemas.replay import FINDINGS, VERDICT_COUNTS
from schemas.table import BOOL, LONG, STRING, TIMESTAMP, U64, Column, Table, array

_STREAM_ID = Column("stream_id", STRING, "Stream of the messages.", nullable=False)
_MESSAGES = (
    Column("messages", LONG, "Messages that arrived.", nullable=False),
    *VERDICT_COUNTS,
    Column("expired", LONG, "Numbers that were skipped, from a known state."),
    Column("acknowledged", LONG, "Accepted messages that were acknowledged."),
    Column("late", LONG, "Accepted messages that were acknowledged late or never."),
)
_ENDS = (
    *(Column(f"{end}_number", LONG, f"The {end} number, by value.") for end in ("first", "last")),
    Column("last_accepted_number", LONG, "The last number that was accepted."),
    *(Column(f"{end}_captured_at", TIMESTAMP, f"Time of the {end} message, UTC.") for end in ("first", "last")),
    Column("last_captured_ns", LONG, "The same in ns since 1970."),
    *(Column(f"{end}_offset", LONG, f"Stream offset of the {end} message.") for end in ("first", "last")),
    Column("first_ns", LONG, "Time of the message at the first offset, in ns since 1970."),
    *(Column(f"{end}_order", LONG, f"`replay_order` of the {end} arrival.") for end in ("first", "last")),
)
_STATES = (
    *(Column(f"opening_{name}", LONG, "State before the first arrival.") for name in ("sequence", "number")),
    Column("opening_missing", LONG, "`missing_runs` of the first arrival."),
    Column("begins", BOOL, "The first arrival is a new_sequence, and rests on no unread bytes and no assumed state."),
    *(Column(f"state_{name}", LONG, "State after the last arrival.") for name in ("sequence", "number")),
    Column("moved_order", LONG, "`replay_order` of the last arrival that moved the state."),
    Column("last_sent", LONG, "When, and as which message, the sender sent the last message that was accepted."),
    Column("last_from_zero", LONG, "`replay_order` of the last message that was accepted with previous number 0."),
    Column("last_unknown", LONG, "Twice that of the last unknown arrival, and 1 if an OrderAck covered it."),
)
_ANSWERS = (
    Column("watched_ns", LONG, "Until when the session's OrderAcks could be seen, in ns since 1970; null if not."),
    Column("answers_whole", BOOL, "No byte from the receiver is unread."),
)

TALLIES = Table(
    "internal_tallies",
    "What the messages of a sequence on one stream add up to, so that the next replay need not judge them again. "
    "Outcomes are counted in one row per sequence and session.",
    ("scope_key", "tx_sequence_id", "session_id", "stream_id"),
    (
        SCOPE_KEY,
        SOURCE,
        Column("tx_sequence_id", U64, "TxSequenceID, unsigned.", nullable=False),
        Column("session_id", STRING, "Session of the messages.", nullable=False),
        _STREAM_ID,
        *_MESSAGES,
        *_ENDS,
        *_STATES,
        *OUTCOME_COUNTS,
        NOT_READ_SINCE,
        Column("delivered_arrivals", LONG, "Arrivals of delivered messages."),
        Column(
            "next_resend_at", TIMESTAMP, "The first next_resend_at of its messages in outcomes, UTC; null for none."
        ),
        *_ANSWERS,
    ),
)

FINDINGS_ON_MESSAGES = Table(
    "internal_findings",
    "Findings on messages as their rules tell them: in `findings` none is graver than its incident. `witness` lists "
    "places, `<stream_id>@<stream_offset>`.",
    FINDINGS.key,
    tuple(
        Column("witness", array(STRING), "Places of the packets that prove it.") if column.name == "witness" else column
        for column in FINDINGS
    ),
)
