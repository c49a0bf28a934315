"""Puts findings, outcomes and senders of each sequence beside each other, and tells the incidents that they make."""

from collections.abc import Iterator

import polars as pl

from schemas.incidents import INCIDENT_OF, INCIDENTS
from schemas.outcomes import DELIVERED, NOT_ACCEPTED, Outcome, count_column
from schemas.tallies import FINDINGS_ON_MESSAGES
from schemas.witness import keyed
from udfs.frames.columns import (
    SEQUENCE,
    address_of_stream,
    address_reached,
    are_in,
    count,
    count_if,
    number_of,
    undecided,
)
from udfs.frames.derivation import Frames, derives
from udfs.frames.tables import schema_of
from udfs.replay.incidents.stories import Event, OutcomeCount, SenderSpan, SequenceSpan, explain_events
from udfs.replay.outcomes.counts import has_outcome
from udfs.replay.outcomes.plain import with_receiver

_FLOW = (*SEQUENCE, "source_queue_manager")
_OF_SENDER = ("source_queue_manager", "tx_sequence_id")
_OF_MESSAGE = (*_FLOW, "tx_sequence_number", "message_id", "content_hash")
_OUTCOME = (*SEQUENCE, "outcome")
_SENT = (*_FLOW, "address")
_SENDER = ("source_queue_manager", "address")
_QUEUE_OF_SESSION = ("session_id", "destination_queue")
_BEFORE_ALL = -(1 << 63)


def tell_incidents(
    findings: pl.DataFrame,
    outcomes: pl.DataFrame,
    sequences: pl.DataFrame,
    sent: pl.DataFrame,
    seen: pl.DataFrame,
    reached: pl.DataFrame,
    shared: pl.DataFrame,
) -> Frames:
    """Returns `findings` with their `incident_id`, `incidents`, and their `sequences`; FINDINGS and OUTCOMES have keys.

    `sent` are rows of `messages_sent`, `seen` those of `addresses_seen`, `reached` those of `addresses_reached` and
    `shared` those of `shared_sequences`.
    """
    sequences = sequences.join(reached, on=SEQUENCE, how="left").with_columns(pl.col("receivers").fill_null([]))
    sequences = sequences.with_columns(is_shared=are_in(sequences, shared))
    told = explain_events(sorted(_events(findings, outcomes, sequences, sent.join(seen, on=_SENDER)), key=_in_order))
    schemas = {
        "findings": schema_of(FINDINGS_ON_MESSAGES.arrow),
        "incidents": schema_of(keyed(INCIDENTS)),
        "sequences": schema_of(INCIDENT_OF),
    }
    return {name: pl.DataFrame(rows, schema) for (name, schema), rows in zip(schemas.items(), told, strict=True)}


def _events(
    findings: pl.DataFrame, outcomes: pl.DataFrame, sequences: pl.DataFrame, senders: pl.DataFrame
) -> Iterator[Event]:
    """Yields the events of all scopes that have an outcome or a finding."""
    troubled = pl.concat([outcomes.select(SEQUENCE), findings.select(SEQUENCE)])
    parts: tuple[tuple[type[SequenceSpan | OutcomeCount | SenderSpan], pl.DataFrame], ...] = (
        (SequenceSpan, _around(sequences, troubled)),
        (OutcomeCount, outcome_counts(outcomes)),
        (SenderSpan, senders),
    )
    for kind, rows in parts:
        values = rows.select(kind._fields).rows()
        for (scope_key, sequence), of in zip(rows.select(SEQUENCE).rows(), values, strict=True):
            yield Event(scope_key, sequence, kind(*of))
    for finding in findings.to_dicts():
        yield Event(finding["scope_key"], finding["tx_sequence_id"], finding)


def _around(sequences: pl.DataFrame, troubled: pl.DataFrame) -> pl.DataFrame:
    """Returns what a story depends on: the troubled sequences, the one before each, and the latest of their scope."""
    of_scopes = sequences.join(troubled, on="scope_key", how="semi").sort(SEQUENCE)
    delivered = pl.sum_horizontal(map(count_column, DELIVERED))
    later = (delivered.sum() - delivered.cum_sum()).over("scope_key")
    of_scopes = of_scopes.with_columns(delivered_later=later > 0)
    is_troubled = are_in(of_scopes, troubled)
    began_at = pl.col("first_captured_at")
    return of_scopes.filter(is_troubled | is_troubled.shift(-1) | (began_at == began_at.max().over("scope_key")))


def _in_order(event: Event) -> tuple[str, int]:
    """Returns a key that sorts events by scope and sequence; those of none come first."""
    return event.scope_key or "", -1 if event.tx_sequence_id is None else event.tx_sequence_id


