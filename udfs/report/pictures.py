"""Chooses what the pictures of the worst sessions show: messages and OrderAcks over time."""

import polars as pl

from schemas.replay import Verdict
from udfs.frames.columns import ACK_PAIR, SEQUENCE, count, count_if, signed
from udfs.frames.derivation import derives
from udfs.replay.order.acks import find_addresses, pair_acks, select_order_acks

DRAWN_SESSIONS = 20
DRAWN_SCOPES = 3
"""Of each of these sessions."""
DRAWN_POINTS = 2_000
"""Of each of these scopes, about."""
PICTURE = ["session_id", "scope_key"]
_POINT = (
    *("source_queue_manager", "destination_queue", "captured_ns", "tx_sequence_id", "tx_sequence_number"),
    *("previous_tx_sequence_number", "verdict", "ack_latency_ms", "capture_id", "last_frame", "fate"),
)


@derives(("session_id",), columns={"verdicts": (*PICTURE, "replay_order", "accepted", *_POINT)})
def points(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages of each session's worst scopes, as many as are drawn of each at most, in replay order.

    Each verdict of a scope gets an equal share and is thinned evenly to it, so a few refused messages among many
    accepted ones all stay. `messages` counts those of the scope, `scopes` those of the session. `verdicts` have their
    `fate`.
    """
    alike = [*PICTURE, "verdict"]
    refused = ~pl.col("accepted").fill_null(value=False) & (pl.col("verdict") != Verdict.DUPLICATE.value)
    kinds = verdicts.group_by(alike).agg(count().alias("of"), count_if(refused).alias("refused"))
    pictures = (
        kinds.group_by(PICTURE)
        .agg(
            pl.col("refused").sum().alias("bad"),
            pl.col("of").sum().alias("messages"),
            (-(-DRAWN_POINTS // count())).alias("share"),
        )
        .sort("session_id", "bad", "messages", "scope_key", descending=[False, True, True, False])
        .with_columns(
            pl.int_range(pl.len()).over("session_id").alias("place"), count().over("session_id").alias("scopes")
        )
        .filter(pl.col("place") < DRAWN_SCOPES)
    )
    worst = verdicts.join(kinds.drop("refused").join(pictures, on=PICTURE), on=alike)
    return (
        _thinned(worst, alike, ["replay_order"])
        .sort("session_id", "place", "replay_order")
        .select(*PICTURE, "scopes", "messages", *_POINT)
    )


def _thinned(rows: pl.DataFrame, within: list[str], order: list[str]) -> pl.DataFrame:
    """Returns every k-th row and the last one of each group, about `share` of its `of` rows: columns of theirs."""
    rank = pl.int_range(pl.len(), dtype=pl.Int64).over(within)
    every = -(-pl.col("of") // pl.col("share").clip(1))
    return rows.sort(order).filter((rank % every == 0) | (rank == pl.col("of") - 1))


def pictures(points: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Returns PICTURE, `source_queue_manager` and `receiver` of the drawn scopes, a session's worst first.

    `sessions` has `session_id` and `receiver`.
    """
    drawn = points.select(*PICTURE, "source_queue_manager").unique(maintain_order=True)
    return drawn.join(sessions.select("session_id", "receiver"), on="session_id", maintain_order="left")


def asked(pictures: pl.DataFrame, sequences: pl.DataFrame) -> pl.DataFrame:
    """Returns `pictures` once for each of their sequences, with its `tx_sequence_id`."""
    return pictures.join(sequences.select(SEQUENCE), on="scope_key")


@derives(("tx_sequence_id",), ("ends", "asked"))
def order_acks(acks: pl.DataFrame, ends: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """Returns the OrderAcks for the scopes of pictures: PICTURE, `ns`, `number`.

    `ends` have no copies. Of `acks`, those for the sequences that are `asked` for suffice. One without an addressee is
    for the senders that are drawn of its session.
    """
    sequences = asked.with_columns(signed(pl.col("tx_sequence_id")).alias("sequence"))
    pairs = select_order_acks(pair_acks(acks, ends, asked, find_addresses(ends)))
    found = pairs.join(sequences, on=[*ACK_PAIR, "sequence"])
    return found.select(*PICTURE, "ns", "number").unique()


@derives(PICTURE)
def stairs(acks: pl.DataFrame) -> pl.DataFrame:
    """Returns the `order_acks` of each picture, as many as are drawn at most, in order of time."""
    counted = acks.unique().with_columns(count().over(PICTURE).alias("of"), share=DRAWN_POINTS)
    drawn = _thinned(counted, PICTURE, ["ns", "number"]).select(*PICTURE, "ns", "number")
    return drawn.sort(*PICTURE, "ns", "number")
