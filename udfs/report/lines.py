"""Makes the lines of `export` from rows: one JSON object each, as `schemas.terms` declares them."""

import hashlib
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import polars as pl

from schemas.history import MESSAGE_HISTORY
from schemas.incidents import INCIDENTS
from schemas.replay import FINDINGS
from schemas.table import Table
from schemas.terms import EXPORTED, LEFT_OUT, OUTCOME_OF, SYSTEM
from udfs.frames.columns import null
from udfs.frames.derivation import derives

_RFC_3339 = "%Y-%m-%dT%H:%M:%S%.6fZ"
_NOT_SHOWN = ("Cc", "Cf", "Zl", "Zp")
"""Categories of characters that move a cursor, end a line or reorder others where they are shown."""
_SPACE = 0x20  # JSON itself escapes what is below
_AT = "_at"
_LATER = {
    MESSAGE_HISTORY: ("last_seen_at", "decided_at", "acknowledged_at"),
    FINDINGS: ("incident_last_at",),
    INCIDENTS: ("ended_at", "last_captured_at"),
}
"""Times, after that of a row, at which something of it was captured."""


@derives(in_parts=True, shared=("sequences",))
def message_lines(
    rows: pl.DataFrame,
    sequences: pl.DataFrame,
    since: datetime | None = None,
    until: datetime | None = None,
) -> pl.DataFrame:
    """Returns a `line` for each row of MESSAGE_HISTORY of which something was captured in the period.

    A number that was never seen has the time at which its sequence was last seen.
    """
    seen = sequences.select("scope_key", "tx_sequence_id", sequence_at="last_captured_at")
    timed = rows.join(seen, on=("scope_key", "tx_sequence_id"), how="left", maintain_order="left")
    timed = timed.with_columns(_at=pl.coalesce("first_seen_at", "sequence_at", "sent_at")).drop("sequence_at")
    return _lines(MESSAGE_HISTORY, _in_period(MESSAGE_HISTORY, timed, since, until))


def finding_lines(
    rows: pl.DataFrame, incidents: pl.DataFrame, since: datetime | None = None, until: datetime | None = None
) -> pl.DataFrame:
    """Returns a `line` for each row of FINDINGS in the period; what is part of an incident lasts as long as that."""
    last = incidents.select("incident_id", incident_last_at="last_captured_at")
    timed = rows.join(last, on="incident_id", how="left", maintain_order="left").with_columns(_at="found_at")
    return _lines(FINDINGS, _in_period(FINDINGS, timed, since, until).drop("incident_last_at"))


def incident_lines(rows: pl.DataFrame, since: datetime | None = None, until: datetime | None = None) -> pl.DataFrame:
    """Returns a `line` for each row of INCIDENTS in the period."""
    timed = rows.with_columns(_at=pl.coalesce("began_at", "last_captured_at"))
    return _lines(INCIDENTS, _in_period(INCIDENTS, timed, since, until))


def _in_period(table: Table, rows: pl.DataFrame, since: datetime | None, until: datetime | None) -> pl.DataFrame:
    """Returns the rows of which something was captured from `since` on and before `until`; None: without a bound."""
    ends = pl.max_horizontal(_AT, *_LATER[table])
    if since is not None:
        rows = rows.filter(ends >= since)
    return rows if until is None else rows.filter(pl.col(_AT) < until)


def _lines(table: Table, rows: pl.DataFrame) -> pl.DataFrame:
    exported = EXPORTED[table]
    names = [name for name in table.names if name not in LEFT_OUT]
    event = {
        "kind": pl.lit(exported.kind),
        "dataset": pl.lit(exported.dataset),
        "id": _identifiers(table, rows),
    }
    if table is MESSAGE_HISTORY:
        outcomes = {fate.value: outcome.value for fate, outcome in OUTCOME_OF.items()}
        event["outcome"] = pl.col("fate").replace_strict(outcomes, default=null(pl.String), return_dtype=pl.String)
    tree: dict[str, Any] = {"@timestamp": pl.col(_AT).dt.strftime(_RFC_3339), "event": event}
    tree["messaging"] = {"system": pl.lit(SYSTEM)}
    for column, name in exported.moved.items():
        _put(tree, name.split("."), pl.col(column))
    tree[SYSTEM] = {name: pl.col(name) for name in names if name not in exported.moved}
    texts = rows.with_columns(_as_texts(rows, names))
    line = pl.struct(**{name: _struct(of) for name, of in tree.items()}).struct.json_encode()
    return texts.select(line=line.str.replace_many(*_escapes()))


def _put(tree: dict[str, Any], path: list[str], of: pl.Expr) -> None:
    first, *rest = path
    if rest:
        _put(tree.setdefault(first, {}), rest, of)
    else:
        tree[first] = of


def _struct(of: pl.Expr | pl.Series | Mapping[str, Any]) -> Any:
    return pl.struct(**{name: _struct(one) for name, one in of.items()}) if isinstance(of, Mapping) else of


def _as_texts(rows: pl.DataFrame, names: Iterable[str]) -> Iterator[pl.Expr]:
    """Yields the columns with times, which are texts of RFC 3339 then: times, and lists of structs with times."""
    for name in names:
        of = rows.schema[name]
        if isinstance(of, pl.Datetime):
            yield pl.col(name).dt.strftime(_RFC_3339)
        elif isinstance(of, pl.List) and isinstance(of.inner, pl.Struct):
            times = [one.name for one in of.inner.fields if isinstance(one.dtype, pl.Datetime)]
            yield pl.col(name).list.eval(pl.element().struct.with_fields(pl.field(times).dt.strftime(_RFC_3339)))


def _identifiers(table: Table, rows: pl.DataFrame) -> pl.Series:
    """Returns a text for each row that no other one of the table has, and that it keeps: by that it is replaced."""
    if table is INCIDENTS:
        return rows["incident_id"]
    keys = rows.select(table.key).iter_rows()
    digests = [hashlib.sha256(repr(tuple(map(str, key))).encode()).hexdigest()[:32] for key in keys]
    return pl.Series(digests, dtype=pl.String)


@cache
def _escapes() -> tuple[list[str], list[str]]:
    """Returns the characters that are not to be shown, which JSON does not escape itself, and their escapes."""
    codes = range(_SPACE, sys.maxunicode + 1)
    found = [chr(code) for code in codes if unicodedata.category(chr(code)) in _NOT_SHOWN]
    return found, ["".join(f"\\u{unit:04x}" for unit in _units(one)) for one in found]


def _units(character: str) -> list[int]:
    data = character.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]
