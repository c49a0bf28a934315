"""Simulates queue managers: writes captures of their traffic, and the truth that a replay must reach.

Senders number, resend and expire transactional messages by [MS-MQQB] 3.1.1.5 and 3.1.1.6, and sometimes fail to;
receivers accept, acknowledge and read them; some senders are behind a router. `truth` judges every captured message
with the contract's table of verdicts, in a loop that shares no code with the replay. A capture may lose frames, begin
in the middle of connections and end early; the truth then is what the remaining bytes allow to be said. Connection
set-ups are never lost, so the truth knows which queue managers a reader can name.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random

from jobs.cli.config import Form
from jobs.simulator import demo
from jobs.simulator.branches import BRANCHES, RANDOM_FAULTS, SITUATIONS, TROUBLES, Branch, Fault
from jobs.simulator.capture import SETTLED_NS, Blindness, RingBuffer, Tap
from jobs.simulator.events import SECOND, Events, Faults
from jobs.simulator.forms import rewrite
from jobs.simulator.managers import Receiver, Router, Sender
from jobs.simulator.near_end import NearEnd
from jobs.simulator.network import Network
from jobs.simulator.troubles import TroubledSender
from jobs.simulator.truth import TRUTH, Truth
from jobs.simulator.world import World
from schemas.replay import FindingKind

__all__ = ["BRANCHES", "CAPTURE_PREFIX", "NAMES", "START_NS", "TRUTH", "simulate"]

START_NS = 1_772_438_400 * SECOND  # 2026-03-02 08:00 UTC
CAPTURE_PREFIX = "simulated"
NAMES = "names.toml"
"""Name of the file, beside the captures, with the names of the demonstration's queue managers and queues."""
_STAGGER_NS = 7_000_000
_HEADERS = 500  # bytes that a message takes beside its body, roughly
_FILES, _SMALLEST_FILE, _LARGEST_FILE = 4, 256 << 10, 1 << 30
_MESSAGES_PER_SENDER, _MOST_SENDERS = 5_000, 240
_RECEIVERS = 2
_SHARED, _BALANCED = 7, 8
"""Numbers, in their address, of receivers that are not alone there."""
_FEWEST_IN_TROUBLE = 12  # messages, of which half are acknowledged before some troubles begin
_STEP_AFTER_NS = 20 * SECOND
_SKEW_NS, _NEAR_LOSS = 7 * SECOND, 0.01


