"""Lists the capture files that a run was given, with size and time."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from pyarrow import fs

from jobs.app.errors import UsageError
from udfs.capture.files import locate


class Stamp(NamedTuple):
    """Holds a file's size in bytes and the time it was last written, in ns since 1970."""

    size: int | None
    mtime_ns: int | None


_GLOB = re.compile(r"[*?\[]")


def capture_files(uris: Iterable[str]) -> list[str]:
    """Returns the files that the URIs name, sorted: a file, all files below a folder, or all that match a glob.

    Inside a folder, names that begin with a dot or an underscore are skipped.

    Raises:
        UsageError: no URI is given, or one names nothing.
    """
    given = list(uris)
    if not given:
        raise UsageError("No captures were given: --captures names a file, a folder or a glob.")
    return sorted({file for uri in given for file in _files(uri)})


def stamps(files: Iterable[str]) -> dict[str, Stamp]:
    """Returns each file's size and time; both are None for a file that is gone."""
    places: dict[str, tuple[fs.FileSystem, dict[str, str]]] = {}
    for file in files:
        filesystem, path = locate(file)
        places.setdefault(file.removesuffix(path), (filesystem, {}))[1][path] = file
    return {
        paths[info.path]: Stamp(info.size, info.mtime_ns)
        for filesystem, paths in places.values()
        for info in filesystem.get_file_info(list(paths))
    }


def _files(uri: str) -> Iterator[str]:
    if "://" not in uri and not uri.startswith("file:"):
        uri = str(Path(uri).absolute())
    try:
        filesystem, path = locate(uri)
        prefix = uri[: len(uri) - len(path)] if uri.endswith(path) else ""
        info = filesystem.get_file_info(path)
        if info.type is fs.FileType.File:
            yield prefix + path
        elif info.type is fs.FileType.Directory:
            yield from (prefix + found.path for found in _below(filesystem, path))
        elif _GLOB.search(path):
            matched = [found.path for found in _below(filesystem, _folder(path)) if fnmatchcase(found.path, path)]
            if not matched:
                raise UsageError(f"Nothing matches {uri}.")
            yield from (prefix + found for found in matched)
        else:
            raise UsageError(f"There is no {uri}.")
    except (OSError, ValueError) as error:
        raise UsageError(f"{uri} cannot be listed: {error}") from error


def _folder(pattern: str) -> str:
    """Returns the longest folder before the first wildcard."""
    match = _GLOB.search(pattern)
    return pattern[: match.start() if match else len(pattern)].rpartition("/")[0] or "/"


def _below(filesystem: fs.FileSystem, folder: str) -> Iterator[fs.FileInfo]:
    for info in filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True)):
        inside = info.path[len(folder) :].strip("/").split("/")
        if info.type is fs.FileType.File and not any(part.startswith((".", "_")) for part in inside):
            yield info
