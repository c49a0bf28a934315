"""The file for Prometheus, the Grafana dashboard that reads it, and the JSON that a webhook gets."""

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from warehouses import LOSSES

from jobs import main
from jobs.cli import webhook
from jobs.cli.config import Config
from jobs.cli.errors import UsageError
from jobs.cli.metrics import METRICS, PREFIX, exposition

DASHBOARD = Path(__file__).parents[1] / "conf" / "grafana" / "msmq-replay.json"
_SAMPLE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (-?\d+(?:\.\d+)?)')
HOSTILE = 'q"} 1\nmsmq_replay_lost_messages 0\\<!channel>```@here\x1b[2J'


def samples(text: str) -> dict[str, float]:
    """Reads the text format: each line is a comment or a sample, and each metric has its two comments before."""
    found: dict[str, float] = {}
    told: list[str] = []
    for line in text.split("\n")[:-1]:
        if line.startswith("# "):
            told.append(line.split(" ")[2])
            continue
        matched = _SAMPLE.fullmatch(line)
        assert matched, line
        assert told[-2:] == [matched[1]] * 2
        found[f"{matched[1]}{{{matched[2] or ''}}}"] = float(matched[3])
    return found


def test_a_look_writes_figures_that_prometheus_reads(demonstration: Path, tmp_path: Path) -> None:
    place = tmp_path / "textfile" / "msmq.prom"
    assert main.main(["look", str(demonstration), "--fail-on", "anything", "--prometheus", str(place)]) == 3
    found = samples(place.read_text())
    expected = {"lost_messages": 21, "stuck_messages": 104, "run_exit_code": 3, 'alarm{word="lost"}': 1}
    expected |= {
        'alarm{word="no_new_captures"}': 0,
        'messages{outcome="displaced"}': 21,
        'incidents{outcome="lost"}': 1,
    }
    for name, number in expected.items():
        assert found[f"{PREFIX}{name}" if "{" in name else f"{PREFIX}{name}{{}}"] == number
    assert found[f"{PREFIX}last_captured_timestamp_seconds{{}}"] == 1_772_528_204
    assert abs(found[f"{PREFIX}run_ended_timestamp_seconds{{}}"] - time.time()) < 600
    assert [one.name for one in place.parent.iterdir()] == ["msmq.prom"]


def test_the_literal_reading_leaves_out_what_it_does_not_tell(demonstration: Path, tmp_path: Path) -> None:
    place = tmp_path / "msmq.prom"
    assert main.main(["look", str(demonstration), "--reading", "literal", "--prometheus", str(place)]) == 0
    found = samples(place.read_text())
    assert f"{PREFIX}newest_captures_messages{{}}" in found
    assert not [name for name in found if "lost" in name.partition("{")[0]]


def test_a_place_that_cannot_be_written_fails_the_run(
    demonstration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "msmq.prom"
    assert main.main(["look", str(demonstration), "--prometheus", str(place)]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("21 messages were lost")
    assert f"{place} cannot be written" in said.err


def test_a_hostile_name_makes_no_line_and_no_label() -> None:
    row = {"source_queue_manager": "a\ud800", "destination_queue": HOSTILE, "lost": 3}
    found = samples(exposition({"lost": 3, "outcomes": {}, "lost_by": [row]}))
    assert found[f"{PREFIX}lost_messages{{}}"] == 3
    (named,) = (name for name in found if name.startswith(f"{PREFIX}queue_lost_messages"))
    assert named.isprintable()


def test_names_are_stable_words() -> None:
    names = [metric.name for metric in METRICS]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names)


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    text = DASHBOARD.read_text()
    asked = {*re.findall(rf"{PREFIX}(\w+)", text)}
    assert asked <= {metric.name for metric in METRICS}
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


# --- what is posted ---------------------------------------------------------------------------------------------------


class Server(HTTPServer):
    """Answers each request with the next of its answers, the last one again and again."""

    answers: list[bytes]
    bodies: list[bytes]


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        answers = self.server.answers
        self.wfile.write(answers.pop(0) if len(answers) > 1 else answers[0])

    do_GET = do_POST  # noqa: N815 - the same

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(webhook, "_WAIT_S", 0.01)
    found = Server(("127.0.0.1", 0), _Handler)
    found.answers, found.bodies = [b"HTTP/1.0 200 OK\r\n\r\n"], []
    thread = threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}/secret-token"


