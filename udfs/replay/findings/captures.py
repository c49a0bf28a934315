"""The kinds of findings that tell how the traffic was captured, and who could not connect to whom."""

from datetime import datetime
from typing import NamedTuple

from schemas.ingest import Attempt
from schemas.replay import FindingKind, Severity
from udfs.replay.findings.finding import Told
from udfs.replay.words import NS, all_counted, counted, known, one_or_many, tenths, utc


class CapturedTwice(NamedTuple):
    """Holds connections of a session that were captured at both ends of an address translation."""

    session_id: str
    found_at: datetime | None
    messages: int
    """Connections."""
    stream_id: str
    """Of the first."""
    copy_of: str

    def tell(self) -> Told:
        """Says that of each conversation only one copy counts."""
        sentence = (
            f"{counted(self.messages, 'connection was', 'connections were')} captured twice, at both ends of an "
            f"address translation, and {one_or_many(self.messages, 'counts', 'count')} once. The first is "
            f"{self.copy_of}; its copy is {self.stream_id}."
        )
        return Told(FindingKind.CAPTURED_TWICE, Severity.INFO, sentence, [f"{self.copy_of}@0", f"{self.stream_id}@0"])


class ClockStepped(NamedTuple):
    """Holds a capture whose clock stepped back: the replay goes by another clock than the tables."""

    found_at: datetime | None
    messages: int
    """Steps."""
    uri: str
    step_ns: int
    """This and the fields below are of the first step."""
    frame: int | None
    key_before: str | None
    key_after: str | None

    def tell(self) -> Told:
        """Says how far it stepped first."""
        sentence = (
            f"The clock of capture {self.uri} stepped back {counted(self.messages, 'time')}, first by "
            f"{tenths(-self.step_ns / NS)} s at record {known(self.frame)}. The replay undoes this; the tables show "
            "the times that were recorded."
        )
        return Told(FindingKind.CLOCK_STEPPED, Severity.WARNING, sentence, [self.key_before, self.key_after])


FAILURES = {
    Attempt.NO_ANSWER.value: ("connection had no answer", "connections had no answer"),
    Attempt.REFUSED.value: ("was refused by a reset", "were refused by a reset"),
    Attempt.SILENT.value: ("opened and carried nothing", "opened and carried nothing"),
    "closed": ("was closed without an answer to the handshake", "were closed without an answer to the handshake"),
    "refused_session": ("was refused in the handshake", "were refused in the handshake"),
    "other_version": ("began with another version of the protocol", "began with another version of the protocol"),
}
"""How a sentence names each kind of failure: words for one connection, and for several."""


class CannotConnect(NamedTuple):
    """Holds connections between two addresses that failed; that is a warning where nothing worked afterwards."""

    session_id: str
    found_at: datetime | None
    messages: int
    """Connections that failed."""
    client: str
    server: str
    failures: dict[str, int]
    """How many of them failed in each way."""
    lately: int
    """Those after the last one that worked."""
    last_at: datetime | None
    worked_at: datetime | None
    """When the last one that worked ended."""
    key: str | None

    def tell(self) -> Told:
        """Says how they failed, and whether connections work again."""
        causes = ", ".join(all_counted((self.failures[name], *words) for name, words in FAILURES.items()))
        if self.worked_at is None:
            worked = "The captures show no connection that worked."
        elif self.lately:
            worked = f"The last connection that worked ended at {utc(self.worked_at)}."
        else:
            worked = f"Connections work again: the last one ended at {utc(self.worked_at)}."
        sentence = (
            f"{self.client} could not connect to {self.server}: {causes}, from {utc(self.found_at)} to "
            f"{utc(self.last_at)}. {worked} Look for a firewall between the two, and whether Message Queuing runs "
            "there and listens."
        )
        return Told(
            FindingKind.CANNOT_CONNECT, Severity.WARNING if self.lately else Severity.INFO, sentence, [self.key]
        )
