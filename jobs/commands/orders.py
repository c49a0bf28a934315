"""Writes lists of messages for the back office: those to send again, and those to check. Each is CSV and NDJSON."""

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from unicodedata import normalize

import polars as pl

from jobs.cli.logs import printable
from jobs.cli.text_files import write_text
from jobs.engines.in_process import InProcess
from schemas.incidents import INCIDENTS
from schemas.ingest import CAPTURES
from schemas.messages import MESSAGES
from schemas.outcomes import OUTCOMES, Outcome
from schemas.replay import ENDS
from schemas.wire import RESEND_INTERVALS_S
from udfs.frames.columns import PLACE
from udfs.report.flow import COPIES, Few, arrivals_accepted_since, read_few
from udfs.report.lacks import find_lacks, in_words, lacks_of_sessions
from udfs.report.messages import first_own, may_be_earlier, with_address
from udfs.report.period import captured

SEND_AGAIN, CHECK_ACCEPTED = "send_again", "check_accepted"
"""Names of the files, without what ends them."""
_MESSAGE = (
    *("label", "destination_queue", "correlation_id", "message_id", "source_queue_manager", "sender_address"),
    *("sent_at_utc", "first_seen_at_utc", "capture", "frame", "tx_sequence", "tx_sequence_number"),
)
COLUMNS = {
    SEND_AGAIN: ("outcome", "numbers", *_MESSAGE, "explanation", "look_first"),
    CHECK_ACCEPTED: ("suspected_copy", *_MESSAGE),
}
"""The columns of each list."""
_REFUSED = [outcome.value for outcome in (Outcome.GIVEN_UP, Outcome.PASSED_BY, Outcome.NEVER_SEEN)]
_LOOK = "look into the destination queue first, and whether the application has it already"
_LOOK_FIRST = f"The captures lack {{}}, in which it may have arrived: {_LOOK}."
_SENT_BEFORE = (
    f"By its sender's clock it was sent before the captures begin, so the receiver may have taken it then{{}}: {_LOOK}."
)
_RESENT_AFTER_S = RESEND_INTERVALS_S[0]
_SEEN_LATE = (
    f"By its sender's clock it was sent more than {_RESENT_AFTER_S} s before the captures show it, as if this was a "
    f"resend. Another arrival, on a way that the captures lack, may have been accepted: {_LOOK}."
)
_OF_A_COPY = (
    "The machine that sent it seems to be a copy of another one (a clone or a restored image), so its application may "
    "have repeated old work: ask whether the message was meant at all. "
)
_NOT_THE_OTHER = ", and not the other one with its number"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a cell begins that a spreadsheet may calculate."""
_BYTE_ORDER_MARK = "\ufeff"
"""Without it, spreadsheets take UTF-8 for the alphabet of their machine."""


def write_orders(engine: InProcess, folder: str) -> dict[str, Any]:
    """Writes the lists into a folder; returns its name, and how many messages each list has.

    Raises:
        JobError: they cannot be written.
    """
    few = read_few(engine, INCIDENTS, ENDS, CAPTURES)
    lost = _marked(_lost(engine, few[COPIES]), few[INCIDENTS.name], "sender_address")
    of_a_copy = pl.when("suspected_copy").then(pl.lit(_OF_A_COPY)).otherwise(pl.lit(""))
    found = {
        SEND_AGAIN: lost.with_columns(look_first=(of_a_copy + _look_first(few)).str.strip_chars()),
        CHECK_ACCEPTED: _accepted(engine, few[INCIDENTS.name], few[COPIES]),
    }
    for name, rows in found.items():
        listed = rows.select(COLUMNS[name]).to_dicts()
        place = f"{folder.rstrip('/')}/{name}"
        write_text(f"{place}.csv", _csv(COLUMNS[name], listed))
        write_text(f"{place}.ndjson", "".join(f"{json.dumps(row, default=_time)}\n" for row in listed))
    numbers = {SEND_AGAIN: int(found[SEND_AGAIN]["numbers"].sum()), CHECK_ACCEPTED: found[CHECK_ACCEPTED].height}
    return {"folder": folder} | numbers


def _lost(engine: InProcess, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages that are lost, in order of time, and the numbers of those that no capture holds."""
    lost = engine.collect(rows=engine.read(OUTCOMES))["rows"].filter("lost")
    own = lost.with_columns(pl.when(pl.col("message_id").is_not_null()).then(first_own()).alias("own"))
    placed = own.with_columns(pl.col("own").struct.field(*PLACE, "uri", "frame_number"))
    named = with_address(placed, copies).rename(
        {"address": "sender_address", "uri": "capture", "frame_number": "frame"}
    )
    return _with_message(engine, named.rename({"first_seen_at": "first_seen_at_utc"}).drop("own"))