def test_a_look_that_found_something_posts_it_once(
    demonstration: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["look", str(demonstration), "--webhook", url(server)]
    assert main.main(arguments) == 0
    assert server.bodies == []
    assert main.main([*arguments, "--fail-on", "lost,stuck,duplicate"]) == 3
    (body,) = map(json.loads, server.bodies)
    assert {*body} == {*webhook.FIELDS}
    assert (body["matched"], body["exit_code"], body["lost"], body["error"]) == (
        ["lost", "stuck", "duplicate"],
        3,
        21,
        None,
    )
    assert body["text"].startswith("msmq-replay look: --fail-on: lost, stuck, duplicate\n```\n21 messages were lost")
    assert "What to do: Go to 10.20.0.123." in body["text"]
    assert "secret-token" not in "".join(capsys.readouterr())


def test_a_run_that_failed_posts_why(server: Server, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pcap"
    assert main.main(["look", str(missing), "--webhook", url(server)]) == 2
    (body,) = map(json.loads, server.bodies)
    assert {*body} == {*webhook.FIELDS}
    assert (body["exit_code"], body["headline"]) == (2, None)
    assert str(missing) in body["error"]


@pytest.mark.parametrize(
    ("answers", "posts", "said"),
    [
        ([b"HTTP/1.0 204 No Content\r\n\r\n"], 1, ""),
        ([b"HTTP/1.0 503 Busy\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"], 2, ""),
        ([b"HTTP/1.0 500 Oh\r\n\r\n"], 3, "status 500"),
        ([b"HTTP/1.0 429 Slow\r\n\r\n"], 3, "status 429"),
        ([b"HTTP/1.0 404 \x1b[2J\r\n\r\n"], 1, "status 404"),
        ([b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/elsewhere\r\n\r\n"], 1, "status 302"),
        ([b"HTTP/1.0 308 Moved\r\nLocation: file:///etc/passwd\r\n\r\n"], 1, "status 308"),
        ([b"\x1b[2Jno HTTP\r\n\r\n"], 1, "its answer is not HTTP"),
    ],
)
def test_no_answer_of_a_server_is_an_error(
    answers: list[bytes], posts: int, said: str, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers = answers
    webhook.post(url(server), "{}")
    assert len(server.bodies) == posts
    printed = capsys.readouterr().err
    assert ("did not take what was posted" in printed) == bool(said)
    assert said in printed
    assert "\x1b" not in printed


def test_an_answer_of_a_server_changes_no_run(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers = [b"HTTP/1.0 404 \x1b[2J\r\n\r\n"]
    assert main.main(["look", str(LOSSES), "--fail-on", "lost", "--webhook", url(server)]) == 3
    assert len(server.bodies) == 1
    assert "did not take what was posted" in capsys.readouterr().err


def test_a_server_that_is_not_there_or_never_ends_its_answer_is_a_warning(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    webhook.post("http://127.0.0.1:1/x", "{}")
    assert "127.0.0.1 did not take what was posted: [Errno 111]" in capsys.readouterr().err
    monkeypatch.setattr(webhook, "_DEADLINE_S", 0.2)
    monkeypatch.setattr(webhook, "_post", lambda *_: time.sleep(1))
    webhook.post(url(server), "{}")
    assert "no whole answer after 0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("http://example.com/secret", "needs https"),
        ("http://localhost.example.com/secret", "needs https"),
        ("http://[::2]/secret", "needs https"),
        ("ftp://example.com/secret", "needs https"),
        ("file:///secret", "is no URL"),
        ("https:///secret", "is no URL"),
        ("https://[/secret", "is no URL"),
        ("https://example.com:99999/secret", "is no URL"),
        ("https://example.com/secret\r\nHost: x", "is no URL"),
        ("https://user:secret@example.com/", "cannot have a user or a password"),
    ],
)
def test_a_url_that_may_not_be_posted_to_is_wrong_use_and_is_not_repeated(given: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        Config.load({"webhook": given}, None)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "given",
    ["https://example.com/x", "http://localhost:8080/x", "http://127.9.9.9/", "http://[::1]:9/", "HTTPS://a.b/"],
)
def test_other_urls_may_be(given: str) -> None:
    assert Config.load({"webhook": given}, None).webhook == given


def test_what_is_quoted_of_captures_stays_in_its_block_and_is_not_too_long() -> None:
    body = json.loads(webhook.payload("nightly", 3, ["lost"], [f"1 lost, to {HOSTILE}", "x" * 9_000], {}))
    title, quoted, end = body["text"].split("```")
    assert (title, end) == ("msmq-replay nightly: --fail-on: lost\n", "")
    assert "<!channel>" not in quoted
    assert "&lt;!channel&gt;" in quoted
    assert len(body["text"]) < 4_000
