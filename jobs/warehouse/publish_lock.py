"""One run at a time publishes what it ingested. Delta has no transaction over several tables: a claim stands in for it.

A claim is a commit of `captures` that sets a table property. It holds when its version is the next after the one that
its run had read, so that of two runs one wins. It ends with the next commit that changes rows there, for `captures` is
written last, or with a claim that says so. What a run left that ended in between, its commits undone, is as if it had
never begun.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from jobs.app.errors import ConflictError, JobError
from jobs.app.logs import progress
from jobs.warehouse.store import POLL_S, Commit, Warehouse
from schemas.ingest import (
    CAPTURES,
    CONNECTION_CAPTURES,
    CONNECTION_STATES,
    PACKETS,
    QUARANTINE,
    STREAM_GAPS,
    STREAMS,
)
from schemas.pings import PINGS
from schemas.table import Table

CLAIMED = (STREAM_GAPS, PACKETS, PINGS, QUARANTINE, STREAMS, CONNECTION_CAPTURES, CONNECTION_STATES)
"""Tables that only a run with a claim may write, `captures` apart."""
_PROPERTY = "msmq.claim"
_SETS = "SET TBLPROPERTIES"
_UNDONE = "undone"
_PUBLISHING: set[str] = set()
"""Runs of this process that are publishing now."""
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Claim:
    """Which run publishes, where it runs, and which version of `captures` it had read; `ended` says why it stopped."""

    run: str
    host: str
    pid: int
    after: int
    at: datetime | None = None
    ended: str | None = None

    @classmethod
    def of(cls, commit: Commit) -> Self | None:
        """The claim in a commit of `captures`; None where there is none, or where another commit came between."""
        if commit.operation != _SETS:
            return None
        try:
            claim = cls(**json.loads(json.loads(commit.parameters["properties"])[_PROPERTY]))
        except (KeyError, TypeError, ValueError):
            return None
        return replace(claim, at=commit.at.astimezone(UTC)) if commit.version == claim.after + 1 else None

    def lives(self, seconds: int) -> bool:
        """Whether its run may still be writing: the claim is not too old and, on this machine, its process is there."""
        if self.ended is not None or (self.at and datetime.now(UTC) - self.at > timedelta(seconds=seconds)):
            return False
        if self.host != socket.gethostname():
            return True
        return self.run in _PUBLISHING if self.pid == os.getpid() else _is_running(self.pid)

    @property
    def owner(self) -> str:
        """Who holds it, for a person."""
        since = f" since {self.at:%Y-%m-%d %H:%M:%S} UTC" if self.at else ""
        return f"process {self.pid} on {self.host}{since}"


@dataclass(frozen=True, slots=True)
class Publishing:
    """The right to publish, and the tag for every commit that makes use of it."""

    warehouse: Warehouse
    claim: Claim

    @property
    def first(self) -> bool:
        """Whether nothing was ever published: all tables are empty."""
        return self.claim.after == 0

    @property
    def tag(self) -> dict[str, Any]:
        """The tag of the run's commits."""
        return {"step": "ingest", "run": self.claim.run}

    def check(self) -> None:
        """Make sure that the claim is still the one that holds.

        Raises:
            ConflictError: another run took it for dead.
        """
        if not _holds(self.warehouse, self.claim):
            raise ConflictError("Another run took over what this one was publishing.")

    def end(self, why: str) -> None:
        """Say that nothing more will come."""
        _set(self.warehouse, replace(self.claim, after=self.warehouse.history(CAPTURES)[0].version, ended=why))


def open_claims(warehouse: Warehouse) -> list[Claim]:
    """Claims since `captures` was last written, the newest first; that one holds, the others were taken over."""
    return _open(warehouse.history(CAPTURES))


def take(warehouse: Warehouse, version: int) -> Publishing:
    """The right to publish what was made of this version of `captures`.

    Raises:
        ConflictError: another run has published, or is about to.
    """
    claim = Claim(uuid4().hex, socket.gethostname(), os.getpid(), version)
    _set(warehouse, claim)
    if not _holds(warehouse, claim):
        raise ConflictError("Another run was first.")
    return Publishing(warehouse, claim)


@contextmanager
def publishing(warehouse: Warehouse, version: int) -> Iterator[Publishing]:
    """The right to publish what was made of this version of `captures`; an error on the way ends it, with the reason.

    Raises:
        ConflictError: another run has published, or is about to, or took this one for dead.
    """
    taken = take(warehouse, version)
    _PUBLISHING.add(taken.claim.run)
    try:
        with warehouse.tagged(taken.tag):
            yield taken
    except ConflictError:
        raise
    except Exception as error:
        with suppress(Exception):  # the first error counts
            taken.end(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:_LONGEST])
        raise
    finally:
        _PUBLISHING.discard(taken.claim.run)


def settle(warehouse: Warehouse, seconds: int) -> int:
    """The version of `captures` once no other run is publishing, and what ended runs left is undone.

    Raises:
        JobError: another run does not come to its end.
    """
    told = False
    while claims := _open(commits := warehouse.history(CAPTURES)):
        if claims[0].lives(seconds):
            if not told:
                progress(f"ingest: waiting for {claims[0].owner}, which is publishing")
            told = True
            time.sleep(POLL_S)
            continue
        progress(f"ingest: {claims[0].owner} did not finish ({claims[0].ended or 'killed'}): undoing what it left")
        with suppress(ConflictError):
            undo(warehouse, claims, commits[0].version)
    return commits[0].version


def undo(warehouse: Warehouse, claims: list[Claim], version: int) -> None:
    """Put every claimed table back to where it was before these ended runs, and end their claims.

    `version`: of `captures`, in which these claims were found.

    Raises:
        ConflictError: another run has begun to do the same.
        JobError: the versions from before them are gone.
    """
    runs = {claim.run for claim in claims}
    with publishing(warehouse, version) as taken:
        for table in CLAIMED:
            theirs = [commit.version for commit in warehouse.history(table) if commit.tag.get("run") in runs]
            if theirs:
                progress(f"ingest: putting {table.name} back to version {min(theirs) - 1}")
                _restore(warehouse, table, min(theirs) - 1)
        taken.end(_UNDONE)


def _restore(warehouse: Warehouse, table: Table, version: int) -> None:
    try:
        warehouse.restore(table, version)
    except Exception as error:
        raise JobError(
            f"{table.name} cannot be put back to version {version}: {str(error).partition(chr(10))[0]} "
            "Remove the warehouse's tables and ingest the captures again."
        ) from error


def _open(commits: list[Commit]) -> list[Claim]:
    claims: list[Claim] = []
    for commit in commits:
        if commit.changed_rows:
            break
        if claim := Claim.of(commit):
            if claim.ended == _UNDONE:
                break
            if claim.run not in {newer.run for newer in claims}:  # its last word
                claims.append(claim)
    return claims


def _holds(warehouse: Warehouse, claim: Claim) -> bool:
    return [open_claim.run for open_claim in open_claims(warehouse)[:1]] == [claim.run]


def _set(warehouse: Warehouse, claim: Claim) -> None:
    values = {name: value for name, value in asdict(claim).items() if name != "at"}
    warehouse.set_properties(CAPTURES, {_PROPERTY: json.dumps(values)})


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # of another user, or no /proc here
        return True
    return state != "Z"  # killed, and its parent has not asked yet
