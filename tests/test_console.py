"""What a person sees of a run: steps on stderr, and a summary of a few lines on stdout."""

import re
from typing import Any

import pytest

from jobs.cli.command_line import COMMANDS, command_parser
from jobs.cli.logs import step
from jobs.cli.summary_text import for_people

_NIGHT: dict[str, Any] = {
    "tables": "/data/msmq",
    "captures": {"ok": 3, "partial": 1},
    "messages": 900,
    "transactional_messages": 880,
    "acks": {"order_ack": 70, "final_ack": 5},
    "quarantine": {"bad_signature": 2},
    "books": {"balanced": 40, "unbalanced": 0},
    "verdicts": {"in_order": 800, "duplicate": 80, "unknown": 0},
    "findings": {f"kind_{number}": 9 - number for number in range(8)},
    "headline": "2 messages were lost: 2 never seen.\n2 senders, 870 of 870 confirmed by the receiver.",
    "outcomes": {"delivered": 870, "never_seen": 2},
    "confirmed": 860,
    "accepted_not_read_messages": 12,
    "accepted_not_read_since": "2026-03-03 08:00:00 UTC",
    "period": {"first": "2026-03-03 07:30:00 UTC", "last": "2026-03-03 09:01:00 UTC"},
    "failed_connections": [
        "10.20.0.9 could not connect to 10.20.0.12: 3 connections had no answer.",
        "10.20.0.2 could not connect to 10.20.0.123: 4 connections had no answer.",
        "10.20.0.3 could not connect to 10.20.0.2: 5 connections had no answer.",
    ],
    "incidents": {"repaired": 3, "lost": 1},
    "lost": 2,
    "lost_by": [{"lost": 2, "source_queue_manager": "0a1b", "destination_queue": "DIRECT=OS:hq\\orders"}],
    "stuck": 0,
    "severities": {"error": 2, "warning": 0, "info": 4},
    "findings_by_severity": {
        "error": {"stuck_sequence": 1} | {f"kind_{number}": 1 for number in range(6)},
        "info": {f"kind_{number}": 9 - number for number in range(8)},
    },
    "worst_incidents": [
        {
            "outcome": "lost",
            "lost_messages": 2,
            "stuck_messages": 0,
            "pending": 0,
            "unacknowledged": 0,
            "unknown": 0,
            "receivers": [],
            "ongoing": False,
            "cause": "message_missing",
            "destination_queues": ["DIRECT=OS:hq\\orders", "DIRECT=OS:hq\\stock"],
            "session_id": "0a1b->2c3d",
            "session_names": "Branch 1 → HQ",
            "explanation": "Numbers were used again.",
            "findings": ["Two machines use them.", "Some were resent."],
            "labels": ["order 7", "order 8\n", "", "order 9"],
            "began_at": "2026-03-03 08:24:26 UTC",
            "ended_at": "2026-03-03 08:39:37 UTC",
            "addresses": [
                {"address": "10.20.0.3", "name": "Branch 1", "messages": 90, "accepted": 80, "lost": 0}
                | {"suspected": False, "first_seen_at": "2026-03-03 07:31:00 UTC"},
                {"address": "10.20.0.123", "messages": 60, "accepted": 44, "lost": 2}
                | {"suspected": True, "first_seen_at": "2026-03-03 08:24:26 UTC"},
            ],
            "accepted_since": "2026-03-03 08:24:26 UTC",
            "accepted_from": [
                {"address": "10.20.0.123", "messages": 1044},
                {"address": "10.20.0.3", "name": "Branch 1", "messages": 32},
            ],
            "go_to": [{"address": "10.20.0.123", "name": "Spare"}],
            "advice": "Stop one of them.",
        }
    ],
    "report": "/data/msmq/report.html",
    "seconds": 31.4,
}


_SHOWN = """\
2 messages were lost: 2 never seen.
2 senders, 870 of 870 confirmed by the receiver.
1. 2 lost ("order 7", "order 8\\n", "" and others), Branch 1 → HQ (0a1b->2c3d), to DIRECT=OS:hq\\orders, \
DIRECT=OS:hq\\stock, since 2026-03-03 08:24:26 UTC, over since 2026-03-03 08:39:37 UTC
   Why: Two machines use them. Also: 10.20.0.2 could not connect to 10.20.0.123: 4 connections had no answer. \
Also: 10.20.0.3 could not connect to 10.20.0.2: 5 connections had no answer.
   What to do: Go to 10.20.0.123 (Spare). Stop one of them.
   Found: Numbers were used again.
   Found: Some were resent.
   Sent from 10.20.0.3 (Branch 1): 90 messages of this incident, 80 accepted, 0 lost; \
first seen 2026-03-03 07:31:00 UTC; 10.20.0.123: 60 messages of this incident, 44 accepted, 2 lost; \
first seen 2026-03-03 08:24:26 UTC, came later
   Accepted since numbers were used twice, 2026-03-03 08:24:26 UTC: 1,076 messages \
(1,044 from 10.20.0.123, 32 from 10.20.0.3 (Branch 1)); the report lists them
10.20.0.9 could not connect to 10.20.0.12: 3 connections had no answer.
outcomes              870 delivered, 2 never seen; of 870 delivered 860 confirmed by the receiver, 10 not confirmed
not read yet          12 since 2026-03-03 08:00:00 UTC
incidents             1 lost, 3 repaired
findings              7 errors: 1 stuck sequence, 1 kind 0, 1 kind 1, 1 kind 2, 1 kind 3, 1 kind 4, 1 kind 5
                      44 notes: 9 kind 0, 8 kind 1, 7 kind 2, 6 kind 3, 5 kind 4, 4 kind 5, and 2 more
verdicts              800 in order, 80 duplicate
messages              900, 880 of them transactional; 75 acknowledgments
captures              3 read, 1 read in part
quarantine            2 bad signature
took                  31.4 s
report                /data/msmq/report.html"""


