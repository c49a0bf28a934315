"""Says the findings on what no single arrival shows: a pass over facts, of which each is a finding."""

from collections.abc import Iterator

import pyarrow as pa

from schemas.explained import FOUND
from udfs.replay.findings import captures, receivers, senders, transactions
from udfs.replay.findings.finding import finding_row
from udfs.replay.rows import Batches, read_structs, write_rows

KINDS = (
    *(senders.ExpiredOnArrival, senders.OrdinalRegressed, senders.TwoAddresses),
    *(receivers.RepeatedOrderAck, receivers.Returned, receivers.WindowStalled),
    *(receivers.SeveralReceivers, receivers.AcknowledgedElsewhere),
    *(captures.CapturedTwice, captures.ClockStepped, captures.CannotConnect),
    *(transactions.TornTransactions, transactions.InterleavedTransactions, transactions.PartlyDelivered),
)
"""The kinds of facts. A row has one fact, in a column with the name of its kind."""


def tell_facts(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns facts into rows of FINDINGS."""
    return write_rows((row for batch in batches for row in _tell(batch)), FOUND)


def _tell(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    for kind in KINDS:
        if kind.__name__ in batch.schema.names:
            for fact in read_structs(batch, kind.__name__, kind):
                yield finding_row(fact.tell(), fact)
