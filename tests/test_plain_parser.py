"""Compares what packets decode to with a parser that only the tests have."""

import random
from itertools import combinations

from plain_parser import parse
from random_packets import PARTS, any_packet, each_alone, stored, tables, user_message
from worked_examples import EXAMPLES, PUBLISHED


def test_both_decoders_and_a_third_one_agree_with_and_without_bodies() -> None:
    """On the worked packets, a packet per combination of optional headers, and as many random ones of any type."""
    rng = random.Random(1)
    chosen = [parts for count in range(len(PARTS) + 1) for parts in combinations(PARTS, count)]
    packets = [*EXAMPLES.values(), PUBLISHED, *(user_message(rng, parts) for parts in chosen)]
    packets += [any_packet(rng) for _ in chosen]
    whole = [(packet, None, len(packet)) for packet in packets]
    rows = tables(whole)
    assert tables([stored(packet) for packet in packets]) == each_alone(whole) == rows
    for packet, row in zip(packets, rows, strict=True):
        plain = parse(packet)
        expected = {name: plain.get(name) for name in row if name != "violations"}
        assert {name: row[name] for name in expected} == expected, packet.hex()
        assert row["packet_type"] not in ("user_message", "administration") or set(plain) <= set(row), packet.hex()
