"""The command that writes the report, and what its page says."""

import os
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pages import LISTED, ORDERS, Tables, limited_report, names_of, said
from pages import report as page_of
from pyspark.sql import SparkSession
from warehouses import config
from weeks import write_empty, write_nights

from jobs.cli.config import Config
from jobs.cli.errors import JobError, UsageError
from jobs.cli.names import Names
from jobs.cli.text_files import write_text
from jobs.commands import page, report
from jobs.engines.on_spark import OnSpark
from jobs.report_page import render
from jobs.report_page.arrange import shows, witnesses
from jobs.tables.places import open_warehouse
from udfs.report.rows import Row


@pytest.mark.slow
@pytest.mark.parametrize("of_one", [False, True])
def test_tasks_of_spark_make_the_same_page(spark: SparkSession, tmp_path: Path, *, of_one: bool) -> None:
    write_nights(tmp_path, 2)
    chosen: dict[str, Any] = {}
    if of_one:
        incidents = DeltaTable(str(tmp_path / "incidents")).to_pyarrow_table().to_pylist()
        harmed = next(row for row in incidents if row["lost_messages"])
        chosen = {"session": [harmed["session_id"]], "since": "all", "out": str(tmp_path / "one" / "session.html")}
    options = config(tmp_path, **chosen)
    report.run(spark, options)
    file = Path(options.out or tmp_path / "report.html")
    assert [path.name for path in file.parent.glob("*.html")] == [file.name]
    on_spark = OnSpark(open_warehouse(spark, options))
    text = render.render(page.values(on_spark, options, str(tmp_path), Names()))
    without_mark = [one.partition("<title>")[2] for one in (text, file.read_text())]
    assert without_mark[0] == without_mark[1] != ""


