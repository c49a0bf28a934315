"""Renders the report as one HTML file that needs no network.

Text from captures cannot become markup: the template escapes it, the data of the pictures are JSON without `<`, `>` and
`&`, and a content security policy allows only this package's own scripts, by their hashes. Characters that cannot be
seen, or that reorder others, are written as escapes.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from jinja2.filters import do_mark_safe
from markupsafe import escape

from jobs.cli.logs import in_shell, printable
from jobs.cli.names import Names
from jobs.report_page.arrange import short_id

_PAGE = resources.files("jobs.report_page")
_FILES = (
    *("uplot/uPlot.iife.min.js", "uplot/uPlot.min.css", "uplot/LICENSE"),
    *("report.js", "tables.js", "lists.js", "filters.js", "report.css", "report.html"),
)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def files() -> list[str]:
    """Returns the texts of the files that a page consists of."""
    return [_PAGE.joinpath(name).read_text(encoding="utf-8") for name in _FILES]


def moment(ns: int | None) -> str:
    """Returns nanoseconds since 1970 as UTC, to the microsecond."""
    if ns is None:
        return "no time"
    return f"{_EPOCH + timedelta(microseconds=ns // 1000):%Y-%m-%d %H:%M:%S.%f}"


def second(ns: int | None) -> str:
    """Returns nanoseconds since 1970 as UTC, to the second."""
    return moment(ns)[:19]


def at(ns: int | None, *, exact: bool = False) -> str:
    """Returns nanoseconds since 1970 as UTC, to the second or exactly, as an element that gets local time beside it."""
    return "no time" if ns is None else _element(moment(ns) if exact else second(ns))


def with_times(text: str) -> str:
    """Returns a sentence of this program as markup, with its times in such elements."""
    return do_mark_safe(_TIME.sub(lambda found: _element(found[1], " UTC"), str(escape(printable(text)))))


def _element(text: str, zone: str = "") -> str:
    return do_mark_safe(f'<time datetime="{text.replace(" ", "T")}Z">{text}{zone}</time>')


def number(value: float | None) -> str:
    """Returns a count with narrow spaces between thousands; a dash for none."""
    return do_mark_safe("\u2013" if value is None else f"{value:,}".replace(",", "\u202f"))


def share(part: int, whole: int) -> str:
    """Returns a percentage that is 100 % or 0 % only where that is exact."""
    if whole <= 0 or part in (0, whole):
        return "0 %" if whole > 0 and part == 0 else "100 %"
    return f"{min(max(100 * part / whole, 0.01), 99.99):.2f} %"


def percent(fraction: float | None) -> str:
    """Returns a fraction between 0 and 1 as `share` does; a dash for none."""
    return "\u2013" if fraction is None else share(round(fraction * 10**6), 10**6)


def words(code: str | None) -> str:
    """Returns a code of the tables as words."""
    return (code or "").replace("_", " ")


def sent_from(witness: str) -> str:
    """Returns the address that the stream of a witness comes from."""
    return witness.partition(">")[0].rpartition(":")[0].strip("[]")


def in_wireshark(uri: str | None, frame: int | None) -> str:
    """Returns the command that opens a capture at a frame; an empty text for none."""
    return f"wireshark -g {frame} -r {in_shell(uri)}" if uri and frame else ""


def visible(value: Any) -> Any:
    """Returns what the template writes for a value: a text of the tables with its invisible characters as escapes."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def render(found: Mapping[str, Any], mark: str = "", names: Names | None = None) -> str:
    """Returns the page for the values of `arrange.page`, with the mark in its head; equal input makes equal text.

    `names` stand beside the originals.
    """
    names = names or Names()
    library, library_style, licence, *scripts, style, template = files()
    script = f'"use strict";\n(() => {{\n{"".join(scripts)}}})();\n'
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; "
        f"style-src {_hash(library_style)} {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    found = {**found, "data": found["data"] | _named(found["data"], names)}
    own = {"library": library, "library_style": library_style, "script": script, "style": style}
    return _compiled(template).render(found, names=names, mark=mark, policy=policy, licence=licence, own=own)


@cache
def _compiled(template: str) -> Template:
    """Returns the template with the functions that it uses; to compile it takes as long as to make a page."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=visible
    )
    environment.filters |= {"moment": moment, "second": second, "number": number, "percent": percent, "words": words}
    environment.filters |= {"at": at, "with_times": with_times}
    environment.filters |= {"short_id": short_id, "sent_from": sent_from}
    environment.globals |= {"share": share, "in_wireshark": in_wireshark}
    return environment.from_string(template)


def _named(data: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Returns the machines of saved messages with the names that they have, and the names of their queues."""
    queue = data["columns"].index("destination_queue")
    queues = {row[queue] for rows in data["lists"].values() for row in rows}
    machines = [text.split(" ") for text in data["machines"]]
    return {
        "machines": [" ".join(filter(None, (*of, *map(names.queue_manager, of)))) for of in machines],
        "queue_names": {name: said for name in sorted(filter(None, queues)) if (said := names.queue(name))},
    }
