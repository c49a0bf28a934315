"""Lists the capture files that a run was given, with size and time, and says whether they fit in memory."""

import ctypes
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from pyarrow import fs

from jobs.cli.errors import UsageError
from jobs.cli.logs import warn
from udfs.capture.files import content_bytes, locate


class Stamp(NamedTuple):
    """Holds a file's size in bytes and the time it was last written, in ns since 1970."""

    size: int | None
    mtime_ns: int | None


AS_INGESTED = ("uri", "size_bytes", "ingested_at")
"""Columns of `captures` that say which file a capture was."""
_CLOCKS_DIFFER_S = 60
"""Seconds by which the clock of the captures' file system may be behind."""
FEW_BYTES = 16 << 20
"""Bytes of captures that every machine has memory for."""
_SHARE = 24
"""Captures in memory may have a 24th of the machine's memory: Python takes nine times the size of small messages."""
_BYTES_A_PACKET = 1 << 12
"""Memory that Python takes for a packet while it replays."""
_REPLAY_SHARE = 2
"""A replay may take half of the memory that the JVM leaves."""
_JVM_BYTES = 3 << 30
"""Memory of Spark's JVM: spark.driver.memory of conf/spark-defaults.conf."""
_UNTOLD_MEMORY = 4 << 30
"""Bytes of memory of a machine that does not say how many it has."""
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_GLOB = re.compile(r"[*?\[]")
_SKIPPED = (".", "_")
_FILE = "file://"


def capture_files(uris: Iterable[str]) -> list[str]:
    """Returns the files that the URIs name, sorted: a file, all files below a folder, or all that match a glob.

    Inside a folder, names that begin with a dot or an underscore are skipped. Links to folders are followed, but no
    folder is listed twice. What is no file or cannot be looked at is left out with a warning. A file whose name is not
    UTF-8 is named by a URI with escapes, because no table can hold its path.

    Raises:
        UsageError: no URI is given, or one names nothing.
    """
    given = list(uris)
    if not all(given):
        raise UsageError("An empty text was given to --captures: it would be the folder that this run was started in.")
    if not given:
        raise UsageError("No captures were given: --captures names a file, a folder or a glob.")
    return sorted({file for uri in given for file in _files(uri)})


def files_if_any(uris: Sequence[str]) -> list[str]:
    """Returns the `capture_files` of an option that need not be given; none for none."""
    return capture_files(uris) if uris else []


def changed_files(
    known: Iterable[Mapping[str, Any]], files: Mapping[str, Stamp], again: Collection[str] = ()
) -> list[str]:
    """Returns the files that are not as they were when a capture of this name and size was ingested, or in `again`.

    `known` are rows of `captures` with the columns AS_INGESTED.
    """
    by_uri = {row["uri"]: row for row in known if row["uri"] not in again}
    return [file for file, stamp in files.items() if file not in by_uri or not _is_as_ingested(stamp, by_uri[file])]


def _is_as_ingested(stamp: Stamp, row: Mapping[str, Any]) -> bool:
    """Returns whether a file was last written before the run that ingested it, and has the size that it had then."""
    if stamp.mtime_ns is None or stamp.size != row["size_bytes"]:
        return False
    return bool(stamp.mtime_ns < (row["ingested_at"].timestamp() - _CLOCKS_DIFFER_S) * 1e9)


def stamps(files: Iterable[str]) -> dict[str, Stamp]:
    """Returns each file's size and time; both are None for a file that is gone."""
    found: dict[str, Stamp] = {}
    remote: dict[str, tuple[fs.FileSystem, dict[str, str]]] = {}
    for file in files:
        if (path := _local_path(file)) is not None:
            found[file] = _stamp(path)
        else:
            filesystem, path = locate(file)
            remote.setdefault(file.removesuffix(path), (filesystem, {}))[1][path] = file
    for filesystem, paths in remote.values():
        found |= {paths[info.path]: Stamp(info.size, info.mtime_ns) for info in filesystem.get_file_info(list(paths))}
    return found


