"""OrderAcks and FinalAcks with the receiver that sent them and the original senders that they are for."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from frames_of import frame_of

from schemas.messages import ACKS, MESSAGES
from schemas.replay import ENDS
from udfs.derive.replay.acks import (
    _MOST_SENDERS,
    acknowledged,
    crowded,
    message_number,
    pair_acks,
    select_order_acks,
    sequences_used,
)
from udfs.derive.replay.ends import NULL_GUID
from udfs.derive.replay.scopes import FLOW_KEY, TRANSACTIONAL

S = 1 << 63
"""A TxSequenceID that is 0 when it is `signed`."""
BACK = {"stream_id": "back", "sender": "b", "receiver": "a"}
"""The stream on which b acknowledges what came from a."""
_SENT: dict[str, Any] = {"session_id": pl.String, "source_queue_manager": pl.String, "sequence": pl.Int64}


def ack(**columns: Any) -> dict[str, Any]:
    """Returns an OrderAck from b, in the direct form."""
    row = {"stream_id": "back", "stream_offset": 7, "captured_ns": 5, "ack_type": "order_ack"}
    row |= {"tx_sequence_id": S, "tx_sequence_number": 3, "message_class": 0}
    return row | {"source_queue_manager": "b", "queue_manager_address": NULL_GUID} | columns


def final(**columns: Any) -> dict[str, Any]:
    """Returns a FinalAck from b for a message of a."""
    return ack(ack_type="final_ack", source_guid="a", message_class=2, acknowledged_message_id="a\\1") | columns


def sent(*senders: str, sequence: int = 0) -> pl.DataFrame:
    """Returns flows on the session from a to b."""
    rows = [{"session_id": "a->b", "source_queue_manager": name, "sequence": sequence} for name in senders]
    return pl.DataFrame(rows, schema=_SENT)


def paired(*acks: dict[str, Any], flows: pl.DataFrame | None = None, used: pl.DataFrame | None = None) -> pl.DataFrame:
    """Returns the acknowledgments with their pairs."""
    return pair_acks(frame_of(ACKS, *acks), frame_of(ENDS, BACK), sent("a") if flows is None else flows, used)


def pairs(*acks: dict[str, Any], **given: pl.DataFrame) -> list[tuple[str | None, ...]]:
    """Returns receivers and original senders."""
    return sorted(paired(*acks, **given).select("receiver", "source_queue_manager").rows(), key=str)


def test_an_order_ack_that_names_no_addressee_is_for_each_sender_of_the_session() -> None:
    assert pairs(ack(), flows=sent("a", "z", "a")) == [("b", "a"), ("b", "z")]
    assert pairs(ack(), flows=sent()) == []
    assert pairs(ack(queue_manager_address=None)) == [("b", "a")]


def test_an_addressee_is_the_sender() -> None:
    assert pairs(ack(queue_manager_address="c")) == [("b", "c")]
    assert pairs(final(source_guid="c"), final(source_guid=None)) == [("b", "a"), ("b", "c")]


def test_each_name_of_the_receiver_makes_a_pair() -> None:
    assert pairs(ack(source_queue_manager="guid")) == [("b", "a"), ("guid", "a")]
    assert pairs(ack(source_queue_manager=None)) == [("b", "a"), (None, "a")]


def test_what_is_acknowledged() -> None:
    number = pl.DataFrame({"id": ["a\\1"]}).select(message_number("id")).item()
    acks = ack(), final(stream_offset=9), final(stream_offset=10, acknowledged_message_id=None)
    assert paired(*acks).sort("ack_type", "key", descending=[False, True]).rows() == [
        ("final_ack", "b", "a", 0, 3, 5, "back@9", 2, number),
        ("final_ack", "b", "a", 0, 3, 5, "back@10", 2, None),
        ("order_ack", "b", "a", 0, 3, 5, "back@7", None, None),
    ]


def test_acks_without_a_time_or_on_other_streams_do_not_count() -> None:
    assert pairs(ack(captured_ns=None), ack(stream_id="copy")) == []


def test_on_a_crowded_session_an_order_ack_is_for_those_who_used_its_sequence() -> None:
    many = [f"q{i}" for i in range(_MOST_SENDERS + 1)]
    flows = sent(*many)
    assert crowded(flows).height == len(many)
    assert crowded(sent(*many[1:], *many[1:])).is_empty()
    assert len(pairs(ack(), flows=sent(*many[1:]))) == _MOST_SENDERS
    assert pairs(ack(), flows=flows) == []
    used = pl.concat([sent("q0", "q1", "q1"), sent("q2", sequence=1), sent(*many, sequence=2)])
    assert pairs(ack(), flows=flows, used=used) == [("b", "q0"), ("b", "q1")]
    assert pairs(ack(tx_sequence_id=S + 2), flows=flows, used=used) == []
    assert pairs(ack(tx_sequence_id=S + 3), ack(tx_sequence_id=None), flows=flows, used=used) == []
    assert pairs(ack(queue_manager_address="q9"), flows=flows, used=used) == [("b", "q9")]


def test_sequences_that_senders_used() -> None:
    message = {"stream_id": "x", "source_queue_manager": "a", "destination_queue": "q", "tx_sequence_id": S}
    rows = [message, message, message | {"tx_sequence_id": S - 1}, message | {"stream_id": "y"}]
    flows = pl.DataFrame([{**message, "queue_manager_address": None, "session_id": "a->b"}]).select(
        *(pl.col(name).cast(pl.String) for name in (*FLOW_KEY, "session_id"))
    )
    found = sequences_used(frame_of(MESSAGES, *rows).select(TRANSACTIONAL), flows)
    assert sorted(found.rows()) == [("a->b", "a", -1), ("a->b", "a", 0)]


def test_only_pairs_that_have_messages_are_judged() -> None:
    streams = pl.DataFrame(
        {
            "receiver": ["b", "b", "b", None],
            "source_queue_manager": ["a", "a", "z", None],
            "pair_no": [1, 1, 2, 3],
            "has_messages": [True, True, False, False],
        }
    )
    acks = paired(ack(), ack(queue_manager_address="z"), final())
    assert select_order_acks(acks).height == 2
    found = acknowledged(acks, streams)
    assert found.columns == ["pair_no", "sequence", "number", "ack_ns", "message_class", "message_no"]
    assert sorted(found["message_class"].to_list(), key=str) == [2, None]
    assert found["pair_no"].to_list() == [1, 1]


@pytest.mark.parametrize("used", [None, sent()])
def test_no_acks_have_no_pairs(used: pl.DataFrame | None) -> None:
    empty, one = paired(used=used), paired(ack(), used=used)
    assert empty.is_empty()
    assert empty.schema == one.schema


def text(names: Sequence[str | None], name: str) -> pl.Series:
    """Returns the numbers of texts in a column of some name."""
    return pl.DataFrame({name: names}, schema={name: pl.String}).select(message_number(name).alias("no")).to_series()


def test_a_message_id_has_one_number_in_all_columns() -> None:
    assert text(["a", None, "b"], "message_id").to_list()[::2] == text(["a", "b"], "acknowledged_message_id").to_list()
    assert text(["a", None], "message_id").to_list()[1] is None
