"""Finds captures whose clocks nothing compares, and the messages of which the order rests on two such clocks.

Captures are compared by a connection, or a copy of one, that both show. Files of one ring buffer are of one clock.
"""

from itertools import groupby
from operator import itemgetter

import polars as pl

from udfs.frames.columns import CAPTURES_OF_PAIR, PLACE, address_of_stream, nanoseconds, number_of
from udfs.frames.derivation import derives
from udfs.replay.content import CONTENT
from udfs.replay.order.copies import first_of_linked

_LONGEST_NS = 3_600_000_000_000
"""Clocks that nothing compares are taken to differ by less: an hour, as with a wrong time zone."""
_OVERLAP_NS = 500_000_000
_CLOCKS = {"capture_id": pl.String, "clock": pl.String}
_WINDOW = f"{_LONGEST_NS}i"
_SLOT = ("scope_key", "tx_sequence_id", "tx_sequence_number")


def captures_apart(captures: pl.DataFrame) -> pl.DataFrame:
    """Returns `capture_id` and `tap` of captures, if two taps are near enough in time for their order to matter.

    Files that follow one another, and whose names differ only in a number or a time of four digits or more or in what
    follows the extension, are the ring buffer of one tap, which the first of them names.
    """
    name = pl.col("uri").str.replace_all(r"\d{4,}", "").str.replace(r"(\.p?capn?g?)\d+", "${1}")
    times = captures.select(
        "capture_id",
        name=pl.coalesce(name, "capture_id"),
        first_ns=nanoseconds(pl.col("first_captured_at")),
        last_ns=nanoseconds(pl.col("last_captured_at")),
    )
    rows = times.drop_nulls().sort("name", "first_ns", "last_ns", "capture_id").rows()
    spans: list[tuple[int, int, str, str]] = []
    for _, of_name in groupby(rows, itemgetter(1)):
        files = list(of_name)
        ends = [last for *_, last in files]
        follow = all(first >= max(ends[:nth], default=first) - _OVERLAP_NS for nth, (*_, first, _) in enumerate(files))
        spans += [(first, last, files[0][0] if follow else one, one) for one, _, first, last in files]
    if not _any_near(sorted(spans)):
        return pl.DataFrame(schema={"capture_id": pl.String, "tap": pl.String})
    return pl.DataFrame([(one, tap) for *_, tap, one in spans], ["capture_id", "tap"], orient="row")


def _any_near(spans: list[tuple[int, int, str, str]]) -> bool:
    """Returns whether a capture begins before one of another tap, or soon after it, has ended; they are in order."""
    ends: dict[str, int] = {}
    for first, last, tap, _ in spans:
        others = (end for other, end in ends.items() if other != tap)
        if any(first - end < _LONGEST_NS for end in others):
            return True
        ends = {other: end for other, end in ends.items() if first - end < _LONGEST_NS}
        ends[tap] = max(last, ends.get(tap, last))
    return False


def find_clocks(
    apart: pl.DataFrame, shown: pl.DataFrame, streams: pl.DataFrame, differences: pl.DataFrame
) -> pl.DataFrame:
    """Returns the `clock` of each `capture_id`, which captures have in common that something compares.

    Nothing is returned if all have one. `apart` are `captures_apart`, `shown` are `stream_id` and `capture_id` of
    packets, `differences` rows of `united.unite_streams`.
    """
    of_taps = apart.select("capture_id", link="tap")
    of_connections = shown.join(streams.select("stream_id", link="connection_id"), on="stream_id")
    pairs = differences.select(CAPTURES_OF_PAIR).unique().with_row_index("pair")
    of_pairs = (pairs.select(capture_id=side, link=pl.format("pair {}", "pair")) for side in CAPTURES_OF_PAIR)
    links = pl.concat([of_taps, of_connections.select("capture_id", "link"), *of_pairs]).drop_nulls()
    together = links.group_by("link").agg(pl.col("capture_id").unique()).sort("link")["capture_id"].to_list()
    clocks = first_of_linked(together)
    found = {one: clocks[one] for one in apart["capture_id"]}
    rows = sorted(found.items()) if len(set(found.values())) > 1 else []
    return pl.DataFrame(rows, _CLOCKS, orient="row")