def most_in_memory(asked: int) -> int:
    """Returns how many of the bytes of captures asked for the memory of this machine, or of its container, may hold."""
    return min(asked, max(_of_machine() // _SHARE, FEW_BYTES))


def most_messages(asked: int) -> int:
    """Returns how many of the packets asked for this machine can replay in one process, beside the JVM."""
    return min(asked, max(_of_machine() - _JVM_BYTES, 0) // _REPLAY_SHARE // _BYTES_A_PACKET)


def _of_machine() -> int:
    """Returns the bytes of memory of this machine, or of its container."""
    if not hasattr(os, "sysconf"):  # on Windows
        return _of_windows()
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # there is no container, or it may use all
        machine = min(machine, int(_CONTAINER.read_text()))
    return machine


def _of_windows() -> int:
    """Returns the bytes of memory that Windows says are installed; few where it does not say."""
    kibibytes = ctypes.c_ulonglong()
    kernel = getattr(getattr(ctypes, "windll", None), "kernel32", None)
    is_told = kernel is not None and kernel.GetPhysicallyInstalledSystemMemory(ctypes.byref(kibibytes))
    return kibibytes.value << 10 if is_told else _UNTOLD_MEMORY


def bytes_of(files: Mapping[str, Stamp], limit: int) -> int:
    """Returns the size of the files, and more than `limit` when it is more: what is compressed counts expanded."""
    size = sum(stamp.size or 0 for stamp in files.values())
    for uri, stamp in files.items():
        if size > limit:
            break
        with suppress(OSError):  # a file that is gone or cannot be read adds nothing
            size += content_bytes(uri, limit - size + (stamp.size or 0) + 1) - (stamp.size or 0)
    return size


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - a path that need not be UTF-8
    except OSError:
        return Stamp(None, None)
    return Stamp(status.st_size, status.st_mtime_ns)


def _files(uri: str) -> Iterator[str]:
    """Yields what the URI names, each file as a path of this machine or as a URI."""
    try:
        path = _local_path(uri)
        if path is not None:
            is_uri = uri.startswith(_FILE)
            yield from (_name(found, is_uri=is_uri) for found in _named(uri, path, _local_kind(path), _local_files))
            return
        filesystem, path = locate(uri)
        prefix = uri[: len(uri) - len(path)] if uri.endswith(path) else ""
        kind = filesystem.get_file_info(path).type
        yield from (prefix + found for found in _named(uri, path, kind, partial(_remote_files, filesystem)))
    except (OSError, ValueError) as error:
        raise UsageError(f"{uri} cannot be listed: {error}") from error


def _named(uri: str, path: str, kind: fs.FileType, below: Callable[[str], Iterable[str]]) -> Iterable[str]:
    """Returns the files that `path` names, given what lies there and the files `below` a folder."""
    if kind is fs.FileType.File:
        return [path]
    if kind is fs.FileType.Directory:
        return below(path)
    if not _GLOB.search(path):
        raise UsageError(f"There is no {uri}." if kind is fs.FileType.NotFound else f"{uri} is no file and no folder.")
    matched = [found for found in below(_folder(path)) if fnmatchcase(found, path)]
    if not matched:
        raise UsageError(f"Nothing matches {uri}.")
    return matched


def _folder(pattern: str) -> str:
    """Returns the longest folder before the first wildcard."""
    match = _GLOB.search(pattern)
    return pattern[: match.start() if match else len(pattern)].rpartition("/")[0] or "/"


def _remote_files(filesystem: fs.FileSystem, folder: str) -> Iterator[str]:
    for info in filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True)):
        inside = info.path[len(folder) :].strip("/").split("/")
        if info.type is fs.FileType.File and not any(part.startswith(_SKIPPED) for part in inside):
            yield info.path


def _local_path(uri: str) -> str | None:
    """Returns the path that a URI names on this machine, with surrogates for bytes that are not UTF-8; else None."""
    if uri.startswith(_FILE):
        return os.fsdecode(unquote_to_bytes(uri.removeprefix(_FILE)))
    return None if "://" in uri or uri.startswith("file:") else Path(uri).absolute().as_posix()


def _name(path: str, *, is_uri: bool) -> str:
    raw = os.fsencode(path)
    return _FILE + quote(raw) if is_uri or raw.decode(errors="replace") != path else path


def _local_kind(path: str) -> fs.FileType:
    try:
        return _kind(os.stat(path))  # noqa: PTH116 - a path that need not be UTF-8
    except (FileNotFoundError, NotADirectoryError):
        return fs.FileType.NotFound


def _kind(status: os.stat_result) -> fs.FileType:
    if S_ISDIR(status.st_mode):
        return fs.FileType.Directory
    return fs.FileType.File if S_ISREG(status.st_mode) else fs.FileType.Unknown


def _local_files(folder: str) -> Iterator[str]:
    """Yields the files below a folder; links are followed last, so that a file is named without them if it can be.

    Raises:
        OSError: the folder itself cannot be listed.
    """

    def leave_out(error: OSError) -> None:
        if error.filename == folder:
            raise error
        warn(f"{error.filename} is left out, because it cannot be listed: {error.strerror}.")

    if _local_kind(folder) is not fs.FileType.Directory:
        return
    seen = {_identity(outer) for outer in map(str, Path(folder).resolve().parents)}
    linked = deque([folder])
    while linked:
        for found, folders, names in os.walk(linked.popleft(), onerror=leave_out):
            place = found.replace(os.sep, "/")
            if _identity(place) in seen:
                folders.clear()
                continue
            seen.add(_identity(place))
            folders[:] = sorted(name for name in folders if not name.startswith(_SKIPPED))
            linked += (path for path in (f"{place}/{name}" for name in folders) if Path(path).is_symlink())
            for name in sorted(names):
                if not name.startswith(_SKIPPED) and _is_file(f"{place}/{name}"):
                    yield f"{place}/{name}"


def _is_file(path: str) -> bool:
    """Returns whether there is a file; says why anything else is left out."""
    try:
        is_file = _kind(os.stat(path)) is fs.FileType.File  # noqa: PTH116 - a path that need not be UTF-8
    except OSError as error:
        warn(f"{path} is left out, because it leads to no file: {error.strerror}.")
        return False
    if not is_file:
        warn(f"{path} is left out, because it is a pipe, a socket or a device.")
    return is_file


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116 - a path that need not be UTF-8
    return status.st_dev, status.st_ino
