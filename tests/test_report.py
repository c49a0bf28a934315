"""The report: what it says, what it leaves out, and what a browser makes of it."""

import csv
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import made_nights
import pytest
from browser import CHROMIUM, Browser
from deltalake import DeltaTable, write_deltalake
from gold_rows import with_keys
from jinja2 import Environment
from pyspark.sql import SparkSession

from jobs.app.build_zip import write_archive
from jobs.app.config import Config
from jobs.app.errors import JobError, UsageError
from jobs.app.logs import printable
from jobs.app.names import Names
from jobs.app.text_files import write_text
from jobs.engine.on_spark import OnSpark
from jobs.report_page import render
from jobs.report_page.arrange import Row, shows, steps, witnesses
from jobs.steps import page as values_of
from jobs.steps import report
from jobs.warehouse.store import Warehouse
from schemas.replay import FINDINGS, VERDICTS
from schemas.tables import TABLES

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"{{7*7}}\u2028\u202e\x1b[2J\x85\U000e0041\n"
SESSIONS = 50
LIMITS = {"listed_messages": 3, "listed_findings": 1, "listed_sessions": 10, "drawn_sessions": 3, "drawn_points": 20}


def config(warehouse: Path, **options: Any) -> Config:
    return Config.load({"warehouse": str(warehouse)} | options, None)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights whose every text is hostile; an OrderAck among the witnesses, and one that is nowhere.

    Some findings are in no incident.
    """
    warehouse = tmp_path_factory.mktemp("nights")
    made_nights.make(warehouse, SESSIONS, nights=2, text=HOSTILE)
    findings = DeltaTable(str(warehouse / FINDINGS.name)).to_pyarrow_table()
    rows = [with_keys(row) for row in findings.to_pylist()]
    last_night = (row for row in rows if row["kind"] == "stuck_sequence" and "#1@" in row["witness"][0])
    stuck = min(last_night, key=lambda row: row["found_at"])
    forth, _, back = stuck["witness"][0].split("@")[0].removesuffix("#1").partition(">")
    stuck["witness"] += [f"{back}>{forth}#1@1000", "10.9.9.9:1>10.9.9.8:2#0@77"]
    holed = next(row for row in rows if row["kind"] == "capture_gap" and "#1@" in row["witness"][0])
    holed["witness"].insert(1, holed["witness"][0].partition("@")[0] + "@15500")
    holed["incident_id"] = None
    refused = next(row for row in rows if row["kind"] == "out_of_order" and "#1@" in row["witness"][0])
    alone = refused | {"incident_id": None}
    rows += [alone | {"severity": severity} for severity in ("error", "warning", "warning")]
    rows.append(alone | {"kind": "resend_schedule", "severity": "info"})
    filled = made_nights.fill(FINDINGS, rows).cast(findings.schema)
    write_deltalake(str(warehouse / FINDINGS.name), filled, mode="overwrite")
    return warehouse


@pytest.fixture(scope="module")
def limited(spark: SparkSession, nights: Path) -> Path:
    """The report of the last night, with less room than it has findings and sessions."""
    report.run(spark, config(nights, **LIMITS))
    return nights / "report.html"


@pytest.fixture(scope="module")
def one_session(spark: SparkSession, nights: Path) -> Path:
    """The report of one stuck session of the first night."""
    found = DeltaTable(str(nights / FINDINGS.name)).to_pyarrow_table().to_pylist()
    first = min((row for row in found if row["kind"] == "stuck_sequence"), key=lambda row: row["found_at"])
    file, names = nights / "one" / "session.html", nights / "names.toml"
    sender, receiver = first["session_id"].split("->")
    names.write_text(f'[queue_managers]\n"{sender}" = "Branch <1>"\n"{receiver}" = "HQ"\n')
    report.run(spark, config(nights, out=str(file), session=[first["session_id"]], since="all", names_file=str(names)))
    return file


def text_of(file: Path) -> str:
    return re.sub(r"[ \n]+", " ", unescape(file.read_text()))


def without_mark(page: str) -> str:
    """The page without its first lines, which say what it was made from."""
    return page.partition("<title>")[2]


def test_tasks_of_spark_make_the_same_page(spark: SparkSession, nights: Path, limited: Path, one_session: Path) -> None:
    sender, receiver = session_of(one_session)
    alone = {"session": [f"{sender}->{receiver}"], "since": "all", "out": str(one_session)}
    alone |= {"names_file": str(nights / "names.toml")}
    for page, chosen in ((limited, LIMITS), (one_session, alone)):
        options = config(nights, **chosen)
        names = Names.read(options.names_file)
        collected = values_of.collected_rows(OnSpark(Warehouse.of(spark, options)), options)
        text = render.render(values_of.values(collected, options, str(nights), names), names=names)
        assert without_mark(text) == without_mark(page.read_text())


def test_the_page_is_one_small_file_that_names_no_other(limited: Path) -> None:
    page = limited.read_text()
    assert len(page) < 500_000
    assert "default-src 'none'" in unescape(page)
    for reference in ('src="', "src='", 'href="h', "url(", "@import", "fetch(", "XMLHttpRequest", "WebSocket"):
        assert reference not in page.replace("img src=x", "")


def test_the_figures_are_those_of_the_last_night(limited: Path, nights: Path) -> None:
    verdicts, outcomes = (
        [with_keys(row) for row in DeltaTable(str(nights / name)).to_pyarrow_table().to_pylist()]
        for name in ("verdicts", "outcomes")
    )
    last = [row for row in verdicts if row["captured_at"] >= datetime(2026, 3, 3, 18, tzinfo=UTC)]
    streams = {row["stream_id"] for row in last}
    pending = [row for row in outcomes if row["outcome"] == "pending" and row["witness"][0].split("@")[0] in streams]
    waiting = len(pending) + len({row["scope_key"] for row in pending})  # and one awaited of each scope
    accepted = sum(row["accepted"] is True for row in last)
    page = text_of(limited)
    (lost,) = [row for row in outcomes if row["lost"] and row["witness"][0].split("@")[0] in streams]
    since, queue = f"{lost['first_seen_at']:%Y-%m-%d %H:%M:%S} UTC", printable(lost["destination_queue"])
    said = f'1 message was lost</a></strong> since {since}, to {queue}: <a href="#lost">1 given up</a>.'
    assert said in page
    assert f'Also: <a href="#pending">{waiting} pending (0 of them stuck)</a>' in page
    assert '<a href="#expired_unseen">1 expired unseen</a>' in page
    tiles = dict(re.findall(r"<dt>(?:<a[^>]*>)?([^<]+)(?:</a>)?</dt><dd>([^<]+)</dd>", page.partition("</dl>")[0]))
    assert (tiles["Lost"], tiles["Unknown"], tiles["Expired unseen"]) == ("1", "1", "1")
    assert tiles["Pending"] == str(waiting)
    assert tiles["Delivered"] == render.number(accepted)
    assert f"Arrivals: {render.number(len(last))} judged in 50 sessions, from 1 capture." in page
    assert "and 5\u202f000 bytes missing from the captures</dd>" in page


def test_lost_messages_stand_right_under_the_figures_with_the_rows_that_prove_it(limited: Path, nights: Path) -> None:
    (lost,) = [
        row for row in map(with_keys, DeltaTable(str(nights / "outcomes")).to_pyarrow_table().to_pylist())
        if row["lost"] and "#1@" in row["witness"][0]
    ]  # fmt: skip
    part = text_of(limited).partition('<section id="lost"')[2].partition("</section>")[0]
    assert f'data-copy="{lost["message_id"]}"' in part
    assert printable(lost["label"]) in part
    number = lost["tx_sequence_number"]
    assert f"Refused: expected number {number - 1}, got {number}, which needs {number - 1}." in part
    assert f"Accepted: number {number + 1} after {number - 2}; the sender skipped the numbers between." in part
    assert len(re.findall(r", frame \d+ of ", part)) == 2


def test_a_list_of_messages_says_what_it_leaves_out(limited: Path) -> None:
    part = text_of(limited).partition('<section id="pending"')[2].partition("</section>")[0]
    assert re.search(r"Listed are 3 of \d+\. The table <code>outcomes</code> has all\.", part)


def test_a_list_of_messages_takes_each_outcome_in_turn_and_the_missing_one_first(limited: Path) -> None:
    part = text_of(limited).partition('<section id="pending"')[2].partition("</section>")[0]
    assert re.findall(r'<th scope="row">(\w+)', part) == ["awaited", "pending", "pending"]
    assert re.search(r"from [0-9a-f]{8} at 10\.\d+\.\d+\.\d+<", part)


def test_what_is_left_out_is_said_with_how_to_ask_for_it(limited: Path) -> None:
    page = text_of(limited)
    assert "Traffic before 2026-03-03 18:00:00 UTC is not shown, nor are 8 earlier findings" in page
    assert "Listed are 1 of 2, those that concern the most messages." in page
    assert "Listed are the worst 10 of 50." in page
    assert "Drawn are the worst 3 of 50 sessions." in page
    assert page.count('<details class="session"') == 3
    assert "--session 'ID'" in page


def test_witness_rows_are_shown_with_their_frames_whichever_table_holds_them(limited: Path, nights: Path) -> None:
    verdicts = DeltaTable(str(nights / VERDICTS.name)).to_pyarrow_table().to_pylist()
    page = text_of(limited)
    found = page.partition("> stuck sequence: ")[2].partition("</details>")[0]
    assert found.count("<tbody> <tr>") == 1
    ack, setter, refused, nowhere = found.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")[:4]
    row = next(row for row in verdicts if row["stream_id"] in refused and f"offset {row['stream_offset']}<" in refused)
    assert "Accepted: number " in setter
    assert "Refused: expected number " in refused
    assert f"frame {row['last_frame']} of " in refused
    assert f"wireshark -g {row['last_frame']} -r " in found
    assert "OrderAck: the receiver has everything up to number " in ack
    assert "not found" in nowhere
    times = re.findall(r'<td class="nowrap">([^<]+)</td>', found)
    assert times == sorted(times)
    assert '<th scope="row" class="proof">5,000 bytes missing.</th>' in page.partition('id="warning-capture_gap"')[2]


def test_a_kind_with_two_severities_has_a_part_for_each(limited: Path) -> None:
    page = text_of(limited)
    for severity in ("error", "warning"):
        (part,) = re.findall(f'<section id="{severity}-out_of_order".*?</section>', page)
        assert part.count('<details class="finding"') == 1
        assert f'<a href="#{severity}-out_of_order">' in page


def test_incidents_come_worst_first_each_with_its_findings(limited: Path, nights: Path) -> None:
    incidents = {
        row["incident_id"]: row for row in DeltaTable(str(nights / "incidents")).to_pyarrow_table().to_pylist()
    }
    part = text_of(limited).partition('<section id="incidents"')[2].partition("</section>")[0]
    shown = [incidents[name] for name in re.findall(r'id="incident-([0-9a-f]{16})"', part)]
    assert [row["outcome"] for row in shown] == ["lost", "pending", "unknown", "repaired", "repaired"]
    assert "Of 5 incidents: 1 lost, 1 pending, 1 unknown, 2 repaired." in part
    assert part.count("2 findings are part of it, of which 1 is listed; all are in the table") == 2
    folded = part.partition('<details class="more" id="repaired">')[2]
    assert len(re.findall(r'id="incident-[0-9a-f]', folded)) == 2
    assert part.count('data-new="yes"') == 5


def test_the_health_of_each_queue_names_what_changed(limited: Path, one_session: Path) -> None:
    """Each night, a sender has another receiver."""
    part = text_of(limited).partition('<section id="health"')[2].partition("</section>")[0]
    assert part.count('<span class="severity info">new</span>') == 10
    assert "the changed ones first" in part
    alone = text_of(one_session).partition('<section id="health"')[2].partition("</section>")[0]
    assert alone.count("<tr>") == 2  # one of them is the head
    assert "first; figures" not in alone


def test_resend_schedules_are_not_shown(limited: Path) -> None:
    assert "resend schedule" not in text_of(limited)


def test_one_session_can_be_asked_for_by_name_in_any_period(one_session: Path) -> None:
    page = text_of(one_session)
    assert "This report shows only 1 session." in page
    assert "judged in 1 session, from 2 captures" in page
    assert "and 0 bytes missing from the captures" in page
    assert page.count('<details class="session"') == 1
    assert [path.name for path in one_session.parent.iterdir()] == ["session.html"]


def test_names_stand_beside_the_originals(one_session: Path, limited: Path) -> None:
    page, (sender, receiver) = one_session.read_text(), session_of(one_session)
    assert f"<code>{sender}</code> (Branch &lt;1&gt;)" in page
    assert f"<code>{receiver}</code> (HQ)" in page
    assert page.count("Branch &lt;1&gt; → HQ") > 3
    assert "Branch" not in limited.read_text()


def session_of(page: Path) -> list[str]:
    """Sender and receiver of the only session of a report."""
    (session,) = set(re.findall(r'data-copy="([^"]+->[^"]+)"', unescape(page.read_text())))
    return str(session).split("->")


def test_an_empty_warehouse_has_a_report_that_is_made_again_only_for_other_rows_or_options(
    spark: SparkSession, tmp_path: Path
) -> None:
    for table in TABLES:
        made_nights.write(tmp_path, table, [])
    file = tmp_path / "report.html"
    made = []
    chosen: tuple[dict[str, Any], ...] = ({}, {}, {"listed_findings": 1})
    for options in chosen:
        report.run(spark, config(tmp_path, **options))
        made.append(file.stat().st_ino)
        assert "No transactional message was found, so there is nothing to judge." in text_of(file)
    captures = str(tmp_path / "captures")
    write_deltalake(captures, DeltaTable(captures).to_pyarrow_table(), mode="overwrite")
    report.run(spark, config(tmp_path, listed_findings=1))
    made.append(file.stat().st_ino)
    assert [one == other for one, other in itertools.pairwise(made)] == [True, False, False]


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


def test_the_page_is_in_the_zip(tmp_path: Path) -> None:
    archive = tmp_path / "msmq_replay.zip"
    write_archive(archive)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from jobs.report_page import render; print(*map(len, render.files()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, archive], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(len(text)) for text in render.files()]


@pytest.mark.parametrize(
    ("part", "whole", "said"), [(0, 7, "0 %"), (7, 7, "100 %"), (9_999_999, 10_000_000, "99.99 %"), (0, 0, "100 %")]
)
def test_a_share_is_whole_only_where_it_is_exact(part: int, whole: int, said: str) -> None:
    assert render.share(part, whole) == said


def test_the_command_for_wireshark_survives_a_shell() -> None:
    assert render.in_wireshark("/a b/$(x).pcap", 7) == "wireshark -g 7 -r '/a b/$(x).pcap'"
    assert render.in_wireshark(None, 7) == ""


@pytest.mark.parametrize(
    "name", [HOSTILE, "a\nreboot\n", "\x1b[201~\rreboot\r", "\\'\u202efdp.exe", os.fsdecode(b"\xff\x01'")]
)
def test_a_copied_command_can_be_seen_and_opens_the_file_alone(name: str) -> None:
    command = render.in_wireshark(f"/data/{name}", 7).removeprefix("wireshark -g 7 -r ")
    assert command.isprintable()
    done = subprocess.run(["/bin/bash", "-c", f"printf %s {command}"], check=True, capture_output=True)
    assert done.stdout == os.fsencode(f"/data/{name}")


ROW: Row = dict.fromkeys(
    (
        "ack_type",
        "message_class",
        "acknowledged_message_id",
        "length",
        "packet_type",
        "verdict",
        "reason",
        "message_id",
        "ack_latency_ms",
        "incoming_tx_sequence_number",
        "tx_sequence_number",
        "previous_tx_sequence_number",
        "captured_ns",
        "tx_sequence_id",
        "incoming_tx_sequence_id",
        "label",
    )
)
REFUSED = ROW | {"verdict": "out_of_order", "tx_sequence_id": 1, "incoming_tx_sequence_id": 1}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            REFUSED
            | {"reason": "predecessor_missing", "tx_sequence_number": 7, "previous_tx_sequence_number": 6}
            | {"incoming_tx_sequence_number": 5},
            "Refused: expected number 6, got 7, which needs 6.",
        ),
        (
            REFUSED
            | {"reason": "predecessor_missing", "tx_sequence_number": 3, "previous_tx_sequence_number": 2}
            | {"incoming_tx_sequence_number": 5, "tx_sequence_id": 2},
            "Refused: expected number 1 of the new sequence, got 3, which needs 2.",
        ),
        (
            REFUSED | {"reason": "late", "tx_sequence_number": 4, "incoming_tx_sequence_number": 9},
            "Refused: got number 4, the receiver was already at 9.",
        ),
        (
            ROW | {"verdict": "in_order", "tx_sequence_number": 4, "previous_tx_sequence_number": 3}
            | {"ack_latency_ms": 31_500.0},
            "Accepted: number 4 after 3. It was acknowledged after 31.5 s.",
        ),
        (
            ROW | {"ack_type": "final_ack", "message_class": 0x8004, "acknowledged_message_id": "a\\7"},
            "FinalAck of class 0x8004 for message a\\7.",
        ),
        (ROW | {"packet_type": "session_ack"}, "Session ack."),
    ],
)  # fmt: skip
def test_a_witness_says_what_it_shows(row: Row, said: str) -> None:
    assert shows(row) == said


def test_a_number_used_again_is_shown_with_both_message_ids() -> None:
    first = ROW | {"stream_id": "s", "stream_offset": 10, "verdict": "in_order", "message_id": "a\\7"}
    first |= {"tx_sequence_id": 1, "tx_sequence_number": 4, "previous_tx_sequence_number": 3}
    second = first | {"stream_offset": 20, "verdict": "duplicate", "message_id": "a\\9"}
    second |= {"incoming_tx_sequence_id": 1, "incoming_tx_sequence_number": 8, "label": "order 9"}
    rows = {"witnesses": [first, second]}
    accepted, refused = (one["shows"] for one in witnesses(rows)(["s@10", "s@20"]))
    assert accepted == "Accepted: number 4 after 3. Message a\\7 has this number."
    assert refused == (
        "Refused: the receiver had accepted another message with number 4, and was at 8. "
        "Message a\\9, order 9, has this number."
    )


def test_times_keep_their_microseconds() -> None:
    assert render.moment(1_772_474_400_000_001_999) == "2026-03-02 18:00:00.000001"
    assert render.moment(None) == "no time"


@pytest.mark.parametrize(("seconds", "step"), [(0, 0.01), (12, 1), (119, 1), (120, 5), (86_400, 900), (10**8, 86_400)])
def test_the_period_is_drawn_in_at_most_120_steps_or_days(seconds: int, step: float) -> None:
    extent: Row = {"first_ns": 10**18, "last_ns": 10**18 + seconds * 10**9}
    assert steps(extent)[1] == step * 10**9


def test_times_without_captures_do_not_make_the_steps_longer() -> None:
    second, day = 10**9, 86_400 * 10**9
    extent: Row = {"first_ns": 10**18, "last_ns": 10**18 + 3 * day + 60 * second}
    nights = [{"first_ns": 10**18 + at, "last_ns": 10**18 + at + 60 * second} for at in (0, 3 * day)]
    assert steps(extent, nights)[1] == 5 * second
    assert steps(extent, [*nights, nights[0]])[1] == 5 * second  # two captures of the same time


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shown(browser: Browser, limited: Path) -> Browser:
    browser.open(limited)
    return browser


def drawn_pixels(browser: Browser, scheme: str, canvas: str = "figure.picture canvas") -> set[str]:
    """The colours in the first such picture, as a rule in that of a session."""
    browser.colours(scheme)
    browser.run("new Promise(done => setTimeout(done, 300))")
    return set(
        browser.run(
            f"(() => {{ const canvas = document.querySelector('{canvas}');"
            "const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
            "const seen = new Set();"
            "for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add(data.slice(i, i + 3).join());"
            "return [...seen]; })()"
        )
    )


def test_the_page_asks_the_network_for_nothing_and_has_no_errors(shown: Browser, limited: Path) -> None:
    shown.run("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    shown.run("new Promise(done => setTimeout(done, 300))")
    assert shown.run("document.querySelectorAll('figure.picture .u-wrap').length") >= 3 * 2
    assert shown.requests() == [limited.absolute().as_uri()]
    assert shown.complaints() == []


def test_the_page_fits_a_phone(browser: Browser, limited: Path) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    browser.open(limited)
    browser.run("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    width = browser.run("document.documentElement.scrollWidth")
    browser.ask("Emulation.clearDeviceMetricsOverride")
    assert width == 390


def test_hostile_text_stays_text(shown: Browser) -> None:
    assert shown.run("document.querySelectorAll('img').length") == 0
    assert shown.run("document.scripts.length") == 3
    assert printable(HOSTILE) in shown.run("document.querySelector('.finding').textContent")


def test_every_character_of_the_page_can_be_seen(limited: Path, browser: Browser) -> None:
    browser.open(limited)
    allowed = {"\n", "\u202f"}  # between lines, and between thousands
    assert {c for c in text_of(limited) if not c.isprintable()} <= allowed
    assert {c for c in browser.run("document.documentElement.outerHTML") if not c.isprintable()} <= allowed
    for _ in range(2):  # sessions, and then the tables that their pictures have
        browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        browser.run("new Promise(done => setTimeout(done, 300))")
    seen = browser.run("[...document.querySelectorAll('figure.picture tbody')].map(one => one.textContent).join('')")
    assert printable(HOSTILE).rpartition("/")[2] in seen  # of the names of files
    assert {c for c in seen if not c.isprintable()} <= allowed
    browser.open(limited)


def test_pictures_are_drawn_in_light_and_dark(shown: Browser) -> None:
    green, red = {"light": "26,127,55", "dark": "86,211,100"}, {"light": "207,34,46", "dark": "255,128,120"}
    for scheme in ("dark", "light"):
        assert {green[scheme], red[scheme]} <= drawn_pixels(shown, scheme)


def test_long_times_without_traffic_are_short_strips(browser: Browser, limited: Path, tmp_path: Path) -> None:
    before, mark, rest = limited.read_text().partition('<script type="application/json" id="data">')
    text, end, after = rest.partition("</script>")
    data = json.loads(text)
    times = data["steps"]["t"]
    strip = "245,246,248"  # --panel
    for gap_ms in (0, 3 * 86_400_000):
        data["steps"]["t"] = [ms + gap_ms * (place >= len(times) // 2) for place, ms in enumerate(times)]
        page = tmp_path / f"{gap_ms}.html"
        page.write_text(before + mark + json.dumps(data).replace("<", "\\u003c") + end + after)
        browser.open(page)
        assert (strip in drawn_pixels(browser, "light", "#over-time canvas")) == bool(gap_ms)


def test_a_command_is_copied_or_at_least_selected(browser: Browser, limited: Path) -> None:
    browser.open(limited)
    button = "document.querySelector('details.incident .command button.copy')"
    browser.run(f"{button}.click()")
    browser.run("new Promise(done => setTimeout(done, 300))")
    assert browser.run(f"{button}.textContent") in ("copied", "selected")
    assert browser.run(f"{button}.getAttribute('aria-label')").startswith("Copy wireshark -g ")
    copied = browser.run("document.querySelector('details.incident .command code').dataset.copy")
    assert copied.isprintable()
    words = subprocess.run(["/bin/bash", "-c", f"printf '%s\\n' {copied}"], check=True, capture_output=True).stdout
    assert words.decode().splitlines()[:4] == ["wireshark", "-g", *words.decode().splitlines()[2:3], "-r"]
    assert words.decode().partition("-r\n")[2].endswith(f"{HOSTILE}.pcap\n")


def test_a_screen_reader_finds_landmarks_headings_tables_and_what_pictures_show(shown: Browser) -> None:
    nodes = [node for node in shown.ask("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    assert len(names["main"]) == len(names["banner"]) == len(names["contentinfo"]) == len(names["navigation"]) == 1
    assert {
        "What became of the messages",
        "Incidents",
        "Findings",
        "Sessions",
        "Pictures",
        "What cannot be known",
    } <= set(names["heading"])
    assert {"Number", "Previous", "Where it was captured", "Time, UTC"} <= set(names["columnheader"])
    assert any(name.startswith("Sequence number over time") and "out of order" in name for name in names["group"])
    assert all(names["image"])
    levels = shown.run("[...document.querySelectorAll('h1, h2, h3')].map(heading => Number(heading.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_a_picture_is_read_by_keyboard(shown: Browser) -> None:
    shown.run("document.querySelector('figure.picture .plots').focus()")
    shown.press("ArrowRight")
    first = shown.run("document.querySelector('figure.picture .readout').textContent")
    assert "number 1, previous 0: new sequence" in first
    shown.press("ArrowRight", modifiers=8)
    refused = shown.run("document.querySelector('figure.picture .readout').textContent")
    assert "out of order" in refused
    assert "frame " in refused


def test_the_first_stop_of_the_tab_key_skips_to_the_incidents(browser: Browser, limited: Path) -> None:
    browser.open(limited)
    browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "Skip to the incidents"


def test_a_link_to_a_session_opens_its_pictures(browser: Browser, limited: Path) -> None:
    browser.open(limited)
    browser.run("document.querySelector('#session-table a[href=\"#session-2\"]').click()")
    browser.run("new Promise(done => setTimeout(done, 300))")
    assert browser.run("document.querySelector('#session-2').open")
    assert browser.run("document.querySelectorAll('#session-2 canvas').length") >= 2


def test_sessions_are_found_by_a_part_of_their_names(browser: Browser, limited: Path) -> None:
    browser.open(limited)
    address = browser.run("document.querySelectorAll('#session-table tbody tr')[4].dataset.text.split(' ')[1]")
    browser.run("document.getElementById('filter').focus()")
    browser.ask("Input.insertText", text=address)
    shown = browser.run("[...document.querySelectorAll('#session-table tbody tr')].filter(row => !row.hidden).length")
    assert shown == 1
    assert browser.run("document.getElementById('filtered').textContent") == "1 of 10 listed"


def test_incidents_are_chosen_by_severity_queue_and_queue_manager(browser: Browser, limited: Path) -> None:
    browser.open(limited)

    def chosen(by: str, value: str) -> list[str]:
        browser.run(
            f"(() => {{ const field = document.querySelector('#incident-filters [data-by={by}]');"
            f"field.value = {json.dumps(value)}; field.dispatchEvent(new Event('input')); }})()"
        )
        visible = "[...document.querySelectorAll('details.incident:not([hidden])')]"
        found: list[str] = browser.run(f"{visible}.map(one => one.querySelector('.severity').textContent)")
        return found

    everything = ["lost", "pending", "unknown", "repaired", "repaired"]
    assert chosen("severity", "error") == ["lost"]
    assert chosen("severity", "info") == ["repaired", "repaired"]
    assert browser.run("document.getElementById('repaired').open")
    assert browser.run("document.getElementById('incidents-filtered').textContent") == "2 of 5 listed"
    assert chosen("severity", "") == everything
    assert chosen("queue", "ORDERS") == everything
    assert chosen("queue", f"orders{HOSTILE}") == everything
    assert chosen("queue", f"orders{printable(HOSTILE)}") == everything
    assert chosen("queue", "no such queue") == []
    assert chosen("queue", "") == everything
    manager = browser.run("document.querySelector('details.incident').dataset.managers.split(' ')[1]")
    assert chosen("managers", manager) == ["lost"]


def test_a_figure_of_the_headline_leads_to_its_messages(browser: Browser, limited: Path) -> None:
    browser.open(limited)
    browser.run("document.querySelector('.answer a[href=\"#expired_unseen\"]').click()")
    browser.run("new Promise(done => setTimeout(done, 300))")
    assert browser.run("document.querySelector('#expired_unseen > details').open")
    assert browser.run("document.querySelectorAll('#expired_unseen tbody tr').length") == 1


def test_the_card_of_an_incident_says_where_since_when_which_machines_and_what_to_do(
    spark: SparkSession, nights: Path, tmp_path: Path, browser: Browser
) -> None:
    options = config(nights)
    collected = values_of.collected_rows(OnSpark(Warehouse.of(spark, options)), options)
    values = values_of.values(collected, options, str(nights), Names())
    incident = values["incidents"][0]
    machine = {"address": "10.0.0.7", "first_ns": 10**18, "last_ns": 2 * 10**18, "suspected": False}
    machine |= {"messages": 9, "accepted": 8, "lost": 1}
    incident |= {"machines": [machine, machine | {"address": "10.0.0.9", "suspected": True}], "ongoing": True}
    incident |= {"destination_queues": ["DIRECT=OS:hq\\one", "DIRECT=OS:hq\\two"], "advice": "Stop one."}
    page = tmp_path / "card.html"
    page.write_text(render.render(values, names=Names({"10.0.0.7": "West"}, {"direct=os:hq\\two": "Stock"})))
    browser.open(page)
    card = "document.querySelector('details.incident')"
    said = re.sub(r"\s+", " ", browser.run(f"{card}.innerText"))
    frame = incident["frames"][0]["row"]["last_frame"]
    assert "What to do: Stop one." in said
    assert "still so at the end of the captures" in said
    assert "DIRECT=OS:hq\\one, DIRECT=OS:hq\\two (Stock)" in said
    assert "10.0.0.7 (West) 2001-09-09 01:46:40" in said
    assert "10.0.0.9 seen later" in said
    assert f"Filter: frame.number == {frame} copy" in said
    shown = "document.querySelectorAll('details.incident:not([hidden])').length"
    for by, value in (("queue", "two"), ("queue", "stock"), ("managers", "10.0.0.9"), ("managers", "west")):
        browser.run(
            "document.querySelectorAll('#incident-filters [type=search]').forEach(field => {"
            f"field.value = field.dataset.by === '{by}' ? '{value}' : ''; field.dispatchEvent(new Event('input')); }})"
        )
        assert browser.run(shown) == 1, value


def test_a_list_is_saved_as_csv_that_no_spreadsheet_takes_for_formulas(
    browser: Browser, limited: Path, tmp_path: Path
) -> None:
    page = tmp_path / "saved.html"
    page.write_text(limited.read_text().replace('"order ', '"=order '))
    browser.open(page)
    browser.run("window.written = []; navigator.clipboard.writeText = async text => { window.written.push(text); }")
    browser.run("document.querySelector('#pending .save button').click()")
    (text,) = browser.run("window.written")
    head, *rows = csv.reader(text.splitlines())
    assert head[:5] == ["outcome", "number", "numbers", "message_id", "label"]
    assert len(rows) > 3  # which are shown
    labels = [row[4] for row in rows if row[4]]
    assert labels
    assert all(label.startswith("'=order ") and label.endswith(printable(HOSTILE)) for label in labels)
    said = browser.run("document.querySelector('#pending .save span').textContent")
    assert said == f"As CSV, all {sum(int(row[2]) for row in rows)}:"


def test_the_template_is_one() -> None:
    Environment(autoescape=True).parse(render.files()[-1])