@derives(("scope_key",))
def undecided(messages: pl.DataFrame) -> pl.DataFrame:
    """Returns the PLACE of messages of whole scopes that may have come before or after one by another `clock`.

    That is one less than an hour away, and it matters: by the clocks, the one with the lower number came later. Of two
    messages in one slot, and of one that another machine's may have overtaken, it is not known whether they were
    accepted: they are `contested`.
    """
    several = messages.drop_nulls("captured_ns").filter(pl.col("clock").n_unique().over("scope_key") > 1)
    if several.is_empty():
        return several.select(*PLACE, contested=pl.lit(value=False))
    rows = several.with_columns(
        rank=pl.struct("tx_sequence_id", "tx_sequence_number").rank("dense").over("scope_key").cast(pl.Int64),
        nth_sequence=pl.col("tx_sequence_id").rank("dense").over("scope_key").cast(pl.Int64),
        content=number_of(*CONTENT),
        address=address_of_stream(),
    )
    scopes = (_of_scope(scope) for scope in rows.partition_by("scope_key"))
    contested = pl.concat([_in_one_slot(rows), _skipped(rows)]).unique()
    found = pl.concat(scopes).join(contested.with_columns(is_contested=True), on=PLACE, how="left")
    return (
        found.select(*PLACE, "inverted", contested=pl.col("is_contested").fill_null(value=False) | pl.col("overtaken"))
        .filter(pl.col("inverted") | pl.col("contested"))
        .drop("inverted")
    )


def _of_scope(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns whether each message of a scope is `inverted` or `overtaken`, by one of another clock."""
    found = []
    for (clock, address), own in rows.partition_by("clock", "address", as_dict=True).items():
        others = rows.filter(pl.col("clock") != clock)
        begins = pl.when(pl.col("address") != address, previous_tx_sequence_number=0).then("nth_sequence")
        values = pl.concat(
            [
                others.select("captured_ns", "rank", begun=begins),
                own.select("captured_ns", *PLACE, own="rank", sequence="nth_sequence"),
            ],
            how="diagonal",
        )
        before = values.sort("captured_ns").with_columns(
            highest=pl.col("rank").rolling_max_by("captured_ns", window_size=_WINDOW)
        )
        after = (
            before.with_columns(to_go=-pl.col("captured_ns"))
            .sort("to_go")
            .with_columns(
                lowest=pl.col("rank").rolling_min_by("to_go", window_size=_WINDOW),
                begun=pl.col("begun").rolling_max_by("to_go", window_size=_WINDOW),
            )
        )
        found.append(
            after.drop_nulls("own").select(
                *PLACE,
                inverted=((pl.col("highest") > pl.col("own")) | (pl.col("lowest") < pl.col("own"))).fill_null(
                    value=False
                ),
                overtaken=(pl.col("begun") > pl.col("sequence")).fill_null(value=False),
            )
        )
    return pl.concat(found)


def _near(pairs: pl.DataFrame) -> pl.DataFrame:
    """Returns the pairs by two clocks that are less than an hour apart."""
    apart = (pl.col("captured_ns") - pl.col("captured_ns_other")).abs()
    return pairs.filter(pl.col("clock") != pl.col("clock_other"), apart < _LONGEST_NS)


def _in_one_slot(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the PLACE of messages of which another one has the number, by another clock."""
    shared = rows.filter(pl.col("clock").n_unique().over(_SLOT) > 1, pl.col("content").n_unique().over(_SLOT) > 1)
    pairs = shared.join(shared.select(*_SLOT, "clock", "content", "captured_ns"), on=_SLOT, suffix="_other")
    return _near(pairs).filter(pl.col("content") != pl.col("content_other")).select(PLACE).unique()


def _skipped(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the PLACE of messages that a later one, by another clock, skips: its previous number is lower."""
    of_sequence = ("scope_key", "tx_sequence_id")
    previous, number = pl.col("previous_tx_sequence_number"), pl.col("tx_sequence_number")
    skipping = rows.filter(previous < number - 1).select(
        *of_sequence, "clock", "address", "captured_ns", low=previous, high=number
    )
    pairs = rows.join(skipping, on=of_sequence, suffix="_other").filter(
        pl.col("address") != pl.col("address_other"),
        pl.col("low") < number,
        number < pl.col("high"),
        pl.col("captured_ns_other") > pl.col("captured_ns"),
    )
    return _near(pairs).select(PLACE).unique()
