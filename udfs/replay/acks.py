"""Holds acknowledgments while messages are compared with them, one piece of the messages after another."""

import numpy as np
import pandas as pd
import pyarrow as pa

from udfs.replay.groups import NONE, NUMBERS, Bools, Ints, begins, columns_of, group_of, numbers

GROUP = ("pair_no", "sequence")
NEVER = np.iinfo(np.int64).max
_READ = ("number", "ns", "message_class", "message_no")
_LEARNT = {"reached": -1, "last_ns": NONE, "last_number": NONE}
"""What an acknowledgment has before any message was compared with it."""


def read_acks(acks: pa.Table, group: Ints) -> pd.DataFrame:
    """Returns `group`, `number`, `ns`, `message_class` (NONE for an OrderAck), `message_no`, and nothing learnt."""
    return numbers(acks, *_READ).assign(group=group, **_LEARNT)


class InTime:
    """Finds acknowledgments, which are in order of group and time, by their time."""

    def __init__(self, acks: pd.DataFrame) -> None:
        """Takes the acknowledgments."""
        self.acks, self.group = acks, acks["group"].to_numpy(np.int64)
        self._times = np.unique(acks["ns"])
        self._key = self._key_of(self.group, acks["ns"].to_numpy())

    def first_from(self, group: Ints, ns: Ints) -> Ints:
        """Returns the place of the first of each group from each time on; -1 for none."""
        return _in_group(np.searchsorted(self._key, self._key_of(group, ns)), self.group, group)

    def _key_of(self, group: Ints, ns: Ints) -> Ints:
        return group * (len(self._times) + 1) + np.searchsorted(self._times, ns)


