"""Rows between the passes that judge messages: marks, chains, judged and proven runs.

A row says nothing of a column that does not concern it: that is null. A TxSequenceID is `signed` (TxSequenceID - 2^63),
so that it is a BIGINT; times are ns since 1970.
"""

from schemas.table import BOOL, LONG, STRING, U16, array, row

_LISTS = dict.fromkeys(("offsets", "times", "message_nos"), array(LONG))
"""Stream offset, captured_ns and hash of the message ID of each message of a chain or a run, in order."""
_STREAM = {"scope_no": LONG, "stream_no": LONG, "pair_no": LONG}
_NUMBERS = dict.fromkeys(("replay_order", "sequence", "first_number", "number", "previous", "missing"), LONG)
_STATE = dict.fromkeys(("state_sequence", "state_number"), LONG)

MARK = row(
    **_STREAM,
    **dict.fromkeys(("stream_offset", "at_ns", "captured_ns"), LONG),
    mid_stream=BOOL,
    is_settled=BOOL,
    **dict.fromkeys(("sequence", "number", "previous", "message_no", "missing"), LONG),
)
"""A message of a scope on its stream, or the state before the scope's first message, or bytes that are not read.

`at_ns` is what counts for the order between streams; `missing` counts unread ranges. Of a message that is settled,
which is not judged again, only the place is told.
"""

PLACED = row(**{f.name: f.type for f in MARK if f.name not in {"at_ns", "is_settled"}}, clock=LONG, cut_off=BOOL)
"""A message, an initial state or the end of a stream, with what the stream before it says.

`clock` is the latest `at_ns` on its stream so far; `missing` counts the unread ranges since the message before;
`cut_off` marks the first message of a stream that was captured from mid-stream.
"""

RESUMED = row(
    scope_key=STRING,
    **_STATE,
    **dict.fromkeys(("last_order", "moved_order", "last_sent", "began_ns", "missing"), LONG),
)
"""The receiver's state after the arrivals of a scope that are not judged again, and what these count.

`last_order` and `moved_order` are the `replay_order` of the last one and of the last that moved the state; since then
no bytes are unread, and `missing` counts the ranges before. `last_sent` is the `sent_order` of the last message that
was accepted, `began_ns` the time of the first one that is judged.
"""

BEHIND = row(scope_key=STRING, stream_id=STRING, stream_offset=LONG)
"""The last message of a scope on a stream that is not judged again, where others follow on the stream."""

CHAIN = row(**_STREAM, **_NUMBERS, **_LISTS)
"""Messages that follow one another in a scope, on one stream, without a gap; or, without `previous`, an initial state.

`replay_order`, `first_number` and `previous` are those of the first message, `number` is that of the last. `missing`
counts the unread ranges before.
"""

JUDGED = row(
    turn=LONG,
    **_STREAM,
    **{name: of for name, of in _NUMBERS.items() if name not in {"previous", "missing"}},
    **_LISTS,
    **_STATE,
    accepted=BOOL,
    verdict=STRING,
    reason=STRING,
    **dict.fromkeys(("gap_size", "reject_count", "missing_runs", "conformant_number"), LONG),
    behind_gap=BOOL,
    in_doubt=BOOL,
)
"""A message with its verdict and the state before it; or a run of a chain that is all in order.

In a run, `replay_order`, `state_number` and `conformant_number` are those of the first message and rise by one. Each
row comes twice: at the turn TIMES with the columns TIMED alone, and at the turn VERDICT.
"""
TIMED = ("pair_no", "sequence", "first_number", "times", "accepted")
ACK, TIMES, VERDICT = range(3)
"""Turns in which a pair's rows of one sequence come to be compared: all its acknowledgments, then JUDGED, twice."""

ACKNOWLEDGED = row(turn=LONG, pair_no=LONG, sequence=LONG, number=LONG, ns=LONG, message_class=U16, message_no=LONG)
"""An OrderAck for a pair; or a FinalAck, which has a class and the hash of a message's ID."""

PIECE_BYTES = 1 << 24
"""Streams are cut into pieces of so many bytes where a step would hold all messages of one."""

PROVEN = row(
    scope_no=LONG,
    stream_no=LONG,
    piece=LONG,
    **dict.fromkeys(("first_offset", "last_offset", "replay_order", "sequence", "first_number"), LONG),
    **_STATE,
    **{f.name: f.type for f in list(JUDGED)[JUDGED.names.index("accepted") :] if f.name != "conformant_number"},
    **dict.fromkeys(("acknowledged_ns", "covered_ns"), LONG),
    evidence=STRING,
    next_ack_agrees_with=STRING,
    final_ack_class=U16,
    final_ns=LONG,
)
"""A run of messages in one piece of their stream, of which acknowledgments say the same."""

ENDED = row(**{field.name: field.type for field in PROVEN}, doubt_ended_ns=LONG)
"""A row of PROVEN, and when its verdict was no longer in doubt, if it is `in_doubt`."""
