"""Tells the story of `simulate --scenario demo`: a morning of three branches that send to a hub.

Tuesday 2026-03-03, 07:30 to 09:10 UTC. An acknowledgment is lost on the way to North, an order of North expires before
it is sent, a message of South vanishes at 08:05, so that the hub refuses all that follow, and West is cloned at
08:24.
"""

from dataclasses import replace

from jobs.simulator.branches import Branch, Fault, Habits
from jobs.simulator.events import SECOND, Events, Faults
from jobs.simulator.managers import Receiver, Router, Sender
from jobs.simulator.world import World
from schemas.wire import QueueType

START_NS = 1_772_523_000 * SECOND  # 2026-03-03 07:30 UTC
DISORDER = 0.004
"""Share of TCP segments that have a fault."""
BODIES = 300, 1_200
MESSAGES = 600

_MINUTE = 60 * SECOND
_END_NS = 100 * _MINUTE
_BOOTED_S = 1_772_402_400  # 2026-03-01 22:00 UTC, TxSequenceID.TimeStamp of the first branch
_HABITS = Habits((1, 1, 2, 3), 0.7, 0.0, (60 * SECOND, 200 * SECOND), 0.0, 0.0)
_DIRECT = QueueType.DIRECT

STORIES: tuple[tuple[Branch, tuple[tuple[int, Fault], ...], int], ...] = (
    (
        Branch((_DIRECT, _DIRECT), ("orders", "stock"), "North order ", numbered_per_queue=True),
        ((12, Fault.NOT_ACKNOWLEDGED), (21, Fault.EXPIRED)),
        220,
    ),
    (Branch((_DIRECT,), ("orders",), "South order "), ((35, Fault.VANISHED),), 200),
    (Branch((_DIRECT,), ("orders",), "West order ", is_cloned=True, cloned_after=3 / 4), (), 200),
)
"""The branches, minutes after the start each with its fault, and how many messages each sends."""


class _Script(Faults[Fault]):
    """Lets each fault of a list strike once, at the first chance after its time."""

    def __init__(self, events: Events, *planned: tuple[int, Fault]) -> None:
        """Takes minutes after the start, in order, each with its fault."""
        self._events = events
        self._planned = list(planned)

    def strike(self) -> Fault | None:
        """Returns the next fault once its time has come."""
        if self._planned and self._events.now >= START_NS + self._planned[0][0] * _MINUTE:
            return self._planned.pop(0)[1]
        return None


def populate(world: World) -> str:
    """Starts the hub and its branches, and ends the simulation at 09:10; returns a names file of them."""
    events = world.events
    hub = Receiver(world.rng, events, 0)
    router = Router(world, 0, hub)  # none of the branches needs it
    hub_address = str(hub.addresses[4])
    managers = {str(hub.guid): "Hub", hub_address: "Hub"}
    queues = {rf"DIRECT=OS:hub\private$\{name}": name.capitalize() for name in ("orders", "stock")}
    for index, (branch, planned, quota) in enumerate(STORIES):
        script = _Script(events, *planned)
        sender = Sender(
            world, script, index, hub, router, quota, branch=replace(branch, habits=_HABITS, timestamp=_BOOTED_S)
        )
        events.after((index + 1) * _MINUTE, sender.start)
        name, address = branch.label.split()[0], str(sender.link.address)
        managers |= {str(sender.guid): name, address: name}
    events.at(START_NS + _END_NS, events.stop)
    tables = {"queue_managers": managers, "queues": queues}
    return "\n".join(
        f"[{table}]\n" + "".join(f"'{original}' = '{name}'\n" for original, name in named.items())
        for table, named in tables.items()
    )
