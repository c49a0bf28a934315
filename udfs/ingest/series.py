"""Finds where the clock stepped back between two files of a series, as a ring buffer of Wireshark or dumpcap writes."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

from udfs.capture.names import OF_SERIES

Row = dict[str, Any]
_LEAST_STEP_NS = 1_000_000_000
"""Records of several interfaces may stand in two files by less."""
_MOST_STEP_NS = 3_600_000_000_000
"""Times that are farther apart are of files that were not written one after the other, or damaged."""
_NAMED = re.compile(OF_SERIES)


def with_steps_between(new: Sequence[Row], known: Iterable[Row]) -> list[Row]:
    """Returns rows of `new` captures, whose `clock_steps` tell of a step back before their first record, too.

    A file that begins before the one with the number before it ended was written after the clock was set back. So were
    those that follow, up to one whose first record is in time as it is. `known` captures (uri, first_ns, last_ns,
    clock_steps) were read before, and may be read again. A series in which a number comes twice is left as it is:
    nothing tells the order of its files.
    """
    series: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    names = {capture["uri"] for capture in new}
    for capture in chain(new, (one for one in known if one["uri"] not in names)):
        if capture["first_ns"] is not None and (name := _NAMED.match(capture["uri"])):
            series[name["series"]][int(name["number"])].append(capture)
    behind: dict[str, int] = {}
    for numbered in series.values():
        if max(map(len, numbered.values())) == 1:
            files = [capture for _, (capture,) in sorted(numbered.items())]
            behind |= _behind_at_start(files, names)
    return [_with_first_step(capture, behind.get(capture["uri"], 0)) for capture in new]


def _behind_at_start(files: Sequence[Row], new: Collection[str]) -> dict[str, int]:
    """Returns by how much the clock is behind where each file of a series begins, by URI; `files` are in order.

    Those that are not `new` say it in their first step.
    """
    found: dict[str, int] = {}
    behind, ended_ns = 0, None
    for capture in files:
        steps = capture["clock_steps"] or []
        if capture["uri"] not in new:
            behind = -sum(step["step_ns"] for step in steps if step["frame"] == 1)
        elif ended_ns is not None:
            back_ns = ended_ns - capture["begins_ns"]
            if back_ns <= _LEAST_STEP_NS:
                behind = 0
            elif _LEAST_STEP_NS < back_ns - behind <= _MOST_STEP_NS:
                behind = back_ns
        found[capture["uri"]] = behind
        ended_ns = capture["last_ns"] // 1_000 * 1_000 + behind  # as the tables have it
        within = -sum(step["step_ns"] for step in steps if step["frame"] != 1)
        behind += within if abs(within) <= _MOST_STEP_NS else 0
    return found


def _with_first_step(capture: Row, behind_ns: int) -> Row:
    if not behind_ns:
        return capture
    return capture | {"clock_steps": [{"frame": 1, "step_ns": -behind_ns}, *(capture["clock_steps"] or [])]}
