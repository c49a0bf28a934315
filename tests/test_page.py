"""A browser shows the report's page, and its filters choose incidents and messages."""

import csv
import itertools
import json
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from pages import (
    ACCEPTED,
    COPY,
    HOSTILE,
    LISTED,
    LOST,
    ORDERS,
    ORIGINAL,
    PENDING,
    STOCK,
    Tables,
    limited_report,
    names_of,
    small_report,
)
from tiers import merge_needs

from jobs.cli.logs import printable


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, morning: Tables) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(small_report(morning, names_of(morning)))
    return file


@pytest.fixture(scope="module")
def hostile_file(file: Path, morning: Tables) -> Path:
    hostile_file = file.with_name("hostile.html")
    hostile_file.write_text(limited_report(morning))
    return hostile_file


def wait(browser: Browser) -> None:
    """Waits until what was asked for is drawn: its events come before the next frame."""
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")


def open_all(browser: Browser) -> None:
    for _ in range(2):  # sessions, and then the tables that their pictures have
        browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        wait(browser)


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


def saved(browser: Browser, list_: str) -> list[dict[str, str]]:
    """The rows that the button of a list copies as CSV."""
    browser.run("window.written = []; navigator.clipboard.writeText = async text => { window.written.push(text); }")
    browser.run(f"document.querySelector('#{list_} .save button').click()")
    (text,) = browser.run("window.written")
    return list(csv.DictReader(text.splitlines()))


def drawn_pixels(browser: Browser, scheme: str) -> set[str]:
    """The colours in the first picture."""
    browser.colours(scheme)
    wait(browser)
    return set(
        browser.run(
            "(() => { const canvas = document.querySelector('figure.picture canvas');"
            "const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
            "const seen = new Set();"
            "for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) seen.add(data.slice(i, i + 3).join());"
            "return [...seen]; })()"
        )
    )


def test_hostile_text_stays_text_that_can_be_seen_copied_and_found_and_asks_the_network_for_nothing(
    browser: Browser, hostile_file: Path
) -> None:
    asked = len(browser.requests())
    browser.open(hostile_file)
    open_all(browser)
    assert browser.run("document.querySelectorAll('figure.picture .u-wrap').length") >= 2
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.scripts.length") == 3
    assert printable(HOSTILE) in browser.run("document.querySelector('.finding').textContent")
    allowed = {"\n", "\u202f"}  # between lines, and between thousands
    for text in (hostile_file.read_text(), browser.run("document.documentElement.outerHTML")):
        assert {c for c in unescape(text) if not c.isprintable()} <= allowed
    tables = browser.run("[...document.querySelectorAll('figure.picture tbody')].map(one => one.textContent).join('')")
    assert printable(HOSTILE).rpartition("/")[2] in tables  # of the names of files
    browser.run("document.querySelector('details.incident .command button.copy').click()")
    copied = browser.run("document.querySelector('details.incident .command code').dataset.copy")
    assert copied.isprintable()
    words = subprocess.run(["/bin/bash", "-c", f"printf '%s\\n' {copied}"], check=True, capture_output=True).stdout
    assert words.decode().partition("-r\n")[2].endswith(f"{HOSTILE}\n")
    for queue in (f"orders{HOSTILE}", f"orders{printable(HOSTILE)}"):
        choose(browser, queue=queue)
        assert browser.run("document.querySelectorAll('details.incident:not([hidden])').length") == 2
    assert browser.requests()[asked:] == [hostile_file.absolute().as_uri()]
    assert browser.complaints() == []


def test_the_figure_of_a_machine_leads_to_the_messages_accepted_from_it(shown: Browser) -> None:
    link = f'#incidents a[data-machine="{COPY}"]'
    shown.run(f"document.querySelector('{link}').click()")
    wait(shown)
    assert seen(shown, "#accepted tbody tr")
    rows = saved(shown, "accepted")
    assert shown.run(f"document.querySelector('{link}').textContent") == f"{len(rows)} messages"
    assert len(rows) > LISTED
    assert "of 4 listed" not in shown.run("document.getElementById('incidents-filtered').textContent")
    assert {row["first_address"] for row in rows} == {COPY}
    assert all(row["label"].startswith("West order ") for row in rows)
    assert seen(shown, ".matching") == [f"{len(rows)} of {ACCEPTED} match."]  # no other list is filtered
    assert len(saved(shown, "lost")) == LOST
    shown.run("document.querySelector('#accepted .clear').click()")
    assert len(saved(shown, "accepted")) == ACCEPTED
    choose(shown, managers=ORIGINAL)
    assert {row["first_address"] for row in saved(shown, "accepted")} == {ORIGINAL}
    shown.run("document.querySelector('#message-filters .clear').click()")
    assert len(saved(shown, "accepted")) == ACCEPTED


