"""The first labels of an incident's messages, whichever part of the table of outcomes they come from."""

from datetime import timedelta

import polars as pl
import pytest
from table_frames import rows_of
from test_reporting import SINCE

from schemas.incidents import INCIDENTS
from schemas.outcomes import OUTCOMES
from udfs.report.labels import earlier_of, first_labels, labels_of

_STORIES = (("a", 5, "first"), ("a", 9, "second"), ("b", 1, "other"))
_MESSAGES = (
    ("a", 4, "passed_by", "before all incidents"),
    ("a", 5, "pending", "waits"),
    ("a", 5, "delivered_twice", "no harm"),
    ("a", 8, "displaced", "lost later"),
    ("a", 6, "displaced", "lost"),
    ("a", 6, "displaced", "lost"),
    ("a", 6, "never_seen", None),
    ("a", 9, "unacknowledged", ""),
    ("c", 9, "displaced", "of another scope"),
)


def stories() -> pl.DataFrame:
    rows = ({"scope_key": scope, "tx_sequence_id": first, "incident_id": name} for scope, first, name in _STORIES)
    return rows_of(INCIDENTS, *rows)


@pytest.mark.parametrize("parts", [1, 3, len(_MESSAGES)])
def test_the_labels_of_the_worst_messages_come_first(parts: int) -> None:
    messages = (
        {"scope_key": scope, "tx_sequence_id": sequence, "outcome": outcome, "label": label}
        | {"first_seen_at": SINCE - timedelta(seconds=sequence * (outcome == "pending") - sequence)}
        for scope, sequence, outcome, label in _MESSAGES
    )
    outcomes = rows_of(OUTCOMES, *messages)
    slices = outcomes.iter_slices(-(-len(outcomes) // parts))
    found = first_labels(pl.concat(labels_of(part, stories()) for part in slices))
    named = dict(found.group_by("incident_id", maintain_order=True).agg("label").iter_rows())
    assert named == {"first": ["lost", "lost later", "waits"], "second": [""]}


def test_one_more_label_than_is_told_says_that_there_are_others() -> None:
    incidents = rows_of(INCIDENTS, {"scope_key": "a", "tx_sequence_id": 1, "incident_id": "i"})
    rows = ({"scope_key": "a", "tx_sequence_id": 1, "outcome": "displaced", "label": f"{n}"} for n in range(9))
    assert labels_of(rows_of(OUTCOMES, *rows), incidents)["label"].to_list() == ["0", "1", "2", "3"]


def test_each_incident_counts_its_lost_messages_that_were_sent_before_the_captures() -> None:
    messages = (
        {"scope_key": "a", "tx_sequence_id": sequence, "outcome": outcome, "sent_at": SINCE + timedelta(seconds=after)}
        for sequence, outcome, after in (
            (5, "displaced", -1),
            (5, "displaced", 1),
            (6, "passed_by", -9),
            (6, "refused_for_cause", -9),
            (9, "never_seen", 1),
            (10, "pending", -1),
            (10, "given_up", -1),
        )
    )
    begun_ns = int(SINCE.timestamp()) * 1_000_000_000
    found = earlier_of(rows_of(OUTCOMES, *messages), stories(), begun_ns=begun_ns)
    assert dict(found.group_by("incident_id").len().iter_rows()) == {"first": 2, "second": 1}
