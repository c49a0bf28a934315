"""What the benchmark compares with, a day's work with tshark and Spark: it has to be right on a clean capture."""

import shutil
from collections import Counter
from pathlib import Path

import day_peer
import pytest
from bench_nights import _SAME_VERDICTS
from pyspark.sql import SparkSession
from warehouses import config, rows

from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.steps import nightly

pytestmark = pytest.mark.slow


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")
def test_counts_of_a_clean_capture(spark: SparkSession, tmp_path: Path) -> None:
    simulate(str(tmp_path), 3, 3_000, disorder=0.0, bodies=(100, 4_000), file_bytes=1 << 40)
    (capture,) = tmp_path.glob(f"{CAPTURE_PREFIX}_*.pcap")
    nightly.run(spark, config(tmp_path / "warehouse", capture))
    folder = tmp_path / "peer"
    folder.mkdir()
    counts = day_peer.run(spark, day_peer.extract("tshark", capture, folder), folder)

    assert message_rows(folder, "messages", "frame") == message_rows(tmp_path / "warehouse", "messages", "last_frame")
    assert counts["messages"] == sum(counts["verdicts"].values()) + sum(
        not row["transactional"] for row in rows(folder, "messages")
    )
    theirs = {of_message(row, "frame"): row["verdict"] for row in rows(folder, "verdicts")}
    same = {one: name for name, all_of in _SAME_VERDICTS.items() for one in all_of}
    # Messages on their way to a router are not in our verdicts.
    pairs = Counter(
        (same[row["verdict"]], theirs[of_message(row, "last_frame")])
        for row in rows(tmp_path / "warehouse", "verdicts")
    )
    ours = Counter(verdict for pair, count in pairs.items() for verdict in [pair[0]] * count)
    assert set(ours) == {"in_order", "duplicate", "unknown"}
    # An acknowledgment may say what came before the capture's first message of a sequence.
    differ = {pair for pair in pairs if pair[0] != pair[1]}
    assert differ <= {("in_order", "unknown")}
    assert pairs["in_order", "unknown"] <= 3
    assert pairs["duplicate", "duplicate"] > 10


def of_message(row: dict[str, object], frame: str) -> tuple[object, ...]:
    """The frame and the identifier of a message."""
    named = row.get("message_id") or f"{row['source_queue_manager']}\\{row['message_id_ordinal']}"
    return row[frame], named


def message_rows(folder: Path, table: str, frame: str) -> Counter[tuple[object, ...]]:
    """The messages of a table of messages, by the columns that both have."""
    columns = ("destination_queue", "label", "body_size", "transactional", "tx_sequence_id")
    return Counter((*of_message(row, frame), *(row[name] for name in columns)) for row in rows(folder, table))


def test_a_frame_with_several_packets(spark: SparkSession, tmp_path: Path) -> None:
    """Fields that not every packet has belong to those that have them."""
    frame = ["7", "1772438400.5", "10.0.0.1", "", "10.0.0.2", "", "3"]
    packets = [
        ["session_ack", "user_message", "order_ack", "user_message", "user_message"],
        ["a", "r", "a", "a"],  # no sender of a session_ack
        ["1", "9", "2", "3"],
        ["DIRECT=OS:h\\q", "x", "DIRECT=OS:h\\q", "DIRECT=OS:h\\r"],
        ["1", "0", "0", "1"],
        ['a "quoted" label', "QM Ordering Ack", "third"],
        ["17", "16", "0", "6"],
        ["10", "0", "20", "30"],
        ["77", "77"],
        ["5", "7"],
        ["4", "6"],
    ]
    table = tmp_path / "fields.tsv"
    table.write_text("\t".join([*frame, *("\x1f".join(values) for values in packets)]) + "\n")
    found = day_peer.messages(spark, table).orderBy("place").collect()
    columns = ("place", "message_id_ordinal", "destination_queue", "label", "body_size", "transactional", "number")
    assert [tuple(row[name] for name in columns) for row in found] == [
        (1, 1, "DIRECT=OS:h\\q", 'a "quoted" label', 10, True, 5),
        (3, 2, "DIRECT=OS:h\\q", None, 20, False, None),
        (4, 3, "DIRECT=OS:h\\r", "third", 30, True, 7),
    ]


def test_verdicts_by_the_highest_number_before(spark: SparkSession) -> None:
    arrivals = [(1, 0, "in_order"), (2, 1, "in_order"), (1, 0, "duplicate"), (2, 1, "duplicate"), (3, 2, "in_order")]
    arrivals += [(6, 5, "out_of_order"), (8, 6, "gap")]
    known = "src string, dst string, source_queue_manager string, tx_sequence_id long, frame long, place int"
    of_sequence = [("s", "d", "a", 7, at, 0, True, *numbers) for at, (*numbers, _) in enumerate(arrivals)]
    begun = ("s", "d", "a", 8, 99, 0, True, 4, 3)
    schema = f"{known}, transactional boolean, number long, previous long"
    judged = day_peer.verdicts(spark.createDataFrame([*of_sequence, begun], schema)).orderBy("frame").collect()
    assert [row["verdict"] for row in judged] == [*(verdict for *_, verdict in arrivals), "unknown"]