def simulate(
    out: str,
    seed: int,
    messages: int,
    *,
    bodies: tuple[int, int] = (100, 4_000),
    disorder: float = 0.1,
    file_bytes: int | None = None,
    nanoseconds: bool = True,
    loss: float = 0.0,
    begins_s: int = 0,
    ends_s: int | None = None,
    largest_sender: float = 0.0,
    situations: bool = False,
    troubles: bool = False,
    mirrored: bool = False,
    both_ends: bool = False,
    clock_step_s: float = 0.0,
    encapsulation: str = "plain",
    is_demo: bool = False,
    form: str = Form.PLAIN,
) -> None:
    """Writes captures of `messages` transactional messages, and truth.json, to the folder `out`.

    The same arguments write the same bytes; files of an earlier run are replaced. `bodies`: bytes of the smallest and
    the largest message body. `disorder`: share of transactions, and of segments, that have a fault. `file_bytes`:
    approximate size of one file of the ring buffer. `loss`: share of frames that the capture misses. `begins_s`,
    `ends_s`: seconds after the first traffic between which the capture runs. `largest_sender`: share of all messages
    that the first sender sends; 0 gives every sender the same. `situations`: add senders that are cloned, that go back
    to a snapshot, whose receiver was refusing when the capture began or stops taking packets for a while, that fail to
    connect, whose messages are returned, whose receiver is not alone at its address, or alternates with another one
    there, and whose acknowledgments go to another address. `troubles`: add senders that get no acknowledgments, each
    for another reason, one whose acknowledgments fall, and one whose messages nobody reads any more; each sends some,
    whatever `messages` says. `mirrored`: every frame is captured twice. `both_ends`: captures of the senders' end as
    well, before address translation, by a clock that is 7 s ahead, which loses some frames. `clock_step_s`: from 20 s
    on, the capture's clock is off by so many seconds. `encapsulation`: how the captures hold each frame, one of
    `jobs.simulator.encapsulations`. `is_demo`: tell the story of `jobs.simulator.demo`, which decides messages, bodies,
    disorder and senders, and write a file of their names, too. `form`: how the captures are written, see
    `jobs.simulator.forms`.

    Memory grows by about 200 bytes a message.
    """
    start_ns = START_NS
    if is_demo:
        start_ns, messages, bodies, disorder = demo.START_NS, demo.MESSAGES, demo.BODIES, demo.DISORDER
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob(f"{CAPTURE_PREFIX}_*.pcap*"):
        earlier.unlink()
    if file_bytes is None:
        whole = messages * (sum(bodies) // 2 + _HEADERS)
        file_bytes = min(max(whole // _FILES, _SMALLEST_FILE), _LARGEST_FILE)
    blindness = Blindness(
        loss,
        start_ns + begins_s * SECOND if begins_s else 0,
        None if ends_s is None else start_ns + ends_s * SECOND,
    )
    rng = Random(seed)  # noqa: S311 - reproducible traffic, no secrets
    events = Events(start_ns)
    truth = Truth(folder)
    step = start_ns + _STEP_AFTER_NS, int(clock_step_s * SECOND)
    with ExitStack() as files:
        files.enter_context(truth.files)
        ring = RingBuffer(
            folder,
            CAPTURE_PREFIX,
            file_bytes,
            nanoseconds=nanoseconds,
            mirrored=mirrored,
            clock_step=step,
            encapsulation=encapsulation,
        )
        files.callback(ring.close)
        tap = Tap(ring, Random(seed + 1), blindness)  # noqa: S311 - the same
        if both_ends:
            near_ring = RingBuffer(
                folder, f"{CAPTURE_PREFIX}_near", file_bytes, nanoseconds=nanoseconds, encapsulation=encapsulation
            )
            files.callback(near_ring.close)
            tap.near_end = NearEnd(near_ring, Random(seed + 2), skew_ns=_SKEW_NS, loss=_NEAR_LOSS)  # noqa: S311 - the same
        world = World(rng, events, Network(events, rng, tap, disorder), truth, bodies, step[0] if clock_step_s else 0)
        if is_demo:
            (folder / NAMES).write_text(demo.populate(world), encoding="utf-8")
        else:
            branches = BRANCHES + SITUATIONS * situations + TROUBLES * troubles
            _populate(world, branches, messages, largest_sender, Faults(rng, disorder, RANDOM_FAULTS))
        tap.at_end = partial(events.after, 2 * SETTLED_NS, events.stop)  # by then its packets are delivered and judged
        events.run()
        # Nothing tells a clock's step forward from a time in which packets waited.
        truth.write(with_outcomes=blindness.is_whole, with_findings=blindness.is_whole and clock_step_s <= 0)
    if form != Form.PLAIN:
        rewrite(folder, CAPTURE_PREFIX, form, seed + 3)


def _populate(
    world: World, branches: Sequence[Branch], messages: int, largest_sender: float, faults: Faults[Fault]
) -> None:
    """Starts the senders, which together send `messages` transactional messages, and the routers they need."""
    rng, events = world.rng, world.events
    receivers = [Receiver(rng, events, index) for index in range(_RECEIVERS)]
    routers = [Router(world, index, receiver) for index, receiver in enumerate(receivers)]
    named_ns = max(START_NS, world.begins_ns)
    for router in routers:
        events.at(named_ns, router.link.connect)
    shared = [Receiver(rng, events, _SHARED) for branch in branches if branch.shares_address]
    balanced = [Receiver(rng, events, _BALANCED) for branch in branches if branch.is_balanced for _ in range(2)]
    count = min(max(len(branches), messages // _MESSAGES_PER_SENDER), _MOST_SENDERS)
    first = int(messages * largest_sender)
    for index in range(count):
        quota = (messages - first) // count + (index < (messages - first) % count) + (first if index == 0 else 0)
        branch = branches[index % len(branches)]
        if branch.trouble is not None:
            enough = max(quota, _FEWEST_IN_TROUBLE)
            troubled = TroubledSender(world, index, routers[0], enough, branch, branch.trouble)
            events.at(named_ns + (index + 1) * _STAGGER_NS, troubled.start)
        elif quota:
            at = index // 2 % _RECEIVERS
            own = balanced if branch.is_balanced else shared if branch.shares_address else []
            receiver = own.pop() if own else receivers[at]
            beside = own.pop() if own and branch.is_balanced else None
            sender = Sender(world, faults, index, receiver, routers[at], quota, branch=branch, beside=beside)
            if branch.shares_address and receiver is not receivers[at]:
                sender.find(FindingKind.SEVERAL_RECEIVERS)
            start_ns = named_ns if sender.branch.needs_names else START_NS
            events.at(start_ns + (index + 1) * _STAGGER_NS, sender.start)
