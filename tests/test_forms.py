"""Simulated nights in each form that other tools write give the tables of the plain form."""

from collections import Counter
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from night_truth import SITUATIONS
from tiers import merge_needs, seeds
from warehouses import derived

from jobs.cli.config import Form
from jobs.simulator import CAPTURE_PREFIX, simulate
from udfs.frames.derivation import Frames

_STREAM = ("connection_id", "src_ip", "recovered_bytes", "missing_bytes", "closed", "mid_stream", "from_initiator")
_MESSAGE = ("source_queue_manager", "destination_queue", "message_id", "tx_sequence_id", "tx_sequence_number")
_VERDICT = (*_MESSAGE, "verdict", "reason", "evidence")
_OUTCOME = (*_MESSAGE[1:], "numbers", "outcome", "lost", "stuck", "arrivals", "refusals", "delivered_by")
_TIMES = {"verdicts": ("captured_at",), "outcomes": ("first_seen_at", "last_seen_at", "accepted_at")}
_COLUMNS = {"streams": _STREAM, "verdicts": _VERDICT, "outcomes": _OUTCOME, "findings": ("kind", "severity")}
_OF_ONE_VIEW = [form for form in Form if form not in (Form.PLAIN, Form.RENUMBERED, Form.RENUMBERED_TRANSLATED)]
"""Forms with one view of each packet; `test_copies` compares those that a firewall changed."""
_OF_STEPS = [Form.SECTIONS, Form.TAPS, Form.INTERFACES, Form.KEEP_ALIVES]
_WHOLE = [form for form in Form if form not in (Form.PLAIN, Form.KEEP_ALIVES)]
"""Forms with all packets; a packet of which two captures hold parts has the time of the later capture."""


def night(form: Form, seed: int, situation: int) -> Frames:
    """The tables of a night in a form."""
    with TemporaryDirectory() as folder:
        simulate(folder, seed, 200, form=form, **SITUATIONS[situation])
        return derived(Path(folder) / f"{CAPTURE_PREFIX}_*.pcap*")


plain_night = cache(partial(night, Form.PLAIN))


def rows(tables: Frames, form: Form) -> dict[str, Counter[tuple[Any, ...]]]:
    """Rows without the columns that name places."""
    times = _TIMES if form in _WHOLE else {}
    return {name: Counter(tables[name].select(*of, *times.get(name, ())).rows()) for name, of in _COLUMNS.items()}


@pytest.mark.parametrize("seed", seeds([1], range(8)))
@pytest.mark.parametrize("form", merge_needs([Form.SECTIONS, Form.APPENDED], _OF_ONE_VIEW))
def test_each_form_gives_the_tables_of_the_plain_one(form: Form, seed: int) -> None:
    plain, found = plain_night(seed, seed % 4), night(form, seed, seed % 4)
    expected = rows(plain, form)
    assert sum(expected["verdicts"].values()) >= 200
    got = rows(found, form)
    if form is Form.HOSTS:  # a clone and its original are in files of which nothing compares the clocks
        assert _least(got["outcomes"]) <= expected["outcomes"]
        assert lost(found) <= lost(plain)
        expected, got = {"streams": expected["streams"]}, {"streams": got["streams"]}
    assert got == expected


def _least(outcomes: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """The outcomes that are not unknown."""
    return Counter({row: many for row, many in outcomes.items() if "unknown" not in row})


def lost(tables: Frames) -> Counter[tuple[Any, ...]]:
    """The messages that are lost."""
    return Counter(tables["outcomes"].filter("lost").select(_MESSAGE).rows())


@pytest.mark.parametrize("seed", seeds([4], [4, 5, 10, 11]))
@pytest.mark.parametrize("form", merge_needs([Form.KEEP_ALIVES], _OF_STEPS))
def test_so_do_those_of_a_clock_that_steps_back(form: Form, seed: int) -> None:
    """Findings say how many captures stepped, of which there are two with keep-alives."""
    plain, found = plain_night(seed, seed % 6), night(form, seed, seed % 6)
    expected, got = rows(plain, Form.KEEP_ALIVES), rows(found, Form.KEEP_ALIVES)
    assert got["outcomes"] == expected["outcomes"]
    assert got["verdicts"] == expected["verdicts"]
    assert plain["captures"]["clock_steps"].is_not_null().any()
