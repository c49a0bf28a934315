"""What a reader of the report can choose, and the timeline of its incidents, in a browser."""

import csv
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import page_rows
import pytest
from browser import CHROMIUM, Browser
from page_rows import ADDRESSES, COPY, HUB, NORTH, SOUTH, WEST


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page_rows.page())
    return file


@pytest.fixture
def shown(browser: Browser, file: Path) -> Iterator[Browser]:
    browser.open(file.with_suffix(".html"))
    browser.run("location.hash = ''")
    yield browser
    assert browser.complaints() == []


def choose(browser: Browser, bar: str = "message-filters", **wanted: str) -> None:
    for by, value in wanted.items():
        browser.run(
            f"(() => {{ const field = document.querySelector('#{bar} [data-by={by}]');"
            f"field.value = {json.dumps(value)};"
            "field.dispatchEvent(new Event('input')); })()"
        )


def seen(browser: Browser, chosen: str, text: str = "textContent") -> list[Any]:
    """A property of all such elements that take room on the page."""
    return list(
        browser.run(
            f"[...document.querySelectorAll({json.dumps(chosen)})]"
            f".filter(one => one.checkVisibility()).map(one => one.{text})"
        )
    )


def labels(browser: Browser, list_: str) -> list[str]:
    """The labels of the messages of a list that can be seen, those found beyond it last."""
    rows = seen(browser, f"#{list_} tbody tr", "innerText")
    return [word.split()[0] for row in rows for _, _, word in [row.partition("order ")] if word]


def test_incidents_are_bands_the_worst_first_over_the_time_that_they_lasted(shown: Browser) -> None:
    bars = seen(shown, ".bands .bar", "getBoundingClientRect().toJSON()")
    over = shown.run("document.querySelector('#over-time .u-over').getBoundingClientRect().toJSON()")
    assert len(bars) == 2  # the third was repaired, and is folded
    lost, stuck = bars
    assert stuck["left"] < lost["left"]
    assert abs(lost["right"] - over["right"]) < 3  # both still go on
    assert abs(stuck["right"] - over["right"]) < 3
    share = (lost["left"] - over["left"]) / over["width"]
    assert abs(share - 45 / 80) < 0.03  # of the time from the first to the last arrival
    said = seen(shown, ".bands a", "innerText.replace(/\\s+/g, ' ')")
    assert said[0].startswith("2 lost, West → Hub: 08:25:00 on, still so")
    assert said[1].startswith("40 stuck, 1 more pending, South → Hub: 08:05:00 on, still so")
    shown.run("document.getElementById('repaired-bands').open = true")
    shown.run("new Promise(done => setTimeout(done, 100))")
    *_, repaired = seen(shown, ".bands .bar", "getBoundingClientRect().toJSON()")
    assert repaired["right"] < stuck["left"]
    assert seen(shown, ".bands a", "innerText")[2].endswith("07:42:00 to 07:43:00")


