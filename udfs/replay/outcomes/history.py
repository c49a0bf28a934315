"""Tells the history of each message: its fate, and what the receiver did each time that it arrived."""

import polars as pl

from schemas.history import MESSAGE_HISTORY
from schemas.outcomes import FATE_OF, Fate, Outcome
from schemas.wire import LATEST_ORDER_ACK_MS
from udfs.frames.columns import SEQUENCE, address_of_stream, address_reached, count, count_if
from udfs.frames.derivation import derives
from udfs.frames.tables import with_columns_of
from udfs.replay.content import MESSAGE
from udfs.replay.outcomes.plain import SLOT, with_receiver

_KEY = (*SLOT, *MESSAGE)
_SAME = ("message_key", "label", "correlation_id", "body_size", "sent_at", "tx_transaction_id", "tx_sequence")
"""Columns of VERDICTS that are the same in all arrivals of a message."""
_JUDGED = ("captured_at", "accepted", "verdict", "acknowledged_at", "ack_latency_ms")
OF_HISTORY = (
    *(*_KEY, *_SAME, *_JUDGED),
    *("session_id", "destination_queue", "stream_id", "stream_offset", "capture_id", "first_frame", "replay_order"),
)
"""The columns of VERDICTS from which the history is told."""
_FIRST = {
    "session_id": "session_id",
    "destination_queue": "destination_queue",
    "first_src_ip": "src_ip",
    "first_dst_ip": "dst_ip",
    "first_uri": "uri",
    "first_frame_number": "first_frame",
    "first_stream_id": "stream_id",
    "first_stream_offset": "stream_offset",
}
"""What the history says of the first arrival, and the column of the arrival that has it."""
_ACCEPTED = {"accepted_at": "captured_at", "accepted_uri": "uri", "accepted_frame_number": "first_frame"}
"""The same of the accepted arrival."""
_OF_OUTCOME = ("outcome", "lost", "stuck", "explanation", "delivered_by", "final_ack_class", "decided_at")


_OF_NUMBERS = (
    *("tx_sequence", "numbers", "session_id", "destination_queue", "source_queue_manager", "arrivals", "refusals"),
    *(*SLOT, *_OF_OUTCOME),
)


_OF_CAPTURE = ("capture_id", "uri")


