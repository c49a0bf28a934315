"""What negative acknowledgments say, by what their CorrelationID names."""

from datetime import UTC, datetime

import polars as pl
import pytest

from udfs.replay.findings.facts import returned
from udfs.replay.findings.receivers import returned_messages

AT = datetime(2026, 3, 2, tzinfo=UTC)
NAMED = r"33333333-0000-0000-0000-000000000000\7"
OTHER = r"33333333-0000-0000-0000-000000000000\8"


@pytest.mark.parametrize(
    ("correlation_ids", "messages"),
    [
        pytest.param([NAMED, NAMED], 1, id="one message, twice"),
        pytest.param([NAMED, OTHER], 2, id="two messages"),
        pytest.param([None, None], 1, id="no message is named"),
        pytest.param([NAMED, None], 2, id="one is named, and one is not"),
    ],
)
def test_an_acknowledgment_that_names_no_message_is_about_one(correlation_ids: list[str | None], messages: int) -> None:
    """A CorrelationID of zeros is null, and yet something did not reach its queue."""
    of_acks = {"message_class": 0x8002, "session_id": "a->b", "captured_at": AT, "answering": "b", "told": "a"}
    negative = pl.DataFrame(
        [
            of_acks | {"correlation_id": name, "captured_ns": number, "key": f"s@{number}"}
            for number, name in enumerate(correlation_ids)
        ],
        schema_overrides={"correlation_id": pl.String},
    )
    texts = dict.fromkeys(("message_id", "stream_id", "destination_queue"), pl.String)
    numbers = dict.fromkeys(("stream_offset", "captured_ns", "time_to_be_received", "time_to_reach_queue"), pl.Int64)
    captured = pl.DataFrame(schema={**texts, **numbers, "transactional": pl.Boolean})
    ends = pl.DataFrame({"stream_id": ["s"], "session_id": ["a->b"]})
    found = returned_messages(captured, negative, ends)
    assert found.select("messages", "transactional").rows() == [(messages, 0)]
    sentence = returned(**found.row(0, named=True)).sentence
    assert sentence.startswith(f"{messages} message{'s' * (messages > 1)} did not reach ")
    assert " from b to a say" in sentence