def _look_first(few: Few) -> pl.Expr:
    """Returns what to look at before a lost message is sent again: missing bytes may hold an arrival that was accepted.

    That is so unless another message has its number, which damaged bytes may seem to be, or a FinalAck says that it did
    not reach its queue. One that was sent before the captures begin may have been accepted then, and one of which they
    show only what seems to be a resend, before.
    """
    whole = few[ENDS.name], few[CAPTURES.name]
    found = find_lacks(*whole)
    anywhere = in_words(found)  # a file that is not there may have held a connection of any session
    lacks = {session: anywhere or words for session, words in lacks_of_sessions(*whole).items()}
    said = {session: _LOOK_FIRST.format(words) for session, words in lacks.items() if words}
    of_session = pl.col("session_id").replace_strict(said, default="", return_dtype=pl.String)
    doubted = [*_REFUSED, *([Outcome.DISPLACED.value] if found.damaged else [])]
    may_be_there = may_be_earlier(captured(few[CAPTURES.name])[0])
    is_late = pl.col("first_seen_at_utc") - pl.col("sent_at") > pl.duration(seconds=_RESENT_AFTER_S)
    return (
        pl.when(may_be_there & (pl.col("outcome") == Outcome.DISPLACED.value))
        .then(pl.lit(_SENT_BEFORE.format(_NOT_THE_OTHER)))
        .when(may_be_there)
        .then(pl.lit(_SENT_BEFORE.format("")))
        .when(pl.col("outcome").is_in(doubted) & (of_session != ""))
        .then(of_session)
        .when(pl.col("outcome").is_in(_REFUSED) & is_late)
        .then(pl.lit(_SEEN_LATE))
        .otherwise(pl.lit(""))
    )


def _accepted(engine: InProcess, incidents: pl.DataFrame, copies: pl.DataFrame) -> pl.DataFrame:
    """Returns the messages that were accepted since numbers were used twice, those of suspected copies first."""
    arrivals = engine.collect(rows=arrivals_accepted_since(engine, incidents, copies))["rows"]
    marked = _marked(arrivals, incidents, "address")
    named = marked.rename({"address": "sender_address", "captured_at": "first_seen_at_utc"})
    rows = _with_message(engine, named).sort("suspected_copy", descending=True, maintain_order=True)
    captures = engine.collect(rows=engine.read(CAPTURES, "capture_id", "uri"))["rows"]
    places = captures.rename({"uri": "capture"})
    return rows.join(places, on="capture_id", how="left", maintain_order="left").rename({"first_frame": "frame"})


def _marked(rows: pl.DataFrame, incidents: pl.DataFrame, address: str) -> pl.DataFrame:
    """Adds whether each row's sender, in the column `address`, is a `suspected_copy` of another machine."""
    senders = incidents.select("source_queue_manager", "senders").explode("senders").unnest("senders")
    suspected = senders.filter("suspected").select("source_queue_manager", pl.col("address").alias(address)).unique()
    marked = rows.join(
        suspected.with_columns(suspected_copy=True),
        on=["source_queue_manager", address],
        how="left",
        maintain_order="left",
    )
    return marked.with_columns(pl.col("suspected_copy").fill_null(value=False))


def _with_message(engine: InProcess, rows: pl.DataFrame) -> pl.DataFrame:
    """Adds what only the packet of a message says, and puts the rows in order of time."""
    columns = ("sent_at", "correlation_id", "tx_sequence", "tx_sequence_number", "capture_id", "first_frame")
    messages = engine.collect(rows=engine.read(MESSAGES, *PLACE, *columns))["rows"].rename({"sent_at": "sent_at_utc"})
    packets = messages.drop(name for name in messages.columns if name in rows.columns and name not in PLACE)
    found = rows.join(packets, on=PLACE, how="left")
    return found.sort("first_seen_at_utc", "source_queue_manager", "tx_sequence", "tx_sequence_number", nulls_last=True)


def _csv(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO(newline="")
    table = csv.writer(text)  # with the ends of lines of RFC 4180
    table.writerow(columns)
    table.writerows([_cell(row[name]) for name in columns] for row in rows)
    return f"{_BYTE_ORDER_MARK}{text.getvalue()}"


def _cell(value: Any) -> str:
    """Returns a value as a cell that no spreadsheet calculates: an apostrophe makes it a text."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool):
        return str(value).lower()
    text = "" if value is None else str(value)
    # A spreadsheet may take off spaces, and reads wide characters as their narrow ones.
    is_formula = text.startswith(_FORMULA) or normalize("NFKC", text.strip()).startswith(_FORMULA)
    return f"{chr(39)}{printable(text)}" if is_formula else printable(text)


def _time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat()