@derives(SLOT, ("captures", "copies"), {"verdicts": OF_HISTORY, "captures": _OF_CAPTURE})
def tell_arrivals(verdicts: pl.DataFrame, captures: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of MESSAGE_HISTORY without what became of messages.

    `copies` name streams and the `copy_of` that counts instead.
    """
    acknowledged_at = pl.coalesce("acknowledged_at", "any_acknowledged_at")
    untold = with_receiver(_sum_up(_with_places(verdicts, captures, copies))).with_columns(acknowledged_at)
    return with_columns_of(MESSAGE_HISTORY, untold)


@derives(
    SLOT,
    ("captures", "copies", "incidents"),
    {
        "verdicts": OF_HISTORY,
        "captures": _OF_CAPTURE,
        "outcomes": tuple(dict.fromkeys((*_KEY, *_OF_NUMBERS))),
    },
)
def tell_unusual(
    verdicts: pl.DataFrame,
    captures: pl.DataFrame,
    copies: pl.DataFrame,
    outcomes: pl.DataFrame,
    incidents: pl.DataFrame,
) -> pl.DataFrame:
    """Returns the rows of MESSAGE_HISTORY of slots in which not all is plain.

    `outcomes` are rows of OUTCOMES with another outcome than delivered, `incidents` rows of INCIDENT_OF.
    """
    is_message = pl.col("message_id").is_not_null()
    of_messages = outcomes.filter(is_message).select(*_KEY, *_OF_OUTCOME)
    rows = (
        _sum_up(_with_places(verdicts, captures, copies)).join(of_messages, on=_KEY, how="left"),
        outcomes.filter(~is_message).select(*_OF_NUMBERS),
    )
    return _told(_with_fates(pl.concat(rows, how="diagonal")), incidents)


@derives(
    shared=("captures", "copies", "incidents"),
    columns={"verdicts": OF_HISTORY, "captures": _OF_CAPTURE},
    in_parts=True,
)
def tell_plain(
    verdicts: pl.DataFrame, captures: pl.DataFrame, copies: pl.DataFrame, incidents: pl.DataFrame
) -> pl.DataFrame:
    """Returns the rows of MESSAGE_HISTORY of plain messages: each arrived once, was accepted, and was delivered."""
    return _told(_of_one_arrival(_with_places(verdicts, captures, copies)), incidents)


def _told(rows: pl.DataFrame, incidents: pl.DataFrame) -> pl.DataFrame:
    """Returns histories as rows of MESSAGE_HISTORY, with the incidents that they are part of."""
    return with_columns_of(MESSAGE_HISTORY, with_receiver(rows).join(incidents, on=SEQUENCE, how="left"))


def _with_places(verdicts: pl.DataFrame, captures: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns arrivals with their capture's `uri`, and the addresses `src_ip` and `dst_ip` on the counting stream."""
    streams = verdicts.select("stream_id").unique().join(copies, on="stream_id", how="left")
    counting = streams.select(of_stream="stream_id", stream_id=pl.coalesce("copy_of", "stream_id"))
    addresses = counting.select("of_stream", src_ip=address_of_stream(), dst_ip=address_reached()).rename(
        {"of_stream": "stream_id"}
    )
    named = verdicts.join(captures, on="capture_id", how="left")
    return named.join(addresses, on="stream_id", how="left")


def _of_one_arrival(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns the history of messages that arrived once, were accepted, and were delivered."""
    return arrivals.select(
        *_KEY,
        *_SAME,
        *(pl.col(of).alias(name) for name, of in (_FIRST | _ACCEPTED).items()),
        "acknowledged_at",
        "ack_latency_ms",
        verdicts=pl.concat_list("verdict"),
        arrivals=pl.lit(1, pl.Int64),
        refusals=pl.lit(0, pl.Int64),
        numbers=pl.lit(1, pl.Int64),
        first_seen_at="captured_at",
        last_seen_at="captured_at",
        decided_at=_decided_at("captured_at", pl.col("acknowledged_at")),
        outcome=pl.lit(Outcome.DELIVERED.value),
        fate=pl.lit(Fate.DELIVERED.value),
        lost=pl.lit(value=False),
        stuck=pl.lit(value=False),
    )


def _sum_up(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns the history of messages, which may have arrived more than once, without what became of them.

    `any_acknowledged_at` is the first time that any arrival was acknowledged.
    """
    accepted, unjudged = pl.col("accepted").fill_null(value=False), pl.col("accepted").is_null()
    at, latency = pl.col("acknowledged_at"), pl.col("ack_latency_ms")
    return (
        arrivals.sort("replay_order")
        .group_by(_KEY, maintain_order=True)
        .agg(
            pl.first(*_SAME),
            *(pl.first(of).alias(name) for name, of in _FIRST.items()),
            *(pl.col(of).filter(accepted).first().alias(name) for name, of in _ACCEPTED.items()),
            pl.coalesce(at.filter(accepted).first(), at.filter(unjudged).min()),
            pl.coalesce(latency.filter(accepted).first(), latency.filter(unjudged).max()),
            at.min().alias("any_acknowledged_at"),
            pl.col("verdict").alias("verdicts"),
            count().alias("arrivals"),
            count_if(pl.col("accepted").not_()).alias("refusals"),
            pl.lit(1, pl.Int64).alias("numbers"),
            pl.min("captured_at").alias("first_seen_at"),
            pl.max("captured_at").alias("last_seen_at"),
        )
    )


def _with_fates(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the history with what became of messages; one without an outcome was delivered."""
    is_plain, outcome = pl.col("outcome").is_null(), pl.col("outcome").fill_null(Outcome.DELIVERED.value)
    fate = outcome.replace_strict({of.value: fate.value for of, fate in FATE_OF.items()}, return_dtype=pl.String)
    another = pl.when(fate == Fate.DELIVERED.value).then("any_acknowledged_at")
    acknowledged_at = pl.coalesce("acknowledged_at", another)
    decided_at = _decided_at("accepted_at", pl.coalesce(acknowledged_at, "last_seen_at"))
    return rows.with_columns(
        outcome=outcome,
        fate=fate,
        lost=pl.when(is_plain).then(pl.lit(value=False)).otherwise("lost"),
        stuck=pl.col("stuck").fill_null(value=False),
        decided_at=pl.when(is_plain).then(decided_at).otherwise("decided_at"),
        acknowledged_at=acknowledged_at,
    )


def _decided_at(accepted_at: str, until: pl.Expr) -> pl.Expr:
    """Returns when it showed that a message was delivered, as `rules.decided_us` does of one that is not plain.

    `until` is when it was acknowledged or, without that, sent for the last time.
    """
    is_late = until - pl.col(accepted_at) > pl.duration(milliseconds=LATEST_ORDER_ACK_MS)
    return pl.when(is_late).then(until).otherwise(accepted_at)
