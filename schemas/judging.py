"""Rows between the passes that judge messages: marks, chains, judged and proven runs.

A row says nothing of a column that does not concern it: that is null. A TxSequenceID is `signed` (TxSequenceID - 2^63),
so that it is a BIGINT; times are ns since 1970.
"""

from schemas.table import BOOL, LONG, STRING, U16, U32, array, row

LISTS = dict.fromkeys(("offsets", "times", "message_nos"), array(LONG))
"""Stream offset, captured_ns and hash of the message ID of each message of a chain or a run, in order."""
_STREAM = {"scope_no": LONG, "stream_no": LONG, "pair_no": LONG}

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
    **dict.fromkeys(("state_sequence", "state_number", "last_order", "moved_order"), LONG),
    **dict.fromkeys(("last_sent", "began_ns", "missing"), LONG),
)
"""The receiver's state after the arrivals of a scope that are not judged again, and what these count.

`last_order` and `moved_order` are the `replay_order` of the last one and of the last that moved the state; since then
no bytes are unread, and `missing` counts the ranges before. `last_sent` is the `sent_order` of the last message that
was accepted, `began_ns` the time of the first one that is judged.
"""

BEHIND = row(scope_key=STRING, stream_id=STRING, stream_offset=LONG)
"""The last message of a scope on a stream that is not judged again, where others follow on the stream."""

USES = row(source_queue_manager=STRING, tx_transaction_id=U32, instance=LONG)
"""The uses of a sender's transaction IDs before the messages that are judged."""

TIMED = ("pair_no", "sequence", "first_number", "times", "accepted")
ACK, TIMES, VERDICT = range(3)
"""Turns in which a pair's rows of one sequence come to be compared: all its acknowledgments, then JUDGED, twice."""

ACKNOWLEDGED = row(turn=LONG, pair_no=LONG, sequence=LONG, number=LONG, ns=LONG, message_class=U16, message_no=LONG)
"""An OrderAck for a pair; or a FinalAck, which has a class and the hash of a message's ID."""

PIECE_BYTES = 1 << 24
"""Streams are cut into pieces of so many bytes where a step would hold all messages of one."""