def test_a_band_is_a_link_to_the_card_by_keyboard_and_for_a_screen_reader(shown: Browser) -> None:
    nodes = [node for node in shown.ask("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    links = [node["name"]["value"] for node in nodes if node["role"]["value"] == "link"]
    assert "40 stuck, 1 more pending, South → Hub: 08:05:00 on, still so" in links
    shown.run("document.querySelector('details.incident[id$=\"2222\"]').open = false")
    shown.run("document.querySelectorAll('.bands a')[1].focus()")
    shown.press("Enter")
    shown.run("new Promise(done => setTimeout(done, 300))")
    assert shown.run("location.hash") == f"#incident-{'2' * 16}"
    assert shown.run("document.querySelector('details.incident[id$=\"2222\"]').open")


def test_lost_pending_and_accepted_have_axes_of_their_own(shown: Browser) -> None:
    titles = seen(shown, "#over-time .u-title")
    assert titles == ["Refused, of lost messages", "Refused, of pending and stuck messages", "Accepted"]
    said = shown.run("document.querySelector('#over-time .plots').getAttribute('aria-label')")
    counts = "2 of lost messages, 9\u202f040 of pending and stuck ones, 500 accepted."
    assert counts in said


@pytest.mark.parametrize(("scheme", "colour"), [("light", "rgb(207, 34, 46)"), ("dark", "rgb(255, 128, 120)")])
def test_bands_have_the_colours_of_their_severity(shown: Browser, scheme: str, colour: str) -> None:
    shown.colours(scheme)
    assert shown.run("getComputedStyle(document.querySelector('.bands .bar.error')).borderLeftColor") == colour
    shown.colours("light")


@pytest.mark.parametrize(
    ("machine", "lost", "pending", "incidents"),
    [
        pytest.param("west", 2, 0, 1, id="name"),
        pytest.param(WEST[:8].upper(), 2, 0, 1, id="a part of a GUID"),
        pytest.param("spare", 1, 0, 1, id="the name of one address"),
        pytest.param(COPY, 1, 0, 1, id="the address of one machine"),
        pytest.param(ADDRESSES[WEST], 1, 0, 1, id="that of the other"),
        pytest.param(SOUTH, 0, 41, 1, id="GUID"),
        pytest.param(ADDRESSES[SOUTH], 0, 41, 1, id="IPv6"),
        pytest.param(HUB, 2, 41, 3, id="the receiver"),
        pytest.param("hub", 2, 41, 3, id="the name of the receiver"),
        pytest.param(NORTH, 0, 0, 1, id="nothing lost"),
    ],
)
def test_a_machine_finds_all_that_belongs_to_it(
    shown: Browser, machine: str, lost: int, pending: int, incidents: int
) -> None:
    choose(shown, managers=machine)
    found = f"{lost + pending or 'none'} of 43 rows"
    assert shown.run("document.getElementById('messages-filtered').textContent") == found
    matching = shown.run("[...document.querySelectorAll('section.messages .matching')].map(one => one.textContent)")
    assert matching == [f"{lost or 'None'} of 2 match.", f"{pending or 'None'} of 41 match."]
    assert shown.run("document.querySelectorAll('details.incident:not([hidden])').length") == incidents
    assert shown.run("document.querySelectorAll('.bands > li:not([hidden])').length") == incidents


def test_the_two_machines_of_a_clone_are_told_apart(shown: Browser) -> None:
    """What took the number came first, from the other machine."""
    choose(shown, managers=ADDRESSES[WEST])
    assert labels(shown, "lost") == ["1"]
    choose(shown, managers="Spare")
    assert labels(shown, "lost") == ["2"]


@pytest.mark.parametrize("queue", ["stock", "SHELVES", "hub\\private$\\stock"])
def test_a_queue_finds_messages_beyond_the_list_and_incidents_with_several_queues(shown: Browser, queue: str) -> None:
    assert labels(shown, "pending") == ["2", "3", "4", "5"]
    choose(shown, "incident-filters", queue=queue)
    assert shown.run("document.querySelector('#message-filters [data-by=queue]').value") == queue
    assert seen(shown, "details.incident", "id") == [f"incident-{'1' * 16}"]
    assert seen(shown, ".bands a", "hash") == [f"#incident-{'1' * 16}"]
    assert labels(shown, "pending") == ["40", "41"]
    assert seen(shown, "#pending .found caption") == ["More that match, without what proves it"]
    assert shown.run("document.querySelector('#pending .save span').textContent") == "As CSV, the 2 that match:"
    shown.run("window.written = []; navigator.clipboard.writeText = async text => { window.written.push(text); }")
    shown.run("document.querySelector('#pending .save button').click()")
    (text,) = shown.run("window.written")
    assert [row["label"] for row in csv.DictReader(text.splitlines())] == ["order 40", "order 41"]
    choose(shown, queue="")
    assert labels(shown, "pending") == ["2", "3", "4", "5"]
    assert shown.run("document.querySelector('#pending .save span').textContent") == "As CSV, all 41:"


def test_messages_are_chosen_by_severity_and_outcome(shown: Browser) -> None:
    figures = {"error": 42, "warning": 1, "info": 0, "displaced": 2, "awaited": 1, "pending": 40, "stuck": 40, "": 43}
    for kind, many in figures.items():
        choose(shown, kind=kind)
        said = shown.run("document.getElementById('messages-filtered').textContent")
        assert said == (f"{many or 'none'} of 43 rows" if kind else ""), kind
    options = shown.run("[...document.querySelectorAll('#message-filters option')].map(one => one.value)")
    assert options == ["", "error", "warning", "info", "displaced", "awaited", "pending", "stuck"]


def test_a_saved_list_names_the_machine_that_each_message_came_from(shown: Browser) -> None:
    shown.run("window.written = []; navigator.clipboard.writeText = async text => { window.written.push(text); }")
    shown.run("document.querySelector('#lost .save button').click()")
    (text,) = shown.run("window.written")
    assert [row["first_address"] for row in csv.DictReader(text.splitlines())] == [ADDRESSES[WEST], COPY]


@pytest.mark.parametrize("wanted", [{}, {"queue": "stock"}, {"managers": COPY}, {"kind": "stuck"}])
def test_on_a_phone_nothing_is_cut_off_and_what_is_not_chosen_is_not_seen(
    browser: Browser, file: Path, wanted: dict[str, str]
) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    browser.open(file)
    choose(browser, **wanted)
    width = browser.run("document.documentElement.scrollWidth")
    hidden = browser.run("[...document.querySelectorAll('tr[hidden]')].filter(one => one.checkVisibility()).length")
    words = seen(browser, ".bands .said", "getBoundingClientRect().toJSON()")
    bars = seen(browser, ".bands .bar", "getBoundingClientRect().toJSON()")
    browser.ask("Emulation.clearDeviceMetricsOverride")
    assert (width, hidden) == (390, 0)
    assert all(one["left"] >= 0 and one["right"] <= 390 for one in words + bars)
    assert all(above["bottom"] <= below["top"] + 1 for above, below in itertools.pairwise(words))
