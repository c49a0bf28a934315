"""Finds out by which clocks the records of a capture have their times, and where these clocks stepped back.

Each interface of each section of a pcapng file has its own clock: of two interfaces, or of files joined by `cat`, one
does not step back because its records stand behind those of the other. A file of the older format names no interface.
Its records come from several clocks if the stretches between the steps cover the same time almost twice: one clock does
that only if it is set back by as long as the capture ran before and runs after that; a pause that is about as long as
the only step back is no time that they cover, as the clock may have gone ahead there. So they do if each stretch begins
at the time of the first record: one clock does that only if it is set back to when the capture began. Files of one
clock that were joined in another order than that of their times are like several clocks: no two of their stretches
cover the same time, and where the end of one meets the beginning of another, no more time passes than between most
records that follow one another.

A clock that is again where it was one record later was wrong, or read wrong, for one record only. Where it was ahead,
that can not be told from a clock that was set back after a quiet time: only from an hour on, the record was wrong.

Where records of several clocks do not stand in the order of their times, these tell their order (`Clocks.by_time`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from udfs.arrow.buffers import Ints
from udfs.capture.records import EARLIEST_NS, NO_TIME, Records

Row = dict[str, Any]
_LEAST_STEP_NS = 500_000_000
_MOST_STEPS = 1_000
_AHEAD_NS = 3_600_000_000_000
"""A clock that is ahead of the record before by more than this, and is not one record later, was read wrong."""
_FARTHEST_NS = -EARLIEST_NS
_COVERED = 1.75
"""Stretches that cover a time more often than this are of several clocks."""
_ONCE_BACK = 2
"""Stretches of a clock that stepped back once."""
_HELD = 3
"""Records that are held until others follow: whether a clock was ahead shows two records later."""
_SAME_BEGIN_NS = 100_000_000
"""Stretches that begin no farther apart are of several clocks, however short some are."""
_JITTER_NS = 1_000_000
"""Records of one clock that follow one another may stand in another order if they are no farther apart."""
_MOST_PIECES = 3
"""Joined files fill at most so many pieces of time, for each stretch: a file in its midst, or where two are missing."""
_SHORTER = 30
"""Of so many pauses one is long: where joined files meet in time, the pause is no longer than the least of these."""
_MOST_PAUSES = 1_000
"""Pauses between records that are kept, the longest ones: another stretch may fill one of them."""


class _Pause(NamedTuple):
    """A time without a record, in ns, in a stretch between two steps back."""

    length_ns: int
    begin_ns: int
    end_ns: int
    stretch: int

    def is_filled_from(self, first_ns: int, stretch: int) -> bool:
        """Tells whether records of another stretch, which begin at that time, may belong into it."""
        return stretch != self.stretch and self.begin_ns - _JITTER_NS < first_ns < self.end_ns - _JITTER_NS


class _Step(NamedTuple):
    """A step at a record of a clock, by `step_ns`: back, negative, or ahead for that record only.

    `before_ns`: the time of the record before. `is_undone`: the next record has a time as if there had been no step.
    """

    frame: int
    step_ns: int
    before_ns: int
    clock: int
    is_undone: bool

    def is_that_of(self, other: "_Step") -> bool:
        """Tells whether this may be how another clock of the same machine shows the same step."""
        if self.is_undone or other.is_undone:
            return False
        return self.before_ns + self.step_ns < other.before_ns and other.before_ns + other.step_ns < self.before_ns


class _Clock:
    """The times of one clock, in ns, in the order of its records."""

    def __init__(self, number: int, frame: int, time_ns: int) -> None:
        """Begins with the place and the time of the first record, which `take` gets as well."""
        self.first_frame = self.last_frame = frame
        self.least_ns = self.most_ns = time_ns
        """The least and the greatest time of a record, but for those that were wrong for one record only."""
        self.steps: list[_Step] = []
        self._number = number
        self._first_ns = time_ns
        self._final_ns = time_ns  # the last time that is known to be right
        self._measured = 0
        self._pauses: list[_Pause] = []
        self._stretches = [(time_ns, time_ns)]  # the first time of each, and the greatest one
        self._back_ns = 0  # sum of the steps back
        self._begins_again = True  # every step went back to the first time
        # The last records, and whether they are right: only those that follow tell whether a record was wrong.
        self._frames, self._times = np.zeros((2, 0), np.int64)
        self._right = np.zeros(0, bool)

    @property
    def is_several(self) -> bool:
        """Tells whether its records have two or more clocks, which nothing names."""
        if not self._back_ns:
            return False
        covered = int(self._times[-1]) - self._first_ns + self._back_ns
        if len(self._stretches) == _ONCE_BACK and 4 * self._pauses[0].length_ns > 3 * self._back_ns:
            covered -= self._pauses[0].length_ns
        is_covered_twice = covered > _COVERED * (self.most_ns - self.least_ns)
        return self._begins_again or is_covered_twice or self._is_joined

    @property
    def has_stepped(self) -> bool:
        """Tells whether its steps are those of one clock: many are not, and far ones are damage.

        64 bits hold every time of the capture after these steps were undone.
        """
        return not self.is_several and 0 < len(self.steps) <= _MOST_STEPS and self._back_ns < _FARTHEST_NS

    def take(self, frames: Ints, times: Ints) -> None:
        """Takes its next records."""
        self.last_frame, held = int(frames[-1]), len(self._times)
        frames, times = np.append(self._frames, frames), np.append(self._times, times)
        right = np.append(self._right, np.ones(len(times) - held, bool))
        judged, counted = max(held - 1, 0), held // _HELD
        steps = np.diff(times[judged:-1], prepend=times[max(judged - 1, 0)])
        for at in (judged + np.flatnonzero(steps < -_LEAST_STEP_NS)).tolist():
            right[self._step(frames, times, at)] = False
        final = times[counted:-2][right[counted:-2]]
        self._measure(final)
        self.least_ns = min(self.least_ns, int(final.min(initial=self.least_ns)))
        self.most_ns = max(self.most_ns, int(final.max(initial=self.most_ns)))
        self._frames, self._times, self._right = frames[-_HELD:], times[-_HELD:], right[-_HELD:]

    def end(self) -> None:
        """Takes the end of the capture: no time follows that differs from the last one."""
        self.take(np.repeat(self._frames[-1:], 2), np.repeat(self._times[-1:], 2))

    def _measure(self, times: Ints) -> None:
        """Takes the next times that are right, to know the stretches between steps back and the longest pauses."""
        last = len(self._stretches) - 1
        if not len(times) or last > _MOST_STEPS:
            return
        self._measured += len(times)
        before = np.append(self._final_ns, times[:-1])
        lengths, self._final_ns = times - before, int(times[-1])
        back = np.flatnonzero(lengths < -_LEAST_STEP_NS)
        least_ns = self._pauses[-1].length_ns if len(self._pauses) == _MOST_PAUSES else 0
        longest = np.flatnonzero(lengths > least_ns)
        if len(longest):
            stretches = last + np.searchsorted(back, longest, "right")
            pauses = np.stack([lengths[longest], before[longest], times[longest], stretches], 1).tolist()
            self._pauses = sorted((*self._pauses, *map(_Pause._make, pauses)), reverse=True)[:_MOST_PAUSES]
        parts = np.split(times, back)
        if len(parts[0]):
            first_ns, end_ns = self._stretches[-1]
            self._stretches[-1] = first_ns, max(end_ns, int(parts[0].max()))
        self._stretches += [(int(part[0]), int(part.max())) for part in parts[1:]]

    @property
    def _is_joined(self) -> bool:
        """Tells whether its records are those of files that were joined in another order than that of their times."""
        begun = [(first, nth) for nth, (first, _) in enumerate(self._stretches)]
        begins, ends = ([stretch[side] for stretch in self._stretches] for side in (0, 1))
        pauses = self._pauses
        while begun:
            filled = {pause for pause in pauses if any(pause.is_filled_from(*one) for one in begun)}
            pauses = [pause for pause in pauses if pause not in filled]
            begun = [(pause.end_ns, pause.stretch) for pause in filled]
            begins += [pause.end_ns for pause in filled]
            ends += [pause.begin_ns for pause in filled]
            if len(begins) > _MOST_PIECES * len(self._stretches):
                return False  # the times of one clock that went twice over the same time alternate as well
        longest_ns = pauses[min(self._measured // _SHORTER, len(pauses) - 1)].length_ns if pauses else 0
        joints = (begin - end for begin, end in zip(sorted(begins)[1:], sorted(ends)[:-1], strict=True))
        return all(-_JITTER_NS < joint <= longest_ns for joint in joints)

    def _step(self, frames: Ints, times: Ints, at: int) -> list[int]:
        """Learns of a step back at a record, and returns which record was wrong for itself only, if one was."""
        before_ns, time_ns, next_ns = times[at - 1 : at + 2].tolist()
        earlier_ns = int(times[at - 2]) if at > 1 else before_ns
        wrong = []
        if before_ns - earlier_ns > _AHEAD_NS and time_ns > earlier_ns - _LEAST_STEP_NS:
            wrong = [at - 1]
        elif next_ns > before_ns - _LEAST_STEP_NS:
            wrong = [at]
        else:
            self._back_ns += before_ns - time_ns
            self._begins_again = self._begins_again and abs(time_ns - self._first_ns) < _SAME_BEGIN_NS
        if len(self.steps) <= _MOST_STEPS:
            where = wrong[0] if wrong else at
            before_ns, time_ns = times[where - 1 : where + 1].tolist()
            self.steps.append(_Step(int(frames[where]), time_ns - before_ns, before_ns, self._number, bool(wrong)))
        return wrong


class Clocks:
    """The clocks of a capture, whose records are taken in the order of the file."""

    def __init__(self) -> None:
        """Begins without records."""
        self.begins_ns: int | None = None
        """Time of the first record that has one."""
        self._clocks: dict[int, _Clock] = {}
        self._last_ns: int | None = None
        self._in_order = True
        self._all_timed = True

    def take(self, records: Records) -> None:
        """Takes the next records."""
        assert records.clock is not None  # noqa: S101 - only those of no capture have none
        timed = np.flatnonzero(records.time_ns != NO_TIME)
        self._all_timed = self._all_timed and len(timed) == len(records.time_ns)
        if not len(timed):
            return
        times, clocks, frames = records.time_ns[timed], records.clock[timed], records.first_frame + timed
        if self.begins_ns is None:
            self.begins_ns = int(times[0])
        steps = np.diff(times, prepend=times[0] if self._last_ns is None else self._last_ns)
        self._in_order = self._in_order and int(steps.min()) >= -_LEAST_STEP_NS
        self._last_ns = int(times[-1])
        if (clocks == clocks[0]).all():
            self._take(int(clocks[0]), frames, times)
            return
        order = np.argsort(clocks, kind="stable")
        for index in np.split(order, np.flatnonzero(np.diff(clocks[order])) + 1):
            self._take(int(clocks[index[0]]), frames[index], times[index])

    def _take(self, clock: int, frames: Ints, times: Ints) -> None:
        if clock not in self._clocks:
            self._clocks[clock] = _Clock(clock, int(frames[0]), int(times[0]))
        self._clocks[clock].take(frames, times)

    def end(self) -> None:
        """Takes the end of the capture; only then the properties are known."""
        for clock in self._clocks.values():
            clock.end()

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Returns the least and the greatest time of its clocks; None where no record has a time."""
        clocks = self._clocks.values()
        return (min(one.least_ns for one in clocks), max(one.most_ns for one in clocks)) if clocks else None

    @property
    def by_time(self) -> bool:
        """Tells whether records of several clocks stand in another order than that of their times."""
        are_several = len(self._clocks) > 1 or any(clock.is_several for clock in self._clocks.values())
        return are_several and self._all_timed and not self._in_order

    @property
    def steps(self) -> list[Row] | None:
        """Returns rows (frame, step_ns) whose sum up to a record says by how much its clock is behind.

        None without any, and where they are too many.
        """
        found: list[Row] = []
        for clocks in self._in_parts():
            if behind_ns := -sum(row["step_ns"] for row in found):
                found.append({"frame": clocks[0].first_frame, "step_ns": behind_ns})
            for step in _steps_of(clocks):
                found.append({"frame": step.frame, "step_ns": step.step_ns})
                if step.is_undone:
                    found.append({"frame": step.frame + 1, "step_ns": -step.step_ns})
        return found if 0 < len(found) <= 2 * _MOST_STEPS else None

    def _in_parts(self) -> Iterator[list[_Clock]]:
        """Yields clocks whose records stand among each other, from one end of the file to the other."""
        part: list[_Clock] = []
        for clock in sorted(self._clocks.values(), key=lambda clock: clock.first_frame):
            if part and clock.first_frame > max(one.last_frame for one in part):
                yield part
                part = []
            part.append(clock)
        if part:
            yield part


def _steps_of(clocks: Sequence[_Clock]) -> list[_Step]:
    """Returns the steps of these clocks, in order of records, those of one machine that several of them show once.

    A clock shows less of a step the longer it was not read before: the one that shows the most is nearest to the truth.
    """
    found: list[_Step] = []
    shown_by: list[set[int]] = []
    for step in sorted(step for clock in clocks if clock.has_stepped for step in clock.steps):
        same = [at for at, one in enumerate(found) if step.clock not in shown_by[at] and step.is_that_of(one)]
        if same:
            one = found[same[0]]
            found[same[0]] = one._replace(step_ns=min(one.step_ns, step.step_ns))
            shown_by[same[0]].add(step.clock)
        else:
            found.append(step)
            shown_by.append({step.clock})
    return found


def behind_at(frames: Ints, steps: Sequence[Row]) -> Ints:
    """Returns by how many ns the clock is behind at each record, given the rows (frame, step_ns) of `Clocks.steps`."""
    at = np.array([step["frame"] for step in steps], np.int64)
    behind = np.cumsum([0, *(-step["step_ns"] for step in steps)])
    found: Ints = behind[np.searchsorted(at, frames, "right")]
    return found
