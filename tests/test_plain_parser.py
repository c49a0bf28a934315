"""Compares the batch decoder and the one-packet decoder with a third parser, which only the tests use.

By hand, over as many packets as you like: `python tests/test_plain_parser.py 100000`.
"""

import random
import sys
from itertools import combinations

from one_packet import decode_packet
from plain_parser import parse
from random_packets import PARTS, any_packet, stored, tables, user_message
from worked_examples import EXAMPLES, PUBLISHED

COMBINATIONS = [parts for count in range(len(PARTS) + 1) for parts in combinations(PARTS, count)]


def three_agree(packets: list[bytes]) -> None:
    """With and without bodies."""
    without_bodies = [stored(packet) for packet in packets]
    in_batch = tables([(packet, None, len(packet)) for packet in packets])
    assert tables(without_bodies) == in_batch
    for packet, without_body, together in zip(packets, without_bodies, in_batch, strict=True):
        alone = decode_packet(packet, None, len(packet))
        assert isinstance(alone, dict), (packet.hex(), alone)
        assert decode_packet(*without_body) == alone, packet.hex()
        assert together == {name: alone[name] for name in together}, packet.hex()
        plain = parse(packet)
        expected = {name: plain.get(name) for name in alone if name != "violations"}
        assert {name: value for name, value in alone.items() if name != "violations"} == expected, packet.hex()
        assert set(plain) <= set(alone), packet.hex()


def some(seed: int) -> list[bytes]:
    """Returns one packet per combination of optional headers, and as many random packets of any type."""
    rng = random.Random(seed)
    packets = [user_message(rng, parts) for parts in COMBINATIONS]
    return packets + [any_packet(rng) for _ in COMBINATIONS]


def test_three_readers_agree_on_the_worked_packets() -> None:
    three_agree([*EXAMPLES.values(), PUBLISHED])


def test_three_readers_agree_on_every_combination_of_headers() -> None:
    three_agree(some(1))


if __name__ == "__main__":
    for seed in range(1 << 32):
        three_agree(some(seed))
        read = 2 * (seed + 1) * len(COMBINATIONS)
        print(f"{read} packets agree", flush=True)  # noqa: T201 - the result
        if read >= int(sys.argv[1]):
            break
