"""Looks up what proves the worst incidents, and how the message is called that a receiver waits for."""

from typing import Any

import polars as pl

from schemas.incidents import INCIDENTS, Cause
from schemas.ingest import CAPTURES
from schemas.messages import ACKS
from schemas.outcomes import OUTCOMES, Outcome
from schemas.replay import VERDICTS
from schemas.witness import Shows
from udfs.frames.columns import PLACE, SEQUENCE
from udfs.frames.engine import Engine, T
from udfs.frames.tables import schema_of
from udfs.replay.outcomes.counts import has_outcome
from udfs.report.rows import Rows

_MOST = 6
"""Packets that are told of an incident: the first ones, and the last one."""
_SHOWN = ("incident_id", *PLACE, "role", "label", "uri", "frame_number", "captured_at")
_OF_MESSAGE = ["scope_key", "message_id"]
_FRAME = (*PLACE, "capture_id", "captured_at", "first_frame")
_ASKED = ("scope_key", "tx_sequence_id", "tx_sequence_number")
_WITNESS = schema_of(INCIDENTS.arrow)["witness"]


def prove(engine: Engine[T], incidents: pl.DataFrame, findings: pl.DataFrame) -> dict[str, Rows]:
    """Returns the packets that prove each of a few incidents, in order of time, by `incident_id`.

    Beside those of its witness, they are the witness of the finding that says why, each arrival of a message that was
    never acknowledged, and the FinalAck that refused a message. Each has a `role`, as in `witness`; the `label` of its
    message; and `uri`, `frame_number` and `captured_at`, which are null where no table holds its frame.
    """
    if incidents.is_empty():
        return {}
    causes = incidents.select("incident_id", "cause")
    why = findings.join(causes, on="incident_id").filter(pl.col("kind") == pl.col("cause"))
    packets = pl.concat([_packets(incidents), _packets(why)]).unique(("incident_id", *PLACE), maintain_order=True)
    judged = engine.read(VERDICTS, *_FRAME, *_OF_MESSAGE, "label", "verdict")
    own = engine.collect(own=engine.join(judged, packets.select(PLACE).unique(), PLACE, "semi"))["own"]
    named = packets.join(own.select(*PLACE, *_OF_MESSAGE, "label"), on=PLACE, how="left")
    waiting = incidents.filter(pl.col("unacknowledged") + pl.col("unknown") > 0)
    refused = incidents.filter(pl.col("cause") == Cause.REFUSED_FOR_CAUSE.value)
    found = {}
    if (asked := _messages(named, waiting)).height:
        found["arrivals"] = engine.join(judged, asked.select(_OF_MESSAGE).unique(), _OF_MESSAGE, "semi")
    if (denied := _messages(named, refused)).height:
        acks = engine.read(ACKS, *_FRAME, "ack_type", "acknowledged_message_id")
        ids = denied.select(acknowledged_message_id="message_id").unique()
        found["final_acks"] = engine.join(acks, ids, ["acknowledged_message_id"], "semi")
    if not found:
        return _by_incident(named)
    found["captures"] = engine.read(CAPTURES, "capture_id", "uri")
    rows = engine.collect(**found)
    more = [named.select(_SHOWN)]
    if "arrivals" in rows:
        again = rows["arrivals"].join(asked, on=_OF_MESSAGE)
        more.append(_with_frames(again.with_columns(role=pl.lit(Shows.DUPLICATE.value)), rows["captures"]))
    if "final_acks" in rows:
        refusals = rows["final_acks"].filter(pl.col("ack_type") == "final_ack")
        answers = refusals.join(denied, left_on="acknowledged_message_id", right_on="message_id")
        more.append(_with_frames(answers.with_columns(role=pl.col("ack_type")), rows["captures"]))
    return _by_incident(pl.concat(more).unique(("incident_id", *PLACE), keep="first", maintain_order=True))


def _packets(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns the packets of the witnesses of incidents or findings."""
    each = rows.select("incident_id", pl.col("witness").cast(_WITNESS)).explode("witness").drop_nulls("witness")
    return each.unnest("witness").drop("capture_id")


def _messages(named: pl.DataFrame, incidents: pl.DataFrame) -> pl.DataFrame:
    """Returns the first message of each of these incidents: `incident_id`, its key and its `label`.

    That is the first in the bytes that were captured when its witness begins.
    """
    begins = _packets(incidents).group_by("incident_id").agg(pl.min("captured_at"))
    theirs = named.join(begins, on=["incident_id", "captured_at"]).drop_nulls("message_id").sort(PLACE)
    return theirs.unique("incident_id", keep="first", maintain_order=True).select("incident_id", *_OF_MESSAGE, "label")


def _with_frames(rows: pl.DataFrame, captures: pl.DataFrame) -> pl.DataFrame:
    found = rows.join(captures, on="capture_id", how="left").with_columns(frame_number="first_frame")
    return found.select(_SHOWN)


def _by_incident(packets: pl.DataFrame) -> dict[str, Rows]:
    rows = packets.select(_SHOWN).sort("captured_at", *PLACE, nulls_last=True)
    told: dict[str, Rows] = {}
    for row in rows.to_dicts():
        told.setdefault(row.pop("incident_id"), []).append(row)
    return {of: some if len(some) <= _MOST else [*some[: _MOST - 1], some[-1]] for of, some in told.items()}


def missing_messages(engine: Engine[T], incidents: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Returns by `incident_id` the first number that never arrived and that the receiver waits for, and its neighbours.

    `number` is the first of `numbers`; `after` and `before` are the labels of the messages of the same sequence that
    were sent just before and just after it, null where there is none or it has no label.
    """
    waiting = incidents.filter(pl.col("pending") > 0).select("incident_id", *SEQUENCE)
    if waiting.is_empty():
        return {}
    outcomes = engine.read(OUTCOMES, *_ASKED, "outcome", "numbers")
    of_scopes = engine.join(outcomes, waiting.select("scope_key").unique(), ["scope_key"], "semi")
    awaited = engine.collect(rows=engine.select(of_scopes, *_ASKED, "outcome", "numbers"))["rows"]
    first = (
        awaited.filter(has_outcome([Outcome.AWAITED]))
        .sort(_ASKED)
        .join(waiting, on="scope_key", suffix="_first")
        .filter(pl.col("tx_sequence_id") >= pl.col("tx_sequence_id_first"))
        .unique("incident_id", keep="first", maintain_order=True)
    )
    number = pl.col("tx_sequence_number").cast(pl.Int64)
    sides = {"after": number - 1, "before": number + pl.col("numbers")}
    wanted = pl.concat(
        first.select("incident_id", *SEQUENCE, pl.lit(side).alias("side"), at.alias("tx_sequence_number"))
        for side, at in sides.items()
    )
    keys = wanted.select(_ASKED).unique()
    judged = engine.join(engine.read(VERDICTS, *_ASKED, "label"), keys, list(_ASKED), "semi")
    labels = engine.collect(rows=judged)["rows"].drop_nulls("label").unique(_ASKED, keep="first")
    labels = labels.with_columns(pl.col("tx_sequence_number").cast(pl.Int64))
    beside = wanted.join(labels, on=_ASKED).select("incident_id", "side", "label")
    named = {(of, side): label for of, side, label in beside.iter_rows()}
    return {
        row["incident_id"]: {
            "number": row["tx_sequence_number"],
            "numbers": row["numbers"],
            **{side: named.get((row["incident_id"], side)) for side in sides},
        }
        for row in first.to_dicts()
    }
