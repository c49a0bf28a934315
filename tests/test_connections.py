"""From which state a connection goes on when bytes come that belong before the latest."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wiretap
from pyspark.sql import SparkSession
from warehouses import all_rows, config
from wiretap import ACK, PSH, Sent, goodbye, handshake, msmq, pcap

from jobs.app.errors import UsageError
from jobs.ingestion import connections
from jobs.ingestion.captures import Place
from jobs.steps import ingest
from jobs.warehouse.store import Warehouse
from schemas.ingest import INTERNAL_CONNECTIONS, PACKETS, QUARANTINE, STREAM_GAPS, STREAMS
from schemas.staging import HISTORY

ISN, SIZE, COUNT = 1000, 1000, 30
FAR = 3 << 20
TABLES = (STREAMS, STREAM_GAPS, PACKETS, QUARANTINE)


def state(*sides: dict[str, Any]) -> str:
    orderly = {"isn": 0, "acked": FAR, "fixed": 1, "done": FAR, "gaps": []}
    return json.dumps({"connections": [{"instance": 0, "sides": [orderly, orderly | side]} for side in sides]})


@pytest.mark.parametrize(
    ("side", "is_complete"),
    [
        ({}, True),
        ({"gaps": [[50, 10], [1 << 20, 10]]}, True),
        ({"gaps": [[50, 10], [FAR - 100_000, 10]]}, False),  # its frame may be captured late
        ({"gaps": [[2000, 10]], "acked": 1500}, False),  # it will be sent again
        ({"gaps": [[2000, 10]], "acked": None}, False),
        ({"isn": None}, True),
        ({"isn": None, "done": 100_000}, False),  # an earlier byte may be captured late
        ({"isn": None, "done": 0, "fixed": None, "acked": None}, True),
    ],
)
def test_a_state_is_complete_when_nothing_before_it_can_still_come(side: dict[str, Any], *, is_complete: bool) -> None:
    assert connections.is_complete(state({}, side)) is is_complete


@pytest.mark.parametrize(
    ("states", "rewind", "latest_complete"),
    [
        ([{"gaps": [[FAR - 1, 1]]}, {}, {}], False, "capture 3"),
        ([{}, {}, {"gaps": [[FAR - 1, 1]]}], False, "capture 2"),
        ([{}, {"gaps": [[FAR - 1, 1]]}, {}], True, "capture 1"),
        ([{}], True, None),
        ([], False, None),
    ],
)
def test_the_latest_complete_state_counts(
    states: list[dict[str, Any]], *, rewind: bool, latest_complete: str | None
) -> None:
    rows = [history(first_ns=at, capture_id=f"capture {at}", state=state(side)) for at, side in enumerate(states, 1)]
    rows += [history(capture=7), history(rewind=rewind), history(first_ns=10, state=state({}), capture_id="later")]
    connection = connections.collect_history(b"a", rows, {7: Place(9, 9, "now")})
    found = connections.last_complete_state(connection, rewind=rewind)
    assert (found and found["capture_id"]) == latest_complete


def history(**columns: Any) -> dict[str, Any]:
    """Returns a row of HISTORY."""
    return dict.fromkeys(HISTORY.names) | {"packed": b"a"} | columns


def test_a_late_capture_undoes_nothing_that_its_neighbour_filled(spark: SparkSession, tmp_path: Path) -> None:
    """The second capture has a segment that was lost in the first; the third comes when the fourth is there."""
    text = b"".join(msmq(600, bytes([number]) * 584) for number in range(COUNT * SIZE // 600))
    sent = [Sent(False, ISN + 1 + at, 5001, ACK | PSH, text[at : at + SIZE]) for at in range(0, COUNT * SIZE, SIZE)]
    again = Sent(True, 5001, ISN + 1 + 10 * SIZE, ACK)

    def capture(number: int, segments: Iterable[Sent]) -> Path:
        path = tmp_path / f"{number}.pcap"
        start = (wiretap.NEW_YEAR + number) * wiretap.BILLION
        path.write_bytes(pcap(wiretap.records([one.frame() for one in segments], start_ns=start)))
        return path

    first = capture(0, [*handshake(ISN, 5000), *sent[:10], *sent[11:15], again])
    second = capture(1, [sent[10], *sent[15:20]])
    third = capture(2, sent[20:25])
    fourth = capture(3, [*sent[25:], *goodbye(ISN + 1 + COUNT * SIZE, 5001)])
    for night in ([first], [second, fourth], [third]):
        ingest.run(spark, config(tmp_path / "nights", *night))
    ingest.run(spark, config(tmp_path / "once", first, second, third, fourth))
    found = all_rows(tmp_path / "nights", TABLES)
    assert found == all_rows(tmp_path / "once", TABLES)
    assert len(found["packets"]) == COUNT * SIZE // 600
    assert not found["stream_gaps"]


def test_tables_of_before_the_first_release_are_refused(tmp_path: Path) -> None:
    """They keep the states of connections elsewhere, so that a connection would begin again."""
    spark: Any = None
    tables = Warehouse(spark, str(tmp_path))
    tables.create(replace(INTERNAL_CONNECTIONS, name="connection_states"))
    with pytest.raises(UsageError, match=r"before 0\.1\.0.*Ingest the captures into a new warehouse"):
        ingest.step(tables, config(tmp_path), [])