def test_the_summary_is_short_begins_with_the_headline_and_hides_zeros() -> None:
    assert for_people(_NIGHT) == _SHOWN
    assert "tables" in for_people(_NIGHT | {"report": "/elsewhere.html"})
    troubled = for_people(_NIGHT | {"incidents": {"lost": 4}, "books": {"balanced": 39, "unbalanced": 1}})
    (books,) = (line for line in troubled.splitlines() if line.startswith("books"))
    assert books.split() == ["books", "1", "of", "40", "do", "not", "balance"]
    assert "3 more that were not repaired are in the report and in the table incidents" in troubled


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (None, ["not read yet          not reported: no FinalAck says whether messages were read"]),
        (0, ["not read yet          0"]),
    ],
)
def test_what_was_not_read_yet_is_a_figure_or_not_reported(messages: int | None, said: list[str]) -> None:
    shown = for_people(_NIGHT | {"accepted_not_read_messages": messages, "accepted_not_read_since": None})
    assert [line for line in shown.splitlines() if line.startswith("not read")] == said


@pytest.mark.parametrize(
    ("ongoing", "said"),
    [
        (True, ", not known to be over: last seen 2026-03-03 08:39:37 UTC, 21 min before the captures end"),
        (False, ", over since 2026-03-03 08:39:37 UTC"),
        (None, ", not known whether it goes on: last seen 2026-03-03 08:39:37 UTC, 21 min before the captures end"),
    ],
)
def test_an_incident_is_over_only_where_the_captures_show_the_end(ongoing: bool | None, said: str) -> None:
    (incident,) = _NIGHT["worst_incidents"]
    (first,) = (
        line
        for line in for_people(_NIGHT | {"worst_incidents": [incident | {"ongoing": ongoing}]}).splitlines()
        if line.startswith("1. ")
    )
    assert first.endswith(said)


def test_errors_of_no_incident_and_causes_of_what_is_left_out_are_named() -> None:
    left_out = {"incidents": {"lost": 3, "repaired": 9}, "causes_untold": {"receiver_replaced": 2}}
    shown = for_people(_NIGHT | left_out | {"errors_alone": ["The queue of 10.20.0.9 is full."]}).splitlines()
    assert "The queue of 10.20.0.9 is full." in shown
    assert any("2 more that were not repaired (2 receiver replaced) are in" in line for line in shown)


def test_incidents_after_the_worst_ones_have_a_line_each() -> None:
    (incident,) = _NIGHT["worst_incidents"]
    following = incident | {"destination_queues": ["Q\x1b"], "cause": "never_answered", "began_at": "T"}
    following |= {"ongoing": True, "captures_lack": "9 bytes", "receivers": ["10.0.0.1"]}
    at_the_end = following | {"ended_at": "2026-03-03 09:00:59 UTC"}
    more = {"next_incidents": [following, at_the_end], "incidents": {"lost": 4}}
    shown = for_people(_NIGHT | more).splitlines()
    lack = "The captures lack 9 bytes between the two."
    silent = "not known to be over: last seen 21 min before the captures end"
    for number, still in ((2, silent), (3, "still so when the captures end")):
        said = f"to Q\\x1b, since T, {still}: never answered. {lack} Go to 10.20.0.123 (Spare)."
        assert f"{number}. 2 lost, Branch 1 → HQ (0a1b->2c3d), {said}" in shown
    assert any("1 more that were not repaired are in" in line for line in shown)


def test_what_is_said_of_an_incident_cannot_move_the_cursor() -> None:
    (incident,) = _NIGHT["worst_incidents"]
    hostile = incident | {"destination_queues": ["\x1b[2J\n"], "explanation": "\x1b[2J"}
    assert "\x1b" not in for_people(_NIGHT | {"worst_incidents": [hostile]})


def test_a_summary_without_a_headline_shows_all_its_figures() -> None:
    shown = for_people({"folder": "out", "seed": 7, "pending": {"decode": "out of date", "captures": 3}}).split()
    assert " ".join(shown) == "folder out seed 7 pending decode: out of date, 3 captures"


def test_a_log_holds_each_step_with_its_number_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    with step("decode", 3, 5):
        pass
    begun, ended = capsys.readouterr().err.splitlines()
    assert begun.endswith(" 3/5 decode …")
    assert re.search(r" 3/5 decode: \d+\.\d s$", ended)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_two_examples(command: str) -> None:
    _, _, examples = command_parser(command).format_help().partition("examples:\n")
    lines = [line for line in examples.splitlines() if line.strip()]
    assert len(lines) >= 2
    assert all(line.startswith(f"  msmq-replay {command} ") for line in lines)
