"""Arrow arrays from numpy buffers."""

import numpy as np
import pytest

from udfs.arrow.buffers import read_at, slices

BUFFER = np.frombuffer(b"abcdefgh", np.uint8)


def test_slices_keep_the_order_of_their_starts() -> None:
    """An empty slice may lie anywhere."""
    found = slices(BUFFER, np.array([5, 0, 99, 2, 3]), np.array([3, 2, 0, 1, 0]))
    assert found.to_pylist() == [b"fgh", b"ab", b"", b"c", b""]


@pytest.mark.parametrize(("starts", "lengths"), [([0, 1], [2, 2]), ([6], [3]), ([-1], [2])])
def test_slices_that_overlap_or_leave_the_buffer_are_refused(starts: list[int], lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        slices(BUFFER, np.array(starts), np.array(lengths))


def test_values_are_read_at_any_byte() -> None:
    assert read_at(BUFFER, ">u2", np.array([6, 1])).tolist() == [0x6768, 0x6263]
