"""Scenes and the sentences that they must give, by the second computations alone: no Spark, and none of the product."""

from collections.abc import Callable
from typing import Any

import pytest
import scenes_of_connections
import scenes_of_senders
import scenes_of_sessions
import scenes_of_verdicts
from finding_sentences import SENTENCES
from gold_rows import complete, finding_of, with_conversations
from plain_evidence import evidence
from plain_incidents import incidents
from plain_message_findings import message_findings
from plain_outcomes import outcomes
from plain_sender_findings import watched
from plain_words import Finding, Row, Rows, micros
from replay_tables import TABLES, Tables
from replayer import chosen, ends, scope_of, verdicts
from scene import SCENES, Scene
from test_incidents import BEGAN, EXPECTED, FIGURES, Story

from schemas.outcomes import OUTCOMES
from schemas.replay import FINDINGS, SEQUENCES, VERDICTS, Severity
from schemas.replay import FindingKind as K

__all__ = ["scenes_of_connections", "scenes_of_senders", "scenes_of_sessions", "scenes_of_verdicts"]
CONTENT = ("message_id", "sent_at", "tx_transaction_id", "label", "body_size", "body_crc32", "message_class")
OF_MESSAGES = {
    *(K.DUPLICATES, K.DUPLICATES_DIFFER, K.RESEND_SCHEDULE, K.OUT_OF_ORDER, K.STUCK_SEQUENCE, K.SEQUENCE_REGRESSED),
    *(K.GAP_EXPIRED, K.CAPTURE_GAP, K.MISSED_BY_CAPTURE, K.CONTRADICTED, K.STATE_FELL, K.REFUSED_FOR_CAUSE),
    *(K.UNACKNOWLEDGED, K.SLOW_ACKNOWLEDGMENT),
}
"""Kinds that rows of `verdicts` show."""


def judged(tables: Tables) -> list[Row]:
    """Returns rows of `verdicts`: messages, their fates, and what acknowledgments say of them."""
    at, fates = ends(tables.rows), verdicts(tables.rows, reading="conformant", scope="auto")
    messages = [row for row in tables.rows["messages"] if (row["stream_id"], row["stream_offset"]) in fates]
    choice, rows = chosen(messages, at), []
    for row in complete(messages, TABLES["messages"]):
        fate, end = fates[row["stream_id"], row["stream_offset"]], at[row["stream_id"]]
        scope = scope_of(choice.get((end.session, row["source_queue_manager"]), "queue"), end, row)
        own = {"scope": scope, "scope_key": " ".join(scope), "session_id": end.session, "conforming": fate}
        content = hash(tuple(row[name] for name in CONTENT))
        missing = {"content_hash": content, "missing_runs": 0, "behind_gap": fate.reason == "capture_gap"}
        rows.append(row | fate._asdict() | own | missing)
    for key, said in evidence(rows, tables.rows["acks"], at).items():
        row = next(row for row in rows if (row["stream_id"], row["stream_offset"]) == key)
        times = {"acknowledged_at": micros(said.acknowledged_ns), "covered_at": micros(said.covered_ns)}
        row |= times | {
            name: getattr(said, name) for name in ("evidence", "explained_by", "final_ack_class", "assumed")
        }
        row["ack_latency_ms"] = said.acknowledged_ns and (said.acknowledged_ns - row["captured_ns"]) / 1e6
    return complete(rows, VERDICTS)


def told(play: Callable[[Scene], None], name: str) -> list[Finding]:
    """Returns the findings on messages of a scene."""
    tables = Tables()
    play(Scene(tables, name))
    there = {row["stream_id"] for row in tables.rows["streams"]}
    tables.rows["handshakes"] = [row for row in tables.rows["handshakes"] if row["stream_id"] in there]
    rows, at = judged(tables), ends(tables.rows)
    found: list[Row] = [
        dict(
            zip(
                ("scope_key", "tx_sequence_id", "tx_sequence_number", "message_id", "content_hash"),
                message,
                strict=True,
            )
        )
        | {"outcome": outcome, "source_queue_manager": rows[0]["source_queue_manager"]}
        for message, outcome in outcomes(rows)[0].items()
    ]
    own: dict[str, Any] = {
        stream: {"copy_of": None, "sender": end.sender, "receiver": end.receiver, "session_id": end.session}
        for stream, end in at.items()
    }
    given = {table: complete(of, TABLES[table]) for table, of in tables.rows.items()}
    all_ends = [
        own[row["stream_id"]] | row | {"last_ns": (row["last_captured_at"] or 0) * 1_000}
        for row in tables.rows["streams"]
    ]
    gold: Rows = with_conversations(given | {"verdicts": rows, "ends": all_ends})
    return list(message_findings(rows, found, watched(gold)))


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_gives_these_findings_on_messages_and_no_others(name: str) -> None:
    play, kinds = SCENES[name]
    found = {one.kind: Severity(one.severity) for one in told(play, name) if one.kind in OF_MESSAGES}
    assert found == {kind: severity for kind, severity in kinds.items() if kind in OF_MESSAGES}


@pytest.mark.parametrize("name", [name for name, (kind, _, _) in SENTENCES.items() if kind in OF_MESSAGES])
def test_words_and_witness(name: str) -> None:
    kind, explanation, witness = SENTENCES[name]
    (found,) = (one for one in told(SCENES[name][0], name) if one.kind == kind)
    assert (found.explanation, list(found.witness)) == (explanation, witness)


@pytest.mark.parametrize("play", EXPECTED, ids=lambda play: play.__name__)
def test_one_cause_is_one_story(play: Callable[[Story], None]) -> None:
    story = Story(play.__name__)
    play(story)
    outcome_rows, sequences, findings = (complete(story.rows[of.name], of) for of in (OUTCOMES, SEQUENCES, FINDINGS))
    found = (row for row, _ in incidents(outcome_rows, sequences, map(finding_of, findings)))
    began = int(BEGAN.timestamp()) * 1_000_000
    assert [
        (
            *(row["cause"], row["outcome"], row["severity"], *(row[name] for name in FIGURES)),
            *((row[name] - began) / 1_000_000 for name in ("began_at", "ended_at")),
        )
        for row in sorted(found, key=lambda row: int(row["tx_sequence_id"]))
    ] == EXPECTED[play]
