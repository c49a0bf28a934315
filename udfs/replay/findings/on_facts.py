"""Says the findings on what no single arrival shows: a pass over facts, of which each is a finding."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from schemas.replay import FINDINGS
from udfs.replay.findings import captures, receivers, senders, transactions
from udfs.replay.findings.finding import Finding
from udfs.replay.rows import Batches, read_structs, write_rows

TELL: Mapping[type[Any], Callable[[Any], Finding]] = {
    senders.ExpiredOnArrival: senders.expired_on_arrival,
    senders.OrdinalRegressed: senders.ordinal_regressed,
    senders.TwoAddresses: senders.two_addresses,
    receivers.RepeatedOrderAck: receivers.repeated_order_ack,
    receivers.Returned: receivers.not_received_by_application,
    receivers.SeveralReceivers: receivers.several_receivers,
    receivers.AcknowledgedElsewhere: receivers.acknowledged_elsewhere,
    receivers.WindowStalled: receivers.window_stalled,
    captures.CapturedTwice: captures.captured_twice,
    captures.ClockStepped: captures.clock_stepped,
    captures.CannotConnect: captures.cannot_connect,
    transactions.BrokenTransactions: transactions.broken_transactions,
}
"""The kinds of facts, and what says each. A row has one fact, in a column with the name of its kind."""


def tell_facts(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns facts into rows of FINDINGS."""
    return write_rows((finding.as_row() for finding in _tell(batches)), FINDINGS.arrow)


def _tell(batches: Batches) -> Iterator[Finding]:
    for batch in batches:
        for kind, tell in TELL.items():
            if kind.__name__ in batch.schema.names:
                yield from map(tell, read_structs(batch, kind.__name__, kind))
