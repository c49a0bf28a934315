"""Expressions that rooms share."""

import polars as pl
import pytest

from udfs.frames.columns import address_of_stream, address_reached


@pytest.mark.parametrize(
    ("stream", "sender", "receiver"),
    [
        ("10.20.0.7:52174>10.0.0.1:1801#0", "10.20.0.7", "10.0.0.1"),
        ("[2001:db8::7]:61005>[fd00::2]:1801#12", "2001:db8::7", "fd00::2"),
        ("[fd00::1]:1801>[2001:db8:0:1::9]:61005#0", "fd00::1", "2001:db8:0:1::9"),
        ("session.0>", None, None),
    ],
)
def test_a_stream_names_the_addresses_of_both_ends(stream: str, sender: str | None, receiver: str | None) -> None:
    rows = pl.DataFrame({"stream_id": [stream]}).select(sender=address_of_stream(), receiver=address_reached())
    assert rows.row(0) == (sender, receiver)