def test_an_empty_warehouse_has_a_report_that_is_made_again_only_for_other_rows_or_options(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_empty(tmp_path)
    file = tmp_path / "report.html"

    def made(**options: Any) -> int:
        report.run(spark, config(tmp_path, **options))
        assert "No transactional message was found, so there is nothing to judge." in file.read_text()
        return file.stat().st_ino

    first = made()
    assert made() == first
    other = made(since="all")
    assert other != first
    captures = str(tmp_path / "captures")
    write_deltalake(captures, DeltaTable(captures).to_pyarrow_table(), mode="overwrite")
    assert made(since="all") != other


def test_without_gold_tables_there_is_none(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run msmq-replay replay first"):
        report.run(spark, config(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="--out FILE"):
        report.run(spark, Config.load({"catalog_schema": "main.msmq"}, None))


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(JobError, match=r"report\.html cannot be written"):
        write_text(str(tmp_path / "report.html"), "text")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(JobError, match="cannot be written"):
        write_text("nonsense://place/report.html", "text")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (render.share(0, 7), "0 %"),
        (render.share(7, 7), "100 %"),
        (render.share(9_999_999, 10_000_000), "99.99 %"),
        (render.share(0, 0), "100 %"),
        (render.moment(1_772_474_400_000_001_999), "2026-03-02 18:00:00.000001"),
        (render.moment(None), "no time"),
        (render.in_wireshark("/a b/$(x).pcap", 7), "wireshark -g 7 -r '/a b/$(x).pcap'"),
        (render.in_wireshark(None, 7), ""),
        (render.sent_from("[fd00::3]:5>10.0.0.1:1801#0@7"), "fd00::3"),
    ],
)
def test_values_are_shown_as_they_are_exact(shown: str, text: str) -> None:
    assert shown == text


@pytest.mark.parametrize(
    "name",
    [
        "{{7*7}}\u2028\u202e\x1b[2J\x85\U000e0041",
        "a\nreboot\n",
        "\x1b[201~\rreboot\r",
        "\\'\u202efdp.exe",
        os.fsdecode(b"\xff\x01'"),
    ],
)
def test_a_copied_command_can_be_seen_and_opens_the_file_alone(name: str) -> None:
    command = render.in_wireshark(f"/data/{name}", 7).removeprefix("wireshark -g 7 -r ")
    assert command.isprintable()
    done = subprocess.run(["/bin/bash", "-c", f"printf %s {command}"], check=True, capture_output=True)
    assert done.stdout == os.fsencode(f"/data/{name}")


ROW: Row = dict.fromkeys(
    (
        *("ack_type", "message_class", "acknowledged_message_id", "length", "packet_type", "verdict", "reason"),
        *("message_id", "ack_latency_ms", "incoming_tx_sequence_number", "tx_sequence_number", "captured_ns", "label"),
        *("previous_tx_sequence_number", "tx_sequence_id", "incoming_tx_sequence_id"),
    )
)


def arrival(verdict: str, number: int, previous: int | None = None, state: int | None = None, **more: Any) -> Row:
    """An arrival of sequence 1, at a receiver in this state of sequence 1."""
    numbers = {"tx_sequence_number": number, "previous_tx_sequence_number": previous}
    sequences = dict.fromkeys(("tx_sequence_id", "incoming_tx_sequence_id"), 1)
    return ROW | {"verdict": verdict, "incoming_tx_sequence_number": state} | numbers | sequences | more


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            arrival("out_of_order", 7, 6, 5, reason="predecessor_missing"),
            "Refused: expected number 6, got 7, which needs 6.",
        ),
        (
            arrival("out_of_order", 3, 2, 5, reason="predecessor_missing", tx_sequence_id=2),
            "Refused: expected number 1 of the new sequence, got 3, which needs 2.",
        ),
        (
            arrival("out_of_order", 4, 3, 9, reason="late"),
            "Refused: got number 4, the receiver was already at 9.",
        ),
        (
            arrival("in_order", 4, 3, ack_latency_ms=31_500.0),
            "Accepted: number 4 after 3. It was acknowledged after 31.5 s.",
        ),
        (
            ROW | {"ack_type": "final_ack", "message_class": 0x8004, "acknowledged_message_id": "a\\7"},
            "FinalAck of class 0x8004 for message a\\7.",
        ),
        (ROW | {"packet_type": "session_ack"}, "Session ack."),
        (ROW | {"length": 5_000}, "5,000 bytes missing."),
        (
            ROW | {"ack_type": "order_ack", "tx_sequence_number": 4},
            "OrderAck: the receiver has everything up to number 4.",
        ),
    ],
)
def test_a_witness_says_what_it_shows(row: Row, said: str) -> None:
    assert shows(row) == said


def test_a_number_used_again_is_shown_with_both_message_ids() -> None:
    first = arrival("in_order", 4, 3, stream_id="s", stream_offset=10, message_id="a\\7")
    second = arrival("duplicate", 4, 3, 8, stream_id="s", stream_offset=20, message_id="a\\9", label="order 9")
    rows = {"witnesses": [first, second]}
    accepted, refused = (one["shows"] for one in witnesses(rows)(["s@10", "s@20"], displaced=False))
    assert accepted == "Accepted: number 4 after 3. Message a\\7 has this number."
    assert refused == (
        "Refused: the receiver had accepted another message with number 4, and was at 8. "
        "Message a\\9, order 9, has this number."
    )


# --- what the page says of a morning with a clone and a stuck branch ------------------------------------------------


@pytest.fixture(scope="module")
def limited(morning: Tables) -> str:
    return limited_report(morning)


def test_the_page_is_one_small_file_that_names_no_other(limited: str) -> None:
    assert len(limited) < 500_000
    assert "default-src 'none'" in unescape(limited)
    for reference in ('src="', "src='", 'href="h', "url(", "@import", "fetch(", "XMLHttpRequest", "WebSocket"):
        assert reference not in limited.replace("img src=x", "")


