"""The report's page: what was found, in one HTML file that asks no network for anything.

Everything that comes from a capture is text here: the template escapes it, the data of the pictures are JSON without
`<`, `>` and `&`, and a content security policy lets nothing run but this package's own scripts, by their hashes.
"""

import base64
import hashlib
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

_PAGE = resources.files("jobs.report_page")
_FILES = (
    *("uplot/uPlot.iife.min.js", "uplot/uPlot.min.css", "uplot/LICENSE"),
    *("report.js", "report.css", "report.html"),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def files() -> list[str]:
    """The texts of the files that a page is made of."""
    return [_PAGE.joinpath(name).read_text(encoding="utf-8") for name in _FILES]


def moment(ns: int | None) -> str:
    """Nanoseconds since 1970 as UTC to the microsecond, as captures have it."""
    if ns is None:
        return "no time"
    return f"{_EPOCH + timedelta(microseconds=ns // 1000):%Y-%m-%d %H:%M:%S.%f}"


def second(ns: int | None) -> str:
    """The same to the second."""
    return moment(ns)[:19]


def number(value: float | None) -> str:
    """A count with its thousands set off by a space that does not break; a dash for none."""
    return "\u2013" if value is None else f"{value:,}".replace(",", "\u202f")


def share(part: int, whole: int) -> str:
    """A percentage that says 100 % or 0 % only where that is exact."""
    if whole <= 0 or part in (0, whole):
        return "0 %" if whole > 0 and part == 0 else "100 %"
    return f"{min(max(100 * part / whole, 0.01), 99.99):.2f} %"


def percent(fraction: float | None) -> str:
    """A share between 0 and 1, with the same care; a dash for none."""
    return "\u2013" if fraction is None else share(round(fraction * 10**6), 10**6)


def words(code: str | None) -> str:
    """A code of the tables as words."""
    return (code or "").replace("_", " ")


def in_wireshark(uri: str | None, frame: int | None) -> str:
    """The command that opens a capture at a frame; nothing for none."""
    return f"wireshark -g {frame} -r {shlex.quote(uri)}" if uri and frame else ""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def render(found: Mapping[str, Any], mark: str = "") -> str:
    """The page that shows what was found (`arrange.page`), its head with the mark; equal input makes equal text."""
    library, library_style, licence, script, style, template = files()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"moment": moment, "second": second, "number": number, "percent": percent, "words": words}
    environment.globals |= {"share": share, "in_wireshark": in_wireshark}
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; "
        f"style-src {_hash(library_style)} {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    own = {"library": library, "library_style": library_style, "script": script, "style": style}
    return environment.from_string(template).render(found, mark=mark, policy=policy, licence=licence, own=own)
