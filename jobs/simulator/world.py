"""Connects queue managers to one another, and holds what they share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from random import Random
from uuid import UUID

from jobs.simulator import build
from jobs.simulator.branches import FirstTry
from jobs.simulator.events import MILLISECOND, SECOND, Action, Events
from jobs.simulator.network import Connection, Endpoint, Network
from jobs.simulator.session import Session
from jobs.simulator.stream import Stream
from jobs.simulator.truth import Truth

MSMQ_PORT = 1801
_LATENCY_NS = 2 * MILLISECOND
_SETTING_UP_NS = SECOND  # at most
_PORT_REUSE = 0.5  # of reconnections
_EPHEMERAL_PORTS = 49_152
_NAT_PORTS = 61_000
_POOL_PARTS, _POOL_PART = 64, 16_384  # bytes that bodies are cut from


class World:
    """Holds time, the network, the random source and the truth."""

    def __init__(
        self, rng: Random, events: Events, network: Network, truth: Truth, bodies: tuple[int, int], steps_ns: int
    ) -> None:
        """Takes the smallest and the largest body in bytes, and when the capture's clock steps; 0: never."""
        self.rng, self.events, self.network, self.truth = rng, events, network, truth
        self.begins_ns = network.tap.blindness.begins_ns
        self._bodies, self._steps_ns = bodies, steps_ns
        # A body may hold a whole packet, so that not everything that looks like a header is one.
        decoy = build.user_message(UUID(int=rng.getrandbits(128)), message_id=1, sequence=(1, 1, 0), body=b"within")
        self._pool = b"".join(rng.randbytes(_POOL_PART + 1) + decoy + bytes(3) for _ in range(_POOL_PARTS))
        if not network.tap.is_whole:  # after missing bytes even the contract accepts a packet inside a body
            self._pool = rng.randbytes(len(self._pool))
        self._nat_port = _NAT_PORTS

    def shows_time_since(self, time_ns: int) -> bool:
        """Returns whether the capture's clock ran without a step since then, so that it shows how long that was."""
        return not time_ns <= self._steps_ns <= self.events.now

    def next_nat_port(self) -> int:
        """Returns the next port of the address translator."""
        self._nat_port = _NAT_PORTS + (self._nat_port + 1 - _NAT_PORTS) % ((1 << 16) - _NAT_PORTS)
        return self._nat_port

    def body(self, size: int | None = None, *, plain: bool = False) -> bytes:
        """Returns a message body from the pool; a `plain` one comes from its beginning, where no packet is hidden."""
        if size is None:
            smallest, largest = self._bodies
            size = smallest + int(self.rng.random() * (largest - smallest + 1))
        start = 0 if plain else int(self.rng.random() * (len(self._pool) - size)) & ~3
        return self._pool[start : start + size]


class Host:
    """Describes a queue manager that others connect to."""

    def __init__(self, rng: Random, addresses: dict[int, str], index: int) -> None:
        """Listens on an IPv4 and an IPv6 address."""
        self.guid = UUID(int=rng.getrandbits(128), version=4)
        self.addresses = {version: ip_address(text.format(index + 1)) for version, text in addresses.items()}
        self.links: list[Link] = []


@dataclass(frozen=True, slots=True)
class Line:
    """Describes how a queue manager connects to the next."""

    address: IPv4Address | IPv6Address
    is_direct: bool
    behind_nat: bool = False
    isn_near_wrap: bool = False
    hops: int = 0
    is_final: bool = True


class Link:
    """Opens a queue manager's sessions with the next one, one at a time."""

    def __init__(
        self, world: World, near: UUID, far: Host, line: Line, take: Action, opened: Callable[[Session], None]
    ) -> None:
        """Starts without a session; `take` receives messages at the far end, `opened` is called with each session."""
        self.session: Session | None = None
        self.streams: list[Stream] = []
        """Streams whose destination is at the far end."""
        self.far = far
        self.address = line.address
        self.beside: Host | None = None
        """Another queue manager at the address of `far`: connections reach the two in turn."""
        self._world, self._near, self._line = world, near, line
        self._take, self._opened = take, opened
        self._booted_ns = world.events.now - world.rng.randrange(10**15)
        self._port = _EPHEMERAL_PORTS + world.rng.randrange(4_096)
        far.links.append(self)

    def connect(self) -> None:
        """Opens a session, but not just before the capture begins: it must hold all of a set-up or nothing."""
        events, begins_ns = self._world.events, self._world.begins_ns
        if begins_ns - _SETTING_UP_NS <= events.now < begins_ns:
            events.at(begins_ns + self._world.rng.randrange(_SETTING_UP_NS), self.connect)
            return
        if self.beside is not None:
            self.far, self.beside = self.beside, self.far
        session = self._new_session(is_open=False)
        session.establish(self._near, self.far.guid, self._booted_ns, self._begin, is_direct=self._line.is_direct)

    def fail(self, how: FirstTry) -> None:
        """Fails to open a session."""
        self._new_session(is_open=False).fail(how, self._near, self.far.guid)

    def call(self) -> None:
        """Tries to connect to a host that never answers."""
        self._new_session(is_open=False).call()

    def go_on(self) -> Session:
        """Returns a session that was there before the simulation; `begin` continues it."""
        return self._new_session(is_open=True)

    def begin(self, session: Session) -> None:
        """Uses a session from now on."""
        session.begin(self._begin)

    def close(
        self, session: Session, pause_ns: int | None = None, *, reset: bool = False, by_acceptor: bool = False
    ) -> None:
        """Closes the session when all that was sent has arrived; reconnects after the pause, if there is one."""
        self.session = None
        session.close(partial(self._again, pause_ns), reset=reset, by_acceptor=by_acceptor)

    def cut(self, session: Session, pause_ns: int) -> None:
        """Drops the session, if it is still the current one, with everything under way; reconnects after the pause."""
        if session is self.session:
            self.session = None
            session.cut(partial(self._again, pause_ns))

    def restart(self, session: Session, pause_ns: int) -> None:
        """Drops the session as a queue manager does when it restarts."""
        if session is self.session:
            self._booted_ns = self._world.events.now
            self.cut(session, pause_ns)

    def _again(self, pause_ns: int | None) -> None:
        if pause_ns is not None:
            self._world.events.after(pause_ns, self.connect)

    def _begin(self, session: Session) -> None:
        self.session = session
        self._opened(session)

    def _new_session(self, *, is_open: bool) -> Session:
        rng, line = self._world.rng, self._line
        if line.behind_nat:
            self._port = self._world.next_nat_port()
        elif (
            line.isn_near_wrap or rng.random() > _PORT_REUSE
        ):  # similar sequence numbers on one port would look like one connection
            self._port = _EPHEMERAL_PORTS + (self._port + 1) % (1 << 14)
        isn = (1 << 32) - rng.randrange(1, 4_096) if line.isn_near_wrap else rng.getrandbits(32)
        initiator = Endpoint(line.address, self._port)
        acceptor = Endpoint(self.far.addresses[line.address.version], MSMQ_PORT)
        positions = isn, rng.getrandbits(32)
        connection = Connection(self._world.network, initiator, acceptor, positions, _LATENCY_NS, is_open=is_open)

        def missing() -> None:
            for stream in self.streams:
                stream.incoming.verdicts.missing(connection)

        connection.missing = missing
        connection.between = self._near, self.far.guid
        return Session(connection, self._take, hops=line.hops, is_final=line.is_final)
