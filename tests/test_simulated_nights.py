"""Outcomes, incidents, machines and connections of simulated nights are compared with the simulator's truth."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from night_truth import OF_CONNECTIONS, SITUATIONS, STORIES, told
from plain_replay import CLOCK_STEP
from tiers import merge_needs, seeds
from warehouses import config, looked_at

from jobs.cli.names import Names
from jobs.commands import page
from jobs.commands.summary import summary
from jobs.simulator import TRUTH, demo, simulate
from jobs.simulator.branches import Trouble
from schemas.replay import FindingKind as K

of_night = cache(told)


@pytest.mark.parametrize("seed", seeds([1], range(2 * len(SITUATIONS))))
def test_outcomes_are_the_truth(seed: int) -> None:
    night = of_night(seed, **SITUATIONS[seed % len(SITUATIONS)])
    assert list(night.wrong_outcomes()) == []
    assert night.known


@pytest.mark.parametrize("seed", seeds([1], range(30)))
def test_in_nights_in_which_all_goes_wrong_incidents_and_findings_are_the_truth(seed: int) -> None:
    night = of_night(seed, **SITUATIONS[1])
    assert list(night.wrong_incidents()) == []
    assert list(night.wrong_findings()) == []
    assert night.known


def test_messages_that_are_last_seen_when_they_are_resent_were_never_acknowledged() -> None:
    """Senders forget what they have just resent: one is restored from a backup, the messages of another one expire."""
    for seed, messages, troubles in (5, 400, True), (52, 120, False):
        night = of_night(seed, messages=messages, troubles=troubles)
        assert [*night.wrong_outcomes(), *night.wrong_causes(), *night.wrong_incidents()] == []


def test_acknowledgments_are_compared_with_all_that_a_receiver_accepted_under_either_of_its_names() -> None:
    """Of seed 577, messages were refused on a connection without its handshake, and accepted on one that has it."""
    night = of_night(577, messages=400, situations=True, troubles=True)
    assert [*night.wrong_outcomes(), *night.wrong_causes(), *night.wrong_incidents()] == []


def test_a_receiver_that_acknowledged_the_next_sequence_of_one_queue_says_no_more_of_that_before() -> None:
    """Of seed 68, a sender numbers each queue apart; the highest sequence that was acknowledged is of another queue."""
    night = of_night(68, messages=250)
    assert [*night.wrong_outcomes(), *night.wrong_causes(), *night.wrong_incidents()] == []


@pytest.mark.parametrize("seed", seeds([5], range(8)))
def test_why_messages_were_never_acknowledged_is_the_truth(seed: int) -> None:
    night = of_night(seed, messages=400, troubles=True)
    assert [*night.wrong_outcomes(), *night.wrong_causes(), *night.wrong_incidents(), *night.wrong_not_read()] == []
    assert {scope.get("cause") for scope in night.scopes} == {trouble.cause for trouble in Trouble}


def test_what_tcp_never_took_is_told_to_have_not_arrived() -> None:
    night = of_night(5, messages=400, troubles=True)
    (source,) = (scope["source_queue_manager"] for scope in night.scopes if scope.get("trouble") == "NARROW")
    for row in night.replayed.outcomes.to_dicts():
        says_so = "the receiver's TCP did not acknowledge the bytes either, so it did not arrive" in row["explanation"]
        assert says_so == (row["source_queue_manager"] == source)


@pytest.mark.parametrize("seed", seeds([5], range(8)))
def test_where_nothing_is_wrong_with_acknowledgments_no_incident_says_so(seed: int) -> None:
    night = of_night(seed, **SITUATIONS[seed % len(SITUATIONS)])
    assert list(night.wrong_causes()) == []


def test_each_situation_of_connections_is_found_by_a_clock_that_steps() -> None:
    night = of_night(0, **CLOCK_STEP, messages=500, situations=True)
    assert list(night.wrong_findings()) == []
    assert set.union(*night.findings.values()) == OF_CONNECTIONS
    (balanced,) = [scope for scope in night.scopes if "delivered" in scope]
    several = [row for row in night.replayed.findings.to_dicts() if row["kind"] == K.SEVERAL_RECEIVERS]
    assert balanced["source_queue_manager"] in {row["session_id"].split("->")[0] for row in several}
    assert len(several) == 2  # the other one is of senders whose receiver was installed again


def test_a_sender_whose_messages_go_to_receivers_by_turns_did_not_go_back() -> None:
    night = of_night(12, messages=400, situations=True)
    (balanced,) = [scope["source_queue_manager"] for scope in night.scopes if "delivered" in scope]
    found = {(row["outcome"], row["cause"]) for row in night.incidents if row["source_queue_manager"] == balanced}
    assert found == {("repaired", "several_receivers"), ("lost", "several_receivers")}


TOLD_APART = ("cloned, the copy soon silent", "both in one branch")


@pytest.mark.parametrize("seed", seeds([1], range(3)))
@pytest.mark.parametrize("story", merge_needs(TOLD_APART, STORIES))
def test_machines_and_what_goes_on_are_those_of_the_truth(story: str, seed: int) -> None:
    night = of_night(seed, story)
    assert [*night.wrong_outcomes(), *night.wrong_incidents()] == []
    found = [row for scope in night.known for row in night.of(scope)]
    suspected = any(one["suspected"] for row in found for one in row["senders"])
    assert suspected == ("clone" in story or "both" in story)
    assert sum(row["ongoing"] for row in found) >= (story in ("stuck", "both"))
    assert found


def test_an_incident_is_over_when_one_machine_is_silent_and_the_other_began_anew() -> None:
    for seed, is_ongoing in ((0, False), (1, True)):
        found = of_night(seed, "cloned").incidents
        states = {(row["ongoing"], len(row["senders"])) for row in found if row["cause"] == "number_reused"}
        assert states == {(is_ongoing, 2)}


def test_captures_that_begin_with_the_copy_take_the_original_for_it_and_say_to_make_sure() -> None:
    """They begin 55 minutes after all else, when both machines send: nothing in them tells which one is older."""
    night = of_night(2, "cloned", begins_s=3300)
    ((copy, original),) = (scope["senders"] for scope in night.scopes if "senders" in scope)
    assert (copy["is_copy"], original["is_copy"]) == (True, False)
    assert copy["first_ns"] < original["first_ns"] < copy["last_ns"]
    (incident,) = (row for row in night.incidents if row["cause"] == "number_reused")
    assert [(one["address"], one["suspected"]) for one in incident["senders"]] == [
        (copy["address"], False),
        (original["address"], True),
    ]
    assert f" {original['address']}, first seen " in incident["advice"]


def test_a_machine_that_takes_over_is_not_suspected() -> None:
    """Of two addresses that never sent at once, a reader cannot tell whether they are two machines."""
    night = of_night(191, **SITUATIONS[1])
    copies = [one["address"] for scope in night.scopes for one in scope.get("senders", ()) if one["is_copy"]]
    senders = [row["senders"] for row in night.incidents if {one["address"] for one in row["senders"]} & set(copies)]
    assert ["fd00:20::18", "fd00:20::138"] in [[one["address"] for one in of] for of in senders]
    assert not any(one["suspected"] for of in senders for one in of if one["address"] == "fd00:20::138")


@pytest.mark.parametrize("story", merge_needs(["both"], [one for one in STORIES if "clone" in one or "both" in one]))
def test_the_report_lists_what_was_accepted_from_each_machine(tmp_path: Path, story: str) -> None:
    with mock.patch.object(demo, "STORIES", STORIES[story]):
        simulate(str(tmp_path), 1, 0, is_demo=True)
    asked = config(Path("w"), tmp_path / "*.pcap")
    engine = looked_at(asked)
    values = page.values(engine, asked, "w", Names())
    listed = [dict(zip(values["data"]["columns"], row, strict=False)) for row in values["data"]["lists"]["accepted"]]
    found = Counter(row["first_address"] for row in listed)
    reused = [row for row in values["incidents"] if row["cause"] == "number_reused"]
    assert all(found == Counter(row["accepted"]["messages"]) for row in reused)
    assert 0 < found.total() == values["accepted_in_conflict"]
    told = [row for row in summary(engine, "w")["worst_incidents"] if "accepted_from" in row]
    assert [row["incident_id"] for row in told] == [row["incident_id"] for row in reused]
    assert all({one["address"]: one["messages"] for one in row["accepted_from"]} == found for row in told)
    scopes = json.loads((tmp_path / TRUTH).read_text())
    machines = [one for scope in scopes for one in scope.get("senders", ())]
    accepted = {one["address"]: sum(counts[1] for counts in one["sequences"].values()) for one in machines}
    copies = [one["address"] for one in machines if one["is_copy"]]
    assert {one: found[one] for one in copies} == {one: accepted[one] for one in copies}
    assert all(found[one] <= accepted[one] for one in found)  # from the original, before there was a copy