class Acks:
    """Holds the acknowledgments of the groups at hand, and what the times of messages tell of each.

    `reached` is the highest number to which a message moved the state, or may have, between the acknowledgment before
    and this one; `last_ns` and `last_number` name the last message between them. They are right once all times of the
    group are learnt, and then messages need to know nothing of each other.
    """

    def __init__(self) -> None:
        """Begins before all groups."""
        self._last_key: list[int] = []
        self._first = self._last = 0
        none = pa.table({name: pa.array([], pa.int64()) for name in _READ})
        self._new = [read_acks(none, np.zeros(0, np.int64))]
        self._index(self._new[0])

    def begin(self, rows: pd.DataFrame) -> Ints:
        """Returns the number of each row's group in a further piece, and forgets all groups but the first of them."""
        goes_on = rows.iloc[0].to_list() == self._last_key
        groups = group_of(rows, *GROUP) + self._last + (not goes_on)
        if groups[0] != self._first:
            self._new = [acks[acks["group"] == groups[0]] for acks in self._new]
        self._last_key, self._first, self._last = rows.iloc[-1].to_list(), int(groups[0]), int(groups[-1])
        return groups

    def add(self, acks: pd.DataFrame) -> None:
        """Adds acknowledgments of the piece; those of a group all come before its messages."""
        if len(acks):
            self._new.append(acks)

    def put_in_order(self) -> None:
        """Prepares the acknowledgments that were added for messages."""
        if self._new:
            known = self.all.acks.assign(reached=self._reached, last_ns=self._last_ns, last_number=self._last_number)
            self._index(pd.concat([known[known["group"] == self._first], *self._new], ignore_index=True))
            self._new = []

    def _index(self, acks: pd.DataFrame) -> None:
        is_order = acks["message_class"] == NONE
        by = ["group", "ns", "number", "is_order", "message_class"]
        acks = acks.assign(is_order=is_order).sort_values(by, ignore_index=True)
        self._is_order = acks.pop("is_order").to_numpy()
        self.all, self.orders = InTime(acks), InTime(acks[self._is_order].reset_index(drop=True))
        self._reached, self._last_ns, self._last_number = (acks[name].to_numpy(copy=True) for name in _LEARNT)
        group, ns, number = columns_of(acks, "group", "ns", "number")
        self._time = np.cumsum(begins(group, ns)) - 1 if len(acks) else group
        self._place = self._time * NUMBERS + number
        by_number = self.orders.acks[["group", "number", "ns"]].sort_values(["group", "number"], ignore_index=True)
        backwards = by_number[::-1]
        self._earliest = backwards["ns"].groupby(backwards["group"]).cummin()[::-1].to_numpy()
        self._number_group, self._number = by_number["group"].to_numpy(), _key(by_number)
        finals = acks[~self._is_order].groupby(["group", "number", "message_no"], as_index=False).last()
        self._finals, self._final = finals, _key(finals)

    def first_from_number(self, group: Ints, number: Ints) -> Ints:
        """Returns when an OrderAck of each group first named each number or a higher one; NEVER for none."""
        place = np.searchsorted(self._number, group * NUMBERS + number)
        return np.append(self._earliest, NEVER)[_in_group(place, self._number_group, group)]

    def finals_from(self, group: Ints, number: Ints) -> pd.DataFrame:
        """Returns the last FinalAck of each group, number and message ID, from the least to the greatest of these."""
        wanted = group * NUMBERS + number
        low, high = np.searchsorted(self._final, wanted.min()), np.searchsorted(self._final, wanted.max(), "right")
        return self._finals[low:high].reset_index(drop=True)

    def learn(self, messages: pd.DataFrame) -> None:
        """Learns from `group`, `ns` and `number` of messages, and whether each `moved` the state."""
        group, ns, number, moved = columns_of(messages, "group", "ns", "number", "moved")
        place = self.all.first_from(group, ns)
        moved &= place >= 0
        np.maximum.at(self._reached, place[moved], number[moved])
        place = self._next(group, ns, number)
        ns, number, place = ns[place >= 0], number[place >= 0], place[place >= 0]
        order = np.lexsort((number, ns, place))
        ns, number, place = ns[order], number[order], place[order]
        last = np.append(place[1:] != place[:-1], True)[: len(place)]
        ns, number, place = ns[last], number[last], place[last]
        is_later = (ns > self._last_ns[place]) | ((ns == self._last_ns[place]) & (number > self._last_number[place]))
        self._last_ns[place[is_later]], self._last_number[place[is_later]] = ns[is_later], number[is_later]

    def had_reached(self, group: Ints, number: Ints, ns: Ints) -> Bools:
        """Returns whether messages had moved the state to each number or beyond at the time of an acknowledgment."""
        known = self.all.group * NUMBERS
        so_far = np.append(np.maximum.accumulate(known + self._reached + 1) - known - 1, -1)
        return so_far[self.all.first_from(group, ns)] >= number

    def next_packet(self, group: Ints, ns: Ints, number: Ints) -> Ints:
        """Returns the place of the OrderAck that directly follows each message; -1 where another packet does."""
        place = self._next(group, ns, number)
        follows = np.append(self._is_order, False)[place]
        for values, own in ((self._last_ns, ns), (self._last_number, number)):
            follows &= np.append(values, NONE)[place] == own
        return np.where(follows, place, -1)

    def _next(self, group: Ints, ns: Ints, number: Ints) -> Ints:
        """Returns the place of the acknowledgment after each message; of equal time and number, messages come first."""
        first = self.all.first_from(group, ns)
        is_then = np.append(self.all.acks["ns"].to_numpy(), NONE)[first] == ns
        wanted = np.append(self._time, -1)[first] * NUMBERS + np.where(is_then, number, 0)
        place = np.searchsorted(self._place, wanted)
        return np.where(first < 0, -1, _in_group(place, self.all.group, group))


def _key(rows: pd.DataFrame) -> Ints:
    found: Ints = rows["group"].to_numpy(np.int64) * NUMBERS + rows["number"].to_numpy(np.int64)
    return found


def _in_group(place: Ints, of_places: Ints, group: Ints) -> Ints:
    """Returns the places, -1 for those that are not of the group."""
    return np.where(np.append(of_places, -1)[place] == group, place, -1)
