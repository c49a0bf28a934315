"""A reader of the report's page searches, sorts, keeps what was chosen in its address, and needs no mouse."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pages
import polars as pl
import pytest
from browser import Browser
from pages import LISTED, LOST, PENDING, Tables, hostile, names_of, report, small_report
from test_page import choose, open_all, saved, seen, wait
from tiers import merge_needs

_MODULES = (os.environ.get("NODE_PATH", ""), f"{sys.prefix}/node_modules")
_PLACES = (Path(one) / "axe-core" / "axe.min.js" for one in _MODULES if one)
AXE = next((place for place in _PLACES if place.exists()), None)
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, morning: Tables) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    with mock.patch.object(pages, "LISTED", 12):  # some of each list are folded
        file.write_text(small_report(morning, names_of(morning)), encoding="utf-8")
    return file


def search(browser: Browser, text: str) -> str:
    """What the page says that it found."""
    choose(browser, "search", search=text)
    return str(browser.run("document.getElementById('found').textContent"))


def last_order(tables: Tables) -> str:
    """The number of an order that is pending and of which the page shows no row at first."""
    labels = tables["outcomes"].filter(pl.col("outcome") == "pending").sort("first_seen_at")["label"]
    return str(labels[-1]).rpartition(" ")[2]


def column(browser: Browser, list_: str, number: int) -> list[str]:
    """The texts of a column in all tables of a list, folded ones too."""
    cells = f"[...document.querySelectorAll('#{list_} .list tbody tr')].map(row => row.cells[{number}].textContent)"
    return list(browser.run(cells))


def test_an_order_is_found_in_what_is_folded_and_in_what_is_not_shown(shown: Browser, morning: Tables) -> None:
    order = last_order(morning)
    assert order not in "".join(seen(shown, "#pending tbody tr"))
    assert "1 pending or still awaited" in search(shown, order)
    assert order in "".join(seen(shown, "#pending .found tbody tr"))
    assert [row["label"].rpartition(" ")[2] for row in saved(shown, "pending")] == [order]
    assert seen(shown, "#lost tbody tr") == []
    lost = morning["outcomes"].filter(pl.col("outcome") == "displaced").sort("first_seen_at").row(0, named=True)
    found = search(shown, lost["label"].upper())
    assert found.startswith("Found: 1 incident, 1 lost")
    assert len(seen(shown, "#incidents details.incident[open]")) == 1
    # The whole ID of a message, of which its cell shows the first part only; in any order.
    assert "1 lost" in search(shown, f"{lost['label']} {lost['message_id']}")
    assert "lost" not in search(shown, "no such order")
    assert "Not on this page." in search(shown, "no such order")
    search(shown, "")
    assert len(saved(shown, "pending")) == PENDING
    assert len(seen(shown, "#lost .list tbody tr")) == LISTED


def test_a_search_closes_again_what_it_opened(shown: Browser) -> None:
    folded = shown.run("[...document.querySelectorAll('main details')].map(one => one.open)")
    search(shown, "order")
    assert shown.run("[...document.querySelectorAll('main details')].map(one => one.open)") != folded
    search(shown, "")
    assert shown.run("[...document.querySelectorAll('main details')].map(one => one.open)") == folded


def test_what_was_chosen_is_in_the_address_and_taken_from_it(browser: Browser, file: Path) -> None:
    browser.open(file)
    choose(browser, queue="stock")
    choose(browser, kind="warning")
    search(browser, "order 1")
    address = browser.run("location.hash")
    assert address == "#?search=order+1&queue=stock&kind=warning"
    found = [len(saved(browser, name)) for name in ("lost", "pending")]
    browser.run("location.hash = '#sessions'")  # as a link does
    wait(browser)
    assert browser.run("location.hash") == f"#sessions{address[1:]}"
    browser.run("document.querySelector('#message-filters .clear').click()")
    assert browser.run("location.hash") == "#sessions"
    browser.run(f"location.hash = {address!r}")
    wait(browser)
    assert [len(saved(browser, name)) for name in ("lost", "pending")] == found
    fields = browser.run("[...document.querySelectorAll('[data-by=queue]')].map(one => one.value)")
    assert fields == ["stock", "stock"]
    browser.run("location.hash = '#lost?outcome=displaced'")
    wait(browser)
    assert seen(browser, ".matching") == [f"{LOST} of {LOST} match."]
    browser.run("location.hash = '#%?search=%E0%A4%A&new=%&kind=<img src=x>'")
    wait(browser)
    assert browser.complaints() == []


def test_a_head_cell_sorts_its_table_by_keyboard_and_a_third_time_as_it_was(shown: Browser) -> None:
    before = column(shown, "lost", 2)
    shown.run("document.querySelectorAll('#lost .list th button')[2].focus()")
    heads = "[...document.querySelectorAll('#lost .list th')].map(one => one.ariaSort).filter(Boolean)"
    sorts = []
    for _ in range(3):
        shown.press("Enter")
        sorts.append((column(shown, "lost", 2), shown.run(heads)))
    tables = 2  # the first rows, and those that are folded: they are sorted together
    assert sorts[0] == (sorted(before, key=lambda text: text.lower()), ["ascending"] * tables)
    assert sorts[1] == (sorts[0][0][::-1], ["descending"] * tables)
    assert sorts[2] == (before, [])
    assert len(seen(shown, "#lost .list tbody tr")) == LISTED


def test_numbers_are_sorted_as_numbers_also_in_what_a_filter_found(shown: Browser) -> None:
    choose(shown, kind="stuck")
    shown.run("document.querySelectorAll('#pending .found th button')[1].click()")
    numbers = shown.run(
        "[...document.querySelectorAll('#pending .found tbody tr')].map(row => Number(row.cells[1].textContent))"
    )
    assert numbers == sorted(numbers)
    assert (numbers[0] < 20, numbers[-1] > 100) == (True, True)


def test_local_time_stands_beside_utc(browser: Browser, file: Path) -> None:
    browser.open(file)
    assert browser.run("document.querySelectorAll('.local').length") == 0  # where that is UTC
    browser.ask("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
    browser.open(file)
    card = browser.run("document.querySelector('details.incident .facts dd').innerText")
    answer = browser.run("document.querySelector('.answer').innerText")
    zone = browser.run("document.getElementById('zone').textContent")
    browser.ask("Emulation.setTimezoneOverride", timezoneId="Pacific/Auckland")
    browser.open(file)
    far = browser.run("document.querySelector('details.incident .facts dd').innerText")
    browser.ask("Emulation.setTimezoneOverride", timezoneId="")
    assert card.startswith("since 2026-03-03 08:24:26 (13:54:26), ")
    assert "lost since 2026-03-03 08:24:26 UTC (13:54:26), " in answer
    assert "of this browser, Asia/" in zone
    assert far.startswith("since 2026-03-03 08:24:26 (21:24:26), ")


def test_a_phone_shows_incidents_first_and_folds_what_is_long(browser: Browser, file: Path) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", **PHONE)
    browser.open(file)
    folded = browser.run("document.querySelectorAll('details.part:not([open])').length")
    cards = browser.run("document.querySelectorAll('details.incident[open]').length")
    height = browser.run("document.documentElement.scrollHeight")
    browser.run("document.querySelector('.answer a[data-outcome=displaced]').click()")
    wait(browser)
    rows = seen(browser, "#lost tbody tr")
    browser.ask("Emulation.clearDeviceMetricsOverride")
    assert (folded, cards) == (6, 1)
    assert height < 8 * PHONE["height"]
    assert rows


def test_without_scripts_all_can_be_read_and_nothing_pretends_to_work(browser: Browser, file: Path) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(file, drawn=False)
    controls = seen(browser, "input, select, th button")
    rows, sections = seen(browser, "#lost tbody tr"), seen(browser, "main h2")
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert controls == []
    assert len(rows) == LISTED
    assert sections[-1] == "Words"


def days_later(tables: Tables) -> Tables:
    """The same tables, and captures of the next day that hold nothing of what happened."""
    captures = tables["captures"].to_dicts()
    shift = datetime(2026, 3, 4, tzinfo=UTC) - datetime(2026, 3, 3, tzinfo=UTC)
    times = {name: captures[0][name] + shift for name in ("first_captured_at", "last_captured_at", "ingested_at")}
    added = captures[0] | times | {"capture_id": "next", "uri": "next.pcap", "message_count": 7}
    return {**tables, "captures": pl.DataFrame([*captures, added], tables["captures"].schema)}


def test_what_goes_on_from_earlier_nights_is_listed_and_days_are_compared(
    browser: Browser, file: Path, morning: Tables
) -> None:
    later = file.with_name("later.html")
    later.write_text(report(hostile(days_later(morning)), since="2026-03-03 23:00:00"), encoding="utf-8")
    browser.open(later)
    assert "1 incident of earlier nights still goes on." in browser.run("document.querySelector('.answer').innerText")
    browser.run("document.querySelector('.answer a[href=\"#earlier\"]').click()")
    wait(browser)
    (card,) = seen(browser, "#earlier details.incident", "innerText")
    assert "104 stuck" in card
    rows = browser.run("[...document.querySelectorAll('#trend tbody tr')].map(row => row.textContent.trim())")
    assert [row[:10] for row in rows] == ["2026-03-04", "2026-03-03"]
    assert rows[0].replace("\n", "") == "2026-03-0400007"
    assert browser.run("[...document.querySelectorAll('#trend rect')].map(one => one.getAttribute('width'))") == [
        "0.0",
        "120.0",
    ]
    assert browser.complaints() == []


@pytest.mark.skipif(AXE is None, reason="there is no axe-core here: npm install --prefix .venv axe-core")
@pytest.mark.parametrize(("scheme", "phone"), merge_needs([("dark", True)], [("dark", True), ("light", False)]))
def test_axe_finds_no_violation(browser: Browser, file: Path, scheme: str, *, phone: bool) -> None:
    assert AXE is not None
    browser.colours(scheme)
    if phone:
        browser.ask("Emulation.setDeviceMetricsOverride", **PHONE)
    browser.open(file)
    open_all(browser)
    browser.run(f"{AXE.read_text(encoding='utf-8')}; 0")
    found = browser.run(
        "axe.run(document, {resultTypes: ['violations']}).then(({violations}) =>"
        "violations.map(({id, nodes}) => `${id}: ${nodes[0].html}`))"
    )
    browser.ask("Emulation.clearDeviceMetricsOverride")
    browser.colours("light")
    assert found == []
