"""Counts pings of MSMQ, by UDP, and which of them were answered ([MS-MQQB] 2.1.2, 3.1.7.6 to 3.1.7.8)."""

from collections.abc import Mapping

import polars as pl

from schemas.wire import PING_PATIENCE_NS, PING_PORT
from udfs.frames.columns import count_if
from udfs.frames.derivation import derives

_PAIR = ("source", "destination")
_PING = ("capture", *_PAIR, "cookie")
_ADDRESS, _ENDPOINT = 16, 18
_PORT = PING_PORT.to_bytes(2, "big")


@derives(("capture",))
def sum_up_pings(pings: pl.DataFrame, last_ns: Mapping[int, int | None]) -> pl.DataFrame:
    """Returns a row for each capture and pair of addresses: the fields of `schemas.ingest.PINGS`, addresses packed.

    `pings` are the requests and answers of whole captures, whose last records have the times `last_ns`. Their order
    does not matter, nor how often one was captured. A request without an answer in a capture's last second is left out,
    and an answer without a request counts: the other one may be in the next capture.
    """
    source, destination = (pl.col("endpoints").bin.slice(at, _ENDPOINT) for at in (0, _ENDPOINT))
    to_port, from_port = (side.bin.slice(_ADDRESS) == _PORT for side in (destination, source))
    asked = _distinct(pings.filter(to_port), source, destination, "asked")
    answers = _distinct(pings.filter(from_port), destination, source, "answered")
    is_client = pl.col("source").bin.slice(_ADDRESS) != _PORT  # between two ports 3527 nobody knows who asks
    lone = answers.filter(is_client).join(asked, on=_PING, how="anti")
    both = pl.concat([asked.join(answers, on=_PING, how="left"), lone], how="diagonal")
    waits, asked_ns = pl.col("answered").is_null(), pl.col("asked_ns")
    last = pl.col("capture").replace_strict(last_ns, return_dtype=pl.Int64)
    may_come = waits & (asked_ns > last - PING_PATIENCE_NS).fill_null(value=False)
    unanswered_ns = asked_ns.filter(waits)
    return (
        both.filter(~may_come)
        .group_by("capture", *(pl.col(side).bin.slice(0, _ADDRESS) for side in _PAIR))
        .agg(
            count_if(pl.col("asked").is_not_null()).alias("requests"),
            count_if(~waits).alias("answers"),
            unanswered_ns.min().alias("first_ns"),
            unanswered_ns.max().alias("last_ns"),
            pl.max("answered_ns"),
        )
    )


def _distinct(packets: pl.DataFrame, client: pl.Expr, server: pl.Expr, what: str) -> pl.DataFrame:
    """Returns the pings of these packets, each once: _PING, true in the column `what`, and its first time."""
    keys = ("capture", client.alias("source"), server.alias("destination"), "cookie")
    return packets.group_by(keys).agg(pl.lit(value=True).alias(what), pl.min("time_ns").alias(f"{what}_ns"))
