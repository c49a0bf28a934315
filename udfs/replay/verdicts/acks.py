"""Holds acknowledgments while messages are compared with them, one piece of the messages after another."""

import numpy as np
import pandas as pd
import pyarrow as pa

from udfs.frames.groups import NONE, NUMBERS, Bools, Ints, columns_of, group_of, numbers

GROUP = ("pair_no", "sequence")
NEVER = np.iinfo(np.int64).max
_READ = ("number", "ns", "message_class", "message_no")


def read_acks(acks: pa.Table, group: Ints) -> pd.DataFrame:
    """Returns `group`, `number`, `ns`, `message_class` (NONE for an OrderAck), `message_no`, and nothing `reached`."""
    return numbers(acks, *_READ).assign(group=group, reached=-1)


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
    and this one. It is right once all times of the group are learnt, and then messages need to know nothing of each
    other.
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
            known = self.all.acks.assign(reached=self._reached)
            self._index(pd.concat([known[known["group"] == self._first], *self._new], ignore_index=True))
            self._new = []

    def _index(self, acks: pd.DataFrame) -> None:
        acks = acks.sort_values(["group", "ns", "number", "message_class"], ignore_index=True)
        is_order = acks["message_class"] == NONE
        self.all, self.orders = InTime(acks), InTime(acks[is_order].reset_index(drop=True))
        self._reached = acks["reached"].to_numpy(copy=True)
        by_number = self.orders.acks[["group", "number", "ns"]].sort_values(["group", "number"], ignore_index=True)
        backwards = by_number[::-1]
        self._earliest = backwards["ns"].groupby(backwards["group"]).cummin()[::-1].to_numpy()
        self._number_group, self._number = by_number["group"].to_numpy(), _key(by_number)
        finals = acks[~is_order].groupby(["group", "number", "message_no"], as_index=False).last()
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
        """Learns from `group`, `ns` and `number` of messages that moved the state."""
        group, ns, number = columns_of(messages, "group", "ns", "number")
        place = self.all.first_from(group, ns)
        np.maximum.at(self._reached, place[place >= 0], number[place >= 0])

    def had_reached(self, group: Ints, number: Ints, ns: Ints) -> Bools:
        """Returns whether messages had moved the state to each number or beyond at the time of an acknowledgment."""
        known = self.all.group * NUMBERS
        so_far = np.append(np.maximum.accumulate(known + self._reached + 1) - known - 1, -1)
        return so_far[self.all.first_from(group, ns)] >= number


def _key(rows: pd.DataFrame) -> Ints:
    found: Ints = rows["group"].to_numpy(np.int64) * NUMBERS + rows["number"].to_numpy(np.int64)
    return found


def _in_group(place: Ints, of_places: Ints, group: Ints) -> Ints:
    """Returns the places, -1 for those that are not of the group."""
    return np.where(np.append(of_places, -1)[place] == group, place, -1)