@pytest.mark.parametrize(
    ("outcome", "list_", "match"),
    [("displaced", "lost", f"{LOST} of {LOST}"), ("stuck", "pending", f"104 of {PENDING}")],
)
def test_the_figure_of_an_outcome_leads_to_its_messages(shown: Browser, outcome: str, list_: str, match: str) -> None:
    shown.run(f"document.querySelector('.answer a[data-outcome={outcome}]').click()")
    wait(shown)
    assert shown.run("location.hash") == f"#{list_}?outcome={outcome}"
    assert seen(shown, ".matching") == [f"{match} match."]


def test_pictures_are_drawn_in_light_and_dark(shown: Browser) -> None:
    open_all(shown)
    green, red = {"light": "26,127,55", "dark": "86,211,100"}, {"light": "207,34,46", "dark": "255,128,120"}
    bars = {"light": "rgb(207, 34, 46)", "dark": "rgb(255, 128, 120)"}
    for scheme in ("dark", "light"):
        assert {green[scheme], red[scheme]} <= drawn_pixels(shown, scheme)
        colour = shown.run("getComputedStyle(document.querySelector('.bands .bar.error')).borderLeftColor")
        assert colour == bars[scheme]


def test_a_screen_reader_and_a_keyboard_find_all(shown: Browser) -> None:
    open_all(shown)
    names: dict[str, list[str]] = {}
    for node in shown.ask("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"]:
            names.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    assert len(names["main"]) == len(names["banner"]) == len(names["contentinfo"]) == len(names["navigation"]) == 1
    headings = {"What became of the messages", "Incidents", "Findings", "Sessions", "Pictures", "What cannot be known"}
    assert headings <= set(names["heading"])
    assert any(name.startswith("Sequence number over time") and "out of order" in name for name in names["group"])
    assert all(names["image"])
    levels = shown.run("[...document.querySelectorAll('h1, h2, h3')].map(heading => Number(heading.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    shown.run("document.querySelector('figure.picture .plots').focus()")
    shown.press("ArrowRight")
    readout = "document.querySelector('figure.picture .readout').textContent"
    assert re.search(r": number \d+ of sequence \d+, previous \d+: \w+", shown.run(readout))
    shown.press("ArrowRight", modifiers=8)
    assert re.search(r"(duplicate|out of order); .*frame \d+ of ", shown.run(readout))


def test_links_lead_to_what_they_name(shown: Browser) -> None:
    shown.press("Tab")
    assert shown.run("document.activeElement.textContent") == "Skip to the incidents"
    shown.run("document.querySelector('#session-table a[href=\"#session-2\"]').click()")
    wait(shown)
    assert shown.run("document.querySelectorAll('#session-2[open] canvas').length") >= 2
    shown.run("document.querySelector('.answer a[href=\"#expired_unseen\"]').click()")
    wait(shown)
    assert len(seen(shown, "#expired_unseen > details[open] tbody tr")) == 1
    card = shown.run("document.querySelectorAll('details.incident')[1].id")
    shown.run(f"document.getElementById('{card}').open = false")
    shown.run("document.querySelectorAll('.bands a')[1].focus()")
    shown.press("Enter")
    wait(shown)
    assert shown.run("location.hash") == f"#{card}"
    assert shown.run(f"document.getElementById('{card}').open")
    shown.run("document.getElementById('filter').focus()")
    shown.ask("Input.insertText", text="10.20.0.2")
    assert len(seen(shown, "#session-table tbody tr")) == 1


def test_incidents_are_bands_the_worst_first_over_the_time_that_they_lasted(shown: Browser) -> None:
    bars = seen(shown, ".bands .bar", "getBoundingClientRect().toJSON()")
    over = shown.run("document.querySelector('#over-time .u-over').getBoundingClientRect().toJSON()")
    lost, stuck = bars  # those that were repaired are folded
    assert stuck["left"] < lost["left"] < lost["right"] < stuck["right"]
    assert abs(stuck["right"] - over["right"]) < 3  # it still goes on
    words = seen(shown, ".bands a", "innerText.replace(/\\s+/g, ' ')")
    assert words[0].startswith("21 lost, West → Hub: 08:24:26 to 08:39:37")
    assert re.match(r"104 stuck, 21 more pending or awaited, \w+ → Hub: 08:05:33 on, not over", words[1])
    titles = seen(shown, "#over-time .u-title")
    assert titles[:3] == ["Refused, of lost messages", "Refused, of pending and stuck messages", "Accepted"]


def test_the_card_of_an_incident_says_where_since_when_which_machines_and_what_to_do(shown: Browser) -> None:
    card = re.sub(r"\s+", " ", shown.run("document.querySelector('details.incident').innerText"))
    assert "What to do: Two machines have one queue manager GUID. 10.20.0.123, first seen " in card
    assert f"{ORDERS}, {STOCK} (Shelves)" in card
    assert re.search(r"10\.20\.0\.3 2026-03-03 07:\d\d:\d\d", card)
    assert "10.20.0.123 (Spare) seen later" in card
    assert re.search(r"Filter: frame\.number == \d+ copy", card)
    ongoing = re.sub(r"\s+", " ", shown.run("document.querySelectorAll('details.incident')[1].innerText"))
    assert "not known to be over: last seen" in ongoing


FILTERS: tuple[tuple[str, str, int | None, int, int], ...] = (
    ("managers", "west", LOST, 0, 1),
    ("managers", COPY, None, 0, 1),  # some of the lost ones: those that it sent itself
    ("managers", "hub", LOST, PENDING, 4),
    ("managers", "cd43b96c", 0, 0, 2),
    ("queue", "SHELVES", 0, 2, 3),
    ("queue", "hub\\private$\\stock", 0, 2, 3),
    ("queue", "no such queue", 0, 0, 0),
    ("kind", "error", LOST, 104, 4),
    ("kind", "warning", 0, PENDING - 104, 4),
    ("kind", "displaced", LOST, 0, 4),
    ("kind", "awaited", 0, 1, 4),
    ("severity", "info", LOST, PENDING, 2),
)


@pytest.mark.parametrize(
    ("by", "value", "lost", "pending", "incidents"),
    merge_needs([FILTERS[at] for at in (0, 1, 5, 6, 8, 9, 11)], FILTERS),
)
def test_filters_choose_messages_beyond_those_listed_incidents_and_their_bands(
    shown: Browser, by: str, value: str, lost: int | None, pending: int, incidents: int
) -> None:
    choose(shown, "incident-filters" if by == "severity" else "message-filters", **{by: value})
    found = [len(saved(shown, name)) for name in ("lost", "pending")]
    assert found == [lost, pending] if lost is not None else 0 < found[0] < LOST
    assert shown.run("document.querySelectorAll('details.incident:not([hidden])').length") == incidents
    assert shown.run("document.querySelectorAll('.bands > li:not([hidden])').length") == incidents
    if by == "severity":
        assert len(seen(shown, "#repaired[open] details.incident")) == incidents  # which are folded otherwise
    if by == "queue":
        assert shown.run("document.querySelector('#incident-filters [data-by=queue]').value") == value
        assert len(seen(shown, "#pending .found tbody tr")) == pending
        assert f"As CSV, the {pending} that match:" in seen(shown, "#pending .save span")


def test_a_saved_list_holds_nothing_that_a_spreadsheet_takes_for_a_formula(
    browser: Browser, file: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "saved.html"
    changed.write_text(file.read_text().replace('"South order ', '"=South order '))
    browser.open(changed)
    rows = saved(browser, "pending")
    assert len(rows) == PENDING
    assert all(row["label"].startswith("'=South order ") for row in rows if row["label"])


@pytest.mark.parametrize("wanted", merge_needs([{"queue": "stock"}], [{}, {"queue": "stock"}]))
def test_on_a_phone_nothing_is_cut_off_and_what_is_not_chosen_is_not_seen(
    browser: Browser, file: Path, wanted: dict[str, str]
) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    browser.open(file)
    open_all(browser)
    choose(browser, **wanted)
    width = browser.run("document.documentElement.scrollWidth")
    hidden = browser.run("[...document.querySelectorAll('tr[hidden]')].filter(one => one.checkVisibility()).length")
    words = seen(browser, ".bands .said", "getBoundingClientRect().toJSON()")
    bars = seen(browser, ".bands .bar", "getBoundingClientRect().toJSON()")
    browser.ask("Emulation.clearDeviceMetricsOverride")
    assert (width, hidden) == (390, 0)
    assert all(one["left"] >= 0 and one["right"] <= 390 for one in words + bars)
    assert all(above["bottom"] <= below["top"] + 1 for above, below in itertools.pairwise(words))
