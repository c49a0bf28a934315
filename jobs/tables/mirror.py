"""Repeats a table of an object store in a folder of this machine, and puts into the store what is written there.

delta-rs opens a table by two requests for each commit and commits by five. In a folder it needs none: so a log is
listed once, each entry is fetched once, and a commit is one request, which the store refuses if the version is there
(put if absent). A file with rows is fetched whole when it is first read.
"""

import atexit
import shutil
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from jobs.cli.errors import JobError, UsageError, first_line
from jobs.cli.temporary import private_folder
from jobs.tables.log_files import FOLDER, LAST_CHECKPOINT, commit_file, commit_versions, version_of
from udfs.capture import stores
from udfs.frames.parallel import run_in_parallel

Answer = TypeVar("Answer")
_RETENTION = timedelta(days=30)
"""Commits older than this go when a checkpoint has what they say; Delta's own default."""
_ALLOW_HTTP = "allow_http"
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
_mirrors: dict[str, "Mirror"] = {}
"""By the folder of this machine, the tables that are repeated there."""


class TakenError(Exception):
    """Says that another run has committed the version."""


@dataclass(frozen=True)
class Store:
    """Reaches the folder of a warehouse in an object store."""

    uri: str
    objects: Any
    """The store, of the package `obstore`, with keys below the warehouse's folder."""
    folder: Path
    """The folder of this machine in which its tables are repeated."""

    @classmethod
    def open(cls, uri: str) -> "Store":
        """Returns the store of a URI, or of a folder that a `file:` URI names.

        Raises:
            UsageError: the environment does not say how to reach it, or the package is missing.
        """
        try:
            from obstore.store import from_url  # noqa: PLC0415 - only warehouses in object stores need it
        except ImportError:
            raise UsageError(
                f"{uri}: tables in an object store need a package that is not there: pip install 'msmq-replay[stores]'"
            ) from None
        try:
            given: dict[str, Any] = {"mkdir": True}
            if stores.in_store(uri):
                config = stores.options(uri)
                client = {"allow_http": bool(config.pop(_ALLOW_HTTP, ""))}
                given = {"config": config, "client_options": client, "retry_config": _RETRIES}
            objects = from_url(uri, **given)
        except Exception as error:
            raise UsageError(f"{uri} cannot be opened: {first_line(error)}.") from error
        folder = private_folder()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return cls(uri, objects, folder)

    def mirror(self, table: str) -> str:
        """Returns the folder of this machine that repeats the table of this name."""
        place = str(self.folder / table)
        _mirrors.setdefault(place, Mirror(self, table, Path(place)))
        return place

    def ask(self, work: Callable[[], Answer]) -> Answer:
        """Returns what a request answers.

        Raises:
            JobError: the store refuses it or cannot be reached. FileNotFoundError: there is no such object.
        """
        from obstore.exceptions import AlreadyExistsError, BaseError  # noqa: PLC0415 - as above

        try:
            return work()
        except (AlreadyExistsError, FileNotFoundError):
            raise
        except (BaseError, OSError) as error:
            raise JobError(f"{self.uri} cannot be used: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Returns why a store did not answer, and what to look at."""
    text = str(error)
    for sign, cause in (
        ("NoSuchBucket", "there is no such bucket"),
        (
            "169.254.169.254",
            "it needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what docs/clusters.md names",
        ),
        ("InvalidAccessKeyId", "its credentials are not known there: look at AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", "its credentials are wrong: look at AWS_SECRET_ACCESS_KEY"),
        ("403 Forbidden", "access is denied: look at the credentials and the rights of their user"),
        ("error sending request", "it does not answer: look at AWS_ENDPOINT_URL and the network"),
    ):
        if sign in text:
            return f"{cause}."
    return first_line(error)


@dataclass
class Mirror:
    """Repeats one table: of its log what was asked for, in the order of the store."""

    store: Store
    table: str
    folder: Path
    alone: RLock = field(default_factory=RLock)
    """Is held while a commit is made: until it is in the store, nobody may read it here."""
    _objects: dict[str, datetime] | None = None
    """The names in the log that are known, and when each was written; None before the first look."""
    _is_current: bool = False

    @property
    def uri(self) -> str:
        """Returns where the table is."""
        return f"{self.store.uri.rstrip('/')}/{self.table}"

    def forget(self) -> None:
        """Makes the next look ask the store for newer versions."""
        self._is_current = False

    def versions(self) -> list[int]:
        """Returns the versions in the log, newest first, which is read up to its end if it is not current."""
        with self.alone:
            if self._objects is None:
                self._list()
            elif not self._is_current:
                self._read_on()
            self._is_current = True
            return sorted(commit_versions(self._objects or ()), reverse=True)

    def _list(self) -> None:
        """Lists the log, and fetches what the newest version needs."""
        pages = self.store.ask(lambda: list(self.store.objects.list(f"{self.table}/{FOLDER}")))
        found = {one["path"].rpartition("/")[2]: one["last_modified"] for page in pages for one in page}
        self._objects = {name: at for name, at in found.items() if version_of(name) >= 0}
        if self._objects:
            self.fetch_log(max(commit_versions(self._objects), default=-1))

    def _read_on(self) -> None:
        """Fetches the versions after the newest that is known."""
        objects = self._objects or {}
        version = max(commit_versions(objects), default=-1) + 1
        while True:
            try:
                self._fetch(f"{FOLDER}/{commit_file(version)}")
            except FileNotFoundError:
                return
            self._add(commit_file(version))
            version += 1

    def fetch_log(self, version: int) -> None:
        """Fetches the entries from which the table's files in a version follow."""
        with self.alone:
            names = self._objects or {}
            checkpoints = (version_of(name) for name in names if ".checkpoint" in name)
            first = max((made for made in checkpoints if made <= version), default=0)
            self.fetch(f"{FOLDER}/{name}" for name in names if first <= version_of(name) <= version)

    def fetch(self, names: Iterable[str]) -> None:
        """Fetches files of the table that are not here.

        Raises:
            FileNotFoundError: one is not in the store.
        """
        run_in_parallel(partial(self._fetch, name) for name in names if not (self.folder / name).exists())

    def _fetch(self, name: str) -> None:
        data = self.store.ask(lambda: self.store.objects.get(f"{self.table}/{name}").bytes().to_bytes())
        _write(self.folder / name, data)

    def require(self, names: Iterable[str]) -> None:
        """Makes sure that the store has these files.

        Raises:
            FileNotFoundError: it lacks one.
        """
        run_in_parallel(
            partial(self.store.ask, partial(self.store.objects.head, f"{self.table}/{name}")) for name in names
        )

    def put(self, names: Iterable[str]) -> None:
        """Puts files into the store that were written here."""
        run_in_parallel(partial(self._put, name) for name in names)

    def _put(self, name: str, **how: str) -> None:
        data = (self.folder / name).read_bytes()
        self.store.ask(lambda: self.store.objects.put(f"{self.table}/{name}", data, **how))

    def put_commit(self, version: int) -> None:
        """Puts a commit that was made here into the store, if that has none of this version.

        Raises:
            TakenError: it has. JobError: nothing tells whether the commit is there. Either way, it is not here.
        """
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - as above

        name = f"{FOLDER}/{commit_file(version)}"
        try:
            self._put(name, mode="create")
        except AlreadyExistsError:
            own = (self.folder / name).read_bytes()
            self._drop(name)
            self._read_on()
            if (self.folder / name).read_bytes() != own:  # else the answer was lost, and the request made again
                raise TakenError from None
        except BaseException:
            self._drop(name)
            raise
        self._add(commit_file(version))

    def put_checkpoint(self, version: int) -> None:
        """Puts a checkpoint into the store, and deletes the commits before it that are past their retention."""
        made = sorted(path.name for path in (self.folder / FOLDER).glob(f"{version:020d}.checkpoint*"))
        self.put(f"{FOLDER}/{name}" for name in (*made, LAST_CHECKPOINT))
        for name in made:
            self._add(name)
        objects, long_ago = self._objects or {}, datetime.now(UTC) - _RETENTION
        old = [name for name, at in objects.items() if version_of(name) < version and at < long_ago]
        self.delete_log(old)

    def delete_log(self, names: Collection[str]) -> None:
        """Deletes entries of the log."""
        if names:
            self.store.ask(lambda: self.store.objects.delete([f"{self.table}/{FOLDER}/{name}" for name in names]))
        for name in names:
            self._drop(f"{FOLDER}/{name}")
            (self._objects or {}).pop(name, None)

    def log_before_checkpoint(self) -> list[str]:
        """Returns the entries of the log that the newest checkpoint makes superfluous."""
        names = self._objects or {}
        first = max((version_of(name) for name in names if ".checkpoint" in name), default=-1)
        return [name for name in names if version_of(name) < first]

    def _add(self, name: str) -> None:
        self._objects = {**(self._objects or {}), name: datetime.now(UTC)}

    def _drop(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        self.forget()


def mirror_of(place: str) -> Mirror | None:
    """Returns the mirror of a table of an object store in this folder; None of any other folder."""
    return _mirrors.get(place.rstrip("/"))


def alone_in(place: str) -> AbstractContextManager[Any]:
    """Lets one thread at a time read and write the log of a table that is repeated here."""
    found = mirror_of(place)
    return nullcontext() if found is None else found.alone


def fetch(files: Collection[str]) -> None:
    """Fetches the files that are of tables that are repeated here.

    Raises:
        FileNotFoundError: one is not in the store.
    """
    if not _mirrors:
        return
    of_tables: dict[str, list[str]] = {}
    for file in files:
        folder, _, name = file.rpartition("/")
        if folder in _mirrors:
            of_tables.setdefault(folder, []).append(name)
    for folder, names in of_tables.items():
        _mirrors[folder].fetch(names)


def _write(path: Path, data: bytes) -> None:
    """Writes a file whole: other threads may look for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