def test_the_headline_and_the_figures_beneath_it(morning: Tables) -> None:
    text = said(page_of(morning))
    since = "21 messages were lost</a></strong> since 2026-03-03 08:24:26 UTC"
    way = "from 10.20.0.123 and 10.20.0.3 to 10.0.0.1"
    assert (
        f'{since}, {way}, to {ORDERS}: <a href="#lost" data-outcome="displaced">'
        "21 displaced (another message has the number)</a>." in text
    )
    pending = '<a href="#pending" data-outcome="pending">124 pending (104 of them stuck)</a>'
    assert f'{pending}, <a href="#pending" data-outcome="awaited">1 awaited</a>' in text
    assert (
        "2026-03-03 07:31:00 to 08:56:44 UTC, 3 senders, 2 queues, 523 of 648 confirmed by the receiver. Also: " in text
    )
    assert "whether they were read is not reported" in text
    tiles = dict(re.findall(r"<dt>(?:<a[^>]*>)?([^<]+)(?:</a>)?</dt><dd>([^<]+)</dd>", text.partition("</dl>")[0]))
    expected = {
        "Lost": "21",
        "Pending or awaited": "125",
        "Never acknowledged": "0",
        "Unknown or contradicted": "0",
        "Delivered": "523",
    }
    assert tiles == expected | {"Expired unseen": "1"}


def test_a_listed_message_has_what_proves_it(morning: Tables) -> None:
    part = said(page_of(morning), "lost")
    assert len(re.findall(r"<small>2026-03-03 08:\d\d:\d\d, frame \d+ of ", part)) > LISTED
    assert re.search(
        r"Accepted: number \d+ after \d+\. Message [0-9a-f]{8}…\\\d+, \w+ order \d+, has this number\.", part
    )
    assert re.search(r"from [0-9a-f]{8} at 10\.20\.0\.\d+<", part)


def test_what_is_left_out_is_said_with_how_to_ask_for_it(limited: str) -> None:
    text = said(limited)
    assert re.search(r"Traffic before 2026-03-03 08:00:00 UTC is not shown\. To show all", text)
    assert "Listed are 5 of 125. The table <code>outcomes</code> has all." in said(limited, "pending")
    assert "Listed are 1 of 2, those that concern the most messages." in text
    assert "Listed are the worst 2 of 3." in text
    assert "Drawn are the worst 1 of 3 sessions." in text
    assert text.count('<details class="session"') == 1
    assert "--session 'ID'" in text


def test_a_kind_with_two_severities_has_a_part_for_each_and_a_hidden_kind_none(limited: str) -> None:
    for severity in ("error", "warning"):
        part = said(limited, f"{severity}-out_of_order")
        assert part.count('<details class="finding"') == 1
        assert f'<a href="#{severity}-out_of_order">' in limited
    assert "resend schedule" not in said(limited)


def test_rows_that_prove_a_finding_are_in_the_order_of_time_whichever_table_holds_them(limited: str) -> None:
    part = said(limited, "error-out_of_order")
    setter, refused, nowhere = part.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")[:3]
    assert "Accepted: number " in setter
    assert "Refused: expected number " in refused
    assert re.search(r", offset \d+<", refused)
    assert "wireshark -g " in part
    assert "not found" in nowhere


def test_incidents_come_worst_first_each_with_its_findings(morning: Tables) -> None:
    part = said(page_of(morning), "incidents")
    outcomes = re.findall(r'id="incident-[0-9a-f]{16}".*?<span class="severity \w+">([\w ]+)<', part)
    assert outcomes == ["lost", "stuck", "no loss", "no loss"]
    folded = part.partition('<details class="more" id="repaired">')[2]
    assert len(re.findall(r'id="incident-[0-9a-f]', folded)) == 2


def test_one_session_can_be_asked_for_with_names_beside_the_originals(morning: Tables) -> None:
    names = names_of(morning)
    (session,) = {row["session_id"] for row in morning["incidents"].to_dicts() if row["lost_messages"]}
    sender, _ = session.split("->")
    text = said(page_of(morning, names, session=[session]))
    assert "This report shows only 1 session." in text
    assert "judged in 1 session, from " in text
    assert text.count('<details class="session"') == 1
    assert f"<code>{sender}</code> (West)" in text
    assert text.count("West → Hub") > 3