def outcome_counts(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Returns rows of OutcomeCount per sequence; there may be ten million messages of one outcome in one sequence."""
    is_waiting = pl.col("outcome") == Outcome.UNACKNOWLEDGED.value
    ended_at = pl.coalesce(pl.when(~is_waiting).then("accepted_at"), "last_seen_at")
    timed = outcomes.with_columns(ended_at=ended_at, first_at=pl.coalesce("first_seen_at", ended_at))
    counts = timed.group_by(_OUTCOME).agg(
        pl.sum("numbers"),
        count_if("stuck"),
        pl.min("tx_sequence_number").alias("first_number"),
        (pl.col("tx_sequence_number") + pl.col("numbers") - 1).max().alias("last_number"),
        pl.min("first_seen_at").alias("began_at"),
        pl.max("ended_at"),
        pl.col("destination_queue").drop_nulls().unique().sort().alias("queues"),
        pl.col("final_ack_class").drop_nulls().unique().sort().alias("classes"),
        count_if(pl.col("next_resend_at").is_not_null()).alias("resent"),
        undecided().round().cast(pl.Int64).alias("undecided"),
    )
    witnesses = _earliest(timed, "first_at", pl.col("witness").list.sort(nulls_last=True), pl.col("witness"))
    places = _earliest(timed, "first_seen_at", *map(pl.col, ("tx_sequence_number", *_QUEUE_OF_SESSION)))
    return (
        counts.join(witnesses.select(*_OUTCOME, "first_at", "witness"), on=_OUTCOME)
        .join(places.select(*_OUTCOME, *_QUEUE_OF_SESSION), on=_OUTCOME)
        .select(*SEQUENCE, *OutcomeCount._fields)
    )


def _earliest(rows: pl.DataFrame, at: str, *then_by: pl.Expr) -> pl.DataFrame:
    """Returns the first row of each sequence and outcome by the time `at`, of which none is the lowest."""
    time = pl.col(at).dt.timestamp("us").fill_null(_BEFORE_ALL)
    return (
        rows.select(*_OUTCOME, at, *_QUEUE_OF_SESSION, "tx_sequence_number", "witness")
        .filter(time == time.min().over(_OUTCOME))
        .sort(then_by)
        .unique(_OUTCOME, keep="first")
    )


@derives(
    ("source_queue_manager",),
    columns={"tallies": ("source_queue_manager", "stream_id", "first_captured_at", "last_captured_at")},
)
def addresses_seen(tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns when any message was seen from each address of each `source_queue_manager`, first and last.

    Streams of older captures without an address have none.
    """
    times = (pl.min("first_seen_at"), pl.max("last_seen_at"))
    streams = tallies.group_by("source_queue_manager", "stream_id").agg(
        pl.min("first_captured_at").alias("first_seen_at"), pl.max("last_captured_at").alias("last_seen_at")
    )
    return streams.with_columns(address_of_stream().alias("address")).drop_nulls("address").group_by(_SENDER).agg(times)


@derives(SEQUENCE, columns={"tallies": (*SEQUENCE, "stream_id")})
def addresses_reached(tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns the addresses that the messages of each sequence were sent to, `receivers`, sorted."""
    streams = tallies.select(*SEQUENCE, receivers=address_reached()).drop_nulls("receivers")
    return streams.group_by(SEQUENCE).agg(pl.col("receivers").unique().sort())


@derives(_OF_SENDER, columns={"tallies": (*_OF_SENDER, "session_id", "stream_id")})
def shared_sequences(tallies: pl.DataFrame) -> pl.DataFrame:
    """Returns the sequences, by `source_queue_manager` and `tx_sequence_id`, that several receivers got at one address.

    Their GUIDs tell receivers apart.
    """
    parts = with_receiver(tallies).select(*_OF_SENDER, "receiver", address=address_reached())
    by_guid = parts.filter(pl.col("receiver") != pl.col("address"))
    shared = by_guid.group_by(*_OF_SENDER, "address").agg(pl.col("receiver").n_unique() > 1)
    return shared.filter("receiver").select(_OF_SENDER).unique()


@derives(
    SEQUENCE,
    columns={"verdicts": (*_OF_MESSAGE, "stream_id", "accepted"), "tallies": (*_FLOW, "stream_id", "messages")},
)
def messages_sent(verdicts: pl.DataFrame, tallies: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Returns how many messages of some sequences came from each address.

    A row per sequence, `source_queue_manager` and `address`: the count of its `messages`, and of those among them that
    were `accepted` without doubt, or `lost`: none is both. A message that came from two addresses counts for both.
    `verdicts` are all in unusual slots; what the `tallies` count beside them are plain arrivals, each of a message of
    its own that was accepted.
    """
    unusual = _with_address(verdicts)
    flows = unusual.select(_FLOW).unique().with_row_index("flow")
    denied = (
        outcomes.filter(has_outcome(NOT_ACCEPTED))
        .join(flows, on=_FLOW)
        .select(*_message(), "lost", is_denied=True)
        .unique(("flow", "number", "message_no"))
    )
    sent = (
        unusual.join(flows, on=_FLOW)
        .select(*_message(), "address", "accepted")
        .group_by("flow", "number", "message_no", "address")
        .agg(pl.max("accepted"))
        .join(denied, on=["flow", "number", "message_no"], how="left")
        .with_columns(pl.col("accepted") & pl.col("is_denied").is_null())
        .group_by("flow", "address")
        .agg(count().alias("messages"), count_if("accepted"), count_if("lost"))
        .join(flows, on="flow")
    )
    counted = (_with_address(tallies).select(*_SENT, "messages"), unusual.select(*_SENT, messages=pl.lit(-1, pl.Int64)))
    plain = pl.concat(counted).with_columns(accepted="messages", lost=pl.lit(0, pl.Int64))
    columns = (*_SENT, "messages", "accepted", "lost")
    return pl.concat([sent.select(columns), plain.select(columns)]).group_by(_SENT).sum()


def _with_address(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the address that each row's stream comes from, and leaves out rows without one."""
    streams = rows.select(pl.col("stream_id").unique()).with_columns(address_of_stream().alias("address"))
    return rows.join(streams.drop_nulls("address"), on="stream_id")


def _message() -> list[pl.Expr]:
    """Returns numbers that tell messages apart, at less cost than texts; the `flow` is that of a _FLOW."""
    number, message_no = pl.col("tx_sequence_number"), number_of("message_id", "content_hash")
    return [pl.col("flow"), number.alias("number"), message_no.alias("message_no")]
