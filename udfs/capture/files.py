"""Reads the bytes of capture files, plain or compressed, from any offset and any file system of `pyarrow.fs`."""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from schemas.ingest import CaptureReason, Compression
from udfs.capture import stores

_CHUNK = 1 << 20
_PIECE = 1 << 14
"""Expanded bytes that are read at once from a compressed file."""
_MAGICS = {b"\x1f\x8b": Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}
_ERRORS = {Compression.GZIP: (gzip.BadGzipFile, EOFError, zlib.error), Compression.ZSTD: (OSError,)}
EXPANSION_LIMIT = 250
"""A file that expands to more than this many times its size is taken for a decompression bomb. Captures of messages
whose bodies are all zeros expand to 151 times their size, those of 60,000 equal messages to 28 times."""
_ALWAYS_WHOLE = 1 << 20
"""Expanded bytes that are no bomb in any file: they take no longer than it takes to open one."""


class Fault(NamedTuple):
    """Consecutive bytes of a capture that are in no record: code, sentence, place in the expanded file, first bytes."""

    reason: CaptureReason
    detail: str
    offset: int
    length: int
    raw: bytes = b""


class Source(Protocol):
    """A file's bytes in order."""

    @property
    def fault(self) -> CaptureReason | None:
        """After `read` returned nothing: the reason if the file did not end there."""

    def read(self, size: int) -> bytes:
        """Returns up to `size` further bytes; none at the end."""


def locate(uri: str) -> tuple[fs.FileSystem, str]:
    """Returns the file system and the path of a URI; without a scheme it is a local path.

    Raises:
        OSError: the path is not UTF-8.
        ValueError: no file system has the scheme, or the environment does not say how to reach it.
    """
    if stores.in_store(uri):
        return stores.file_system(uri)
    if "://" in uri or uri.startswith("file:"):
        try:
            filesystem, path = fs.FileSystem.from_uri(uri)
        except UnicodeDecodeError:
            raise OSError("its name is not UTF-8. Rename it") from None
        return filesystem, path
    return fs.LocalFileSystem(), uri


class _Plain:
    def __init__(self, file: pa.NativeFile, offset: int) -> None:
        self.fault: CaptureReason | None = None
        self._file = file
        self._file.seek(offset)

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        return data


class _Expanded:
    """A gzip or zstd file, expanded as it is read; every byte that expands before a fault is returned."""

    def __init__(self, open_file: Callable[[], pa.NativeFile], compression: Compression, offset: int) -> None:
        # The generator does not know this object: a cycle would keep the files open until Python looks for cycles.
        self._faults: list[CaptureReason] = []
        most = max(EXPANSION_LIMIT * open_file().size(), _ALWAYS_WHOLE)
        self._pieces = _expand(open_file, compression, most, self._faults)
        self._rest = memoryview(b"")
        while offset > 0 and (skipped := self.read(min(offset, _CHUNK))):
            offset -= len(skipped)

    @property
    def fault(self) -> CaptureReason | None:
        """Returns why the expansion ended early."""
        return self._faults[0] if self._faults else None

    def read(self, size: int) -> bytes:
        parts: list[memoryview] = []
        while size > 0:
            if not self._rest:
                self._rest = memoryview(next(self._pieces, b""))
                if not self._rest:
                    break
            parts.append(self._rest[:size])
            self._rest = self._rest[size:]
            size -= len(parts[-1])
        return b"".join(parts)


def _expand(
    open_file: Callable[[], pa.NativeFile], compression: Compression, most: int, faults: list[CaptureReason]
) -> Iterator[bytes]:
    """Yields up to `most` bytes; adds to `faults` why they end early."""
    read, size, whole = _reader(open_file(), compression), _PIECE, 0
    while True:
        try:
            piece = read(min(size, most + 1 - whole))
        except _ERRORS[compression] as error:
            if size == 1:
                cut = isinstance(error, EOFError) or "runcated" in str(error)
                faults.append(CaptureReason.TRUNCATED_COMPRESSION if cut else CaptureReason.CORRUPT_COMPRESSION)
                return
            # The failing call may have expanded some bytes: expand the file again up to that call, then byte by byte.
            read, size, again = _reader(open_file(), compression), 1, whole
            while again > 0:
                again -= len(read(min(again, _PIECE)))
            continue
        whole += len(piece)
        if whole > most:
            faults.append(CaptureReason.EXPANSION_LIMIT)
            piece = piece[:-1]
        yield piece
        if not piece or whole > most:
            return


def _reader(file: pa.NativeFile, compression: Compression) -> Callable[[int], bytes]:
    """Returns the function that expands up to so many further bytes of a file."""
    if compression is Compression.GZIP:
        return gzip.GzipFile(fileobj=file, mode="rb").read1
    read: Callable[[int], bytes] = pa.CompressedInputStream(file, "zstd").read
    return read


def open_source(uri: str, compression: Compression, offset: int = 0) -> Source:
    """Opens a capture at byte `offset` of its expanded content."""
    filesystem, path = locate(uri)
    open_file = partial(filesystem.open_input_file, path)
    if compression is Compression.NONE:
        return _Plain(open_file(), offset)
    return _Expanded(open_file, compression, offset)


def detect_compression(uri: str) -> tuple[Compression, int]:
    """Returns the file's compression, by its first bytes, and its size in bytes."""
    filesystem, path = locate(uri)
    with filesystem.open_input_file(path) as file:
        magic: bytes = file.read(4)
        size: int = file.size()
    return next((kind for start, kind in _MAGICS.items() if magic.startswith(start)), Compression.NONE), size


def content_bytes(uri: str, most: int) -> int:
    """Returns how many bytes `open_source` gives of a file: its size, or what comes out of it, counted up to `most`."""
    compression, size = detect_compression(uri)
    if compression is Compression.NONE:
        return size
    source, found = open_source(uri, compression), 0
    while found < most and (data := source.read(_CHUNK)):
        found += len(data)
    return found


class HashedSource:
    """The first `size` bytes of a file, hashed as they are read; `source` stands at its first byte."""

    def __init__(self, source: Source, size: int) -> None:
        self.fault: CaptureReason | None = None
        self._source = source
        self._left = size
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Returns up to `size` further bytes; none at the end."""
        data = self._source.read(min(size, self._left))
        self._hash.update(data)
        self._left -= len(data)
        return data

    def capture_id(self) -> str:
        """Reads what is left and returns the file's identity, its SHA-256 in hexadecimal.

        Raises:
            OSError: the file has become shorter than `size` bytes.
        """
        while self.read(_CHUNK):
            pass
        if self._left:
            raise OSError(f"it became {self._left} bytes shorter while it was read")
        return self._hash.hexdigest()
