"""The kinds of findings that tell how the traffic was captured, and who could not connect to whom."""

from datetime import datetime
from typing import NamedTuple

from schemas.ingest import Attempt
from schemas.replay import FindingKind, Severity
from udfs.replay.findings.finding import Finding
from udfs.replay.words import NS, all_counted, at, counted, known, one_or_many, tenths, utc


class CapturedTwice(NamedTuple):
    """Holds the connections of a session that were captured at both ends of an address translation."""

    session_id: str
    connections: int
    first_ns: int | None
    stream_id: str
    copy_of: str


def captured_twice(fact: CapturedTwice) -> Finding:
    """Says that of each conversation only one copy counts."""
    return Finding(
        FindingKind.CAPTURED_TWICE,
        Severity.INFO,
        at(fact.first_ns),
        fact.connections,
        f"{counted(fact.connections, 'connection was', 'connections were')} captured twice, at both ends of an address "
        f"translation, and {one_or_many(fact.connections, 'counts', 'count')} once. The first is {fact.copy_of}; its "
        f"copy is {fact.stream_id}.",
        [f"{fact.copy_of}@0", f"{fact.stream_id}@0"],
        session_id=fact.session_id,
    )


class ClockStepped(NamedTuple):
    """Holds how often a capture's clock stepped back, its first step, and the messages next to that."""

    uri: str
    first_captured_at: datetime | None
    steps: int
    step_ns: int
    frame: int
    key_before: str | None
    key_after: str | None


def clock_stepped(fact: ClockStepped) -> Finding:
    """Says that the replay goes by another clock than the tables."""
    return Finding(
        FindingKind.CLOCK_STEPPED,
        Severity.WARNING,
        fact.first_captured_at,
        fact.steps,
        f"The clock of capture {fact.uri} stepped back {counted(fact.steps, 'time')}, first by "
        f"{tenths(-fact.step_ns / NS)} s at record {known(fact.frame)}. The replay undoes this; the tables show the "
        "times that were recorded.",
        [fact.key_before, fact.key_after],
    )


class CannotConnect(NamedTuple):
    """Holds the failed connections between two addresses, and how many of them failed in which way."""

    client: str
    server: str
    messages: int
    lately: int
    """Those after the last connection that worked."""
    found_at: datetime | None
    last_at: datetime | None
    worked_at: datetime | None
    """When the last connection that worked ended."""
    key: str | None
    failures: dict[str, int]


FAILURES = {
    Attempt.NO_ANSWER.value: ("connection had no answer", "connections had no answer"),
    Attempt.REFUSED.value: ("was refused by a reset", "were refused by a reset"),
    Attempt.SILENT.value: ("opened and carried nothing", "opened and carried nothing"),
    "closed": ("was closed without an answer to the handshake", "were closed without an answer to the handshake"),
    "refused_session": ("was refused in the handshake", "were refused in the handshake"),
    "other_version": ("began with another version of the protocol", "began with another version of the protocol"),
    "no_pong": ("ping had no answer", "pings had no answer"),
    "refused_by_pong": ("ping was answered with a refusal", "pings were answered with a refusal"),
}
"""How a sentence names each kind of failure: words for one connection, and for several."""


def cannot_connect(fact: CannotConnect) -> Finding:
    """Says who could not connect to whom; that is a warning where nothing worked afterwards."""
    causes = ", ".join(all_counted((fact.failures[name], *words) for name, words in FAILURES.items()))
    if fact.worked_at is None:
        worked = "The captures show no connection that worked."
    elif fact.lately:
        worked = f"The last connection that worked ended at {utc(fact.worked_at)}."
    else:
        worked = f"Connections work again: the last one ended at {utc(fact.worked_at)}."
    return Finding(
        FindingKind.CANNOT_CONNECT,
        Severity.WARNING if fact.lately else Severity.INFO,
        fact.found_at,
        fact.messages,
        f"{fact.client} could not connect to {fact.server}: {causes}, from {utc(fact.found_at)} to "
        f"{utc(fact.last_at)}. {worked} Look for a firewall between the two, and whether Message Queuing runs there "
        "and listens.",
        [fact.key],
        session_id=f"{fact.client}->{fact.server}",
    )
