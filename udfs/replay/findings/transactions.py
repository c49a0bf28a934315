"""The kinds of findings that transactions show."""

from datetime import datetime
from typing import NamedTuple

from schemas.replay import FindingKind, Severity
from udfs.replay.findings.finding import Finding
from udfs.replay.words import all_counted, counted, one_or_many, tx_sequence


class BrokenTransactions(NamedTuple):
    """Holds the transactions of a sequence that one kind of finding concerns; the others are of the first."""

    kind: str
    scope_key: str
    tx_sequence_id: int
    has_lost: bool
    """Each of them has messages that are lost, or none has."""
    transactions: int
    first_captured_at: datetime | None
    session_id: str
    destination_queue: str | None
    witness: list[str]
    tx_transaction_id: int
    messages: int
    lost: int
    pending: int


def broken_transactions(fact: BrokenTransactions) -> Finding:
    """Says that transactions are torn, interleaved, or delivered in part."""
    kind, it, own = FindingKind(fact.kind), ("it", "them"), ("its own", "their own")
    head = (
        f"{counted(fact.transactions, 'transaction that begins', 'transactions that begin')} in sequence "
        f"{tx_sequence(fact.tx_sequence_id)} {one_or_many(fact.transactions, 'is', 'are')}"
    )
    first = f"The first has the ID {fact.tx_transaction_id} and {counted(fact.messages, 'message')}"
    if kind is FindingKind.TORN_TRANSACTION:
        sentence = (
            f"{head} torn: the number next to {one_or_many(fact.transactions, *it)} was seen, and no message is marked "
            f"as the first or as the last. {first}."
        )
    elif kind is FindingKind.INTERLEAVED_TRANSACTION:
        sentence = (
            f"{head} interleaved: messages of another transaction have numbers between "
            f"{one_or_many(fact.transactions, *own)}. {first}."
        )
    else:
        parts = all_counted([(fact.lost, "is lost", "are lost"), (fact.pending, "is pending", "are pending")])
        sentence = f"{head} delivered only in part. {first}, of which {' and '.join(parts)}."
    is_warning = kind is FindingKind.TRANSACTION_PARTLY_DELIVERED and not fact.has_lost
    return Finding(
        kind,
        Severity.WARNING if is_warning else Severity.ERROR,
        fact.first_captured_at,
        fact.transactions,
        sentence,
        [*fact.witness],
        session_id=fact.session_id,
        scope_key=fact.scope_key,
        destination_queue=fact.destination_queue,
        tx_sequence_id=fact.tx_sequence_id,
    )
