"""Capture files as byte sources: any file system of `pyarrow.fs`, plain or compressed, by offset."""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from schemas.ingest import CaptureReason, Compression

_CHUNK = 1 << 20
_PIECE = 1 << 14
"""Bytes that are expanded at once: at most 1,032 times as many come out [RFC 1951]."""
_GZIP = b"\x1f\x8b"
_MAGICS = {_GZIP: Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}
EXPANSION_LIMIT = 250
"""Bytes out for one byte in, above which a compressed file is taken for a bomb (measured over the whole file)."""
HASH_BYTES = 1 << 30
"""A longer file is hashed in pieces of this length. The identity of a file depends on it: it must never change."""


class Fault(NamedTuple):
    """A run of capture bytes that could not be read: code, sentence, place in the (expanded) file, bytes."""

    reason: CaptureReason
    detail: str
    offset: int
    length: int
    raw: bytes = b""


class Source(Protocol):
    """Bytes in order. After `read` has returned nothing, `fault` says why when that is not the plain end."""

    fault: CaptureReason | None

    def read(self, size: int) -> bytes:
        """Up to `size` further bytes; none at the end."""


def locate(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system and path of a URI; a text without scheme is a local path."""
    if "://" in uri or uri.startswith("file:"):
        filesystem, path = fs.FileSystem.from_uri(uri)
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
    """A gzip or zstd file, expanded as it is read; every byte that expands before a fault is kept.

    It expands in pieces of its own, so that neither content nor fault depends on how much is asked for at once.
    """

    def __init__(self, open_file: Callable[[], pa.NativeFile], compression: Compression, offset: int) -> None:
        self.fault: CaptureReason | None = None
        self._open = open_file
        self._file = open_file()
        self._pieces = self._limited(self._gunzip() if compression is Compression.GZIP else self._unzstd())
        self._rest = memoryview(b"")
        while offset > 0 and (skipped := self.read(min(offset, _CHUNK))):
            offset -= len(skipped)

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

    def _limited(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        expanded, size = 0, self._file.size()
        for piece in filter(None, pieces):
            expanded += len(piece)
            if expanded > EXPANSION_LIMIT * max(size, _CHUNK):
                self.fault = CaptureReason.EXPANSION_LIMIT
                return
            yield piece

    def _gunzip(self) -> Iterator[bytes]:
        """The members of a gzip file [RFC 1952]; zeros behind a member are padding."""
        inflate = zlib.decompressobj(wbits=31)
        data = b""
        while True:
            if inflate.eof:
                data = data.lstrip(b"\0")
            if len(data) < len(_GZIP):
                more = self._file.read(_PIECE)
                data += more
                if not more:
                    break
            elif inflate.eof and not data.startswith(_GZIP):
                self.fault = CaptureReason.CORRUPT_COMPRESSION
                return
            else:
                inflate = zlib.decompressobj(wbits=31) if inflate.eof else inflate
                before = inflate.copy()
                try:
                    yield inflate.decompress(data)
                except zlib.error:
                    yield from self._until_fault(before.decompress(data[i : i + 1]) for i in range(len(data)))
                    return
                data = inflate.unused_data
        if data or not inflate.eof:
            self.fault = CaptureReason.TRUNCATED_COMPRESSION

    def _unzstd(self) -> Iterator[bytes]:
        stream = pa.CompressedInputStream(self._file, "zstd")
        whole = 0
        while True:
            try:
                piece: bytes = stream.read(_PIECE)
            except OSError:
                break
            if not piece:
                return
            whole += len(piece)
            yield piece
        # The failing call may have expanded something: expand again up to there, then byte by byte.
        stream = pa.CompressedInputStream(self._open(), "zstd")
        while whole > 0:
            whole -= len(stream.read(min(whole, _PIECE)))
        yield from self._until_fault(iter(lambda: stream.read(1), b""))

    def _until_fault(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The pieces before the one that cannot be expanded."""
        try:
            yield from pieces
        except (OSError, zlib.error) as error:
            cut = "runcated" in str(error)
            self.fault = CaptureReason.TRUNCATED_COMPRESSION if cut else CaptureReason.CORRUPT_COMPRESSION


def open_source(uri: str, compression: Compression, offset: int = 0) -> Source:
    """The bytes of a capture from `offset` of its expanded content on."""
    filesystem, path = locate(uri)
    open_file = partial(filesystem.open_input_file, path)
    if compression is Compression.NONE:
        return _Plain(open_file(), offset)
    return _Expanded(open_file, compression, offset)


def detect_compression(uri: str) -> tuple[Compression, int]:
    """How the file is packed, by its first bytes, and its size in bytes."""
    filesystem, path = locate(uri)
    with filesystem.open_input_file(path) as file:
        magic: bytes = file.read(4)
        size: int = file.size()
    return next((kind for start, kind in _MAGICS.items() if magic.startswith(start)), Compression.NONE), size


class HashedSource:
    """The first `size` bytes of a file, hashed as they are read; `source` stands at its first byte."""

    def __init__(self, source: Source, size: int) -> None:
        self.fault: CaptureReason | None = None
        self._source = source
        self._size = size
        self._read = 0
        self._pieces: list[Any] = []

    def read(self, size: int) -> bytes:
        """Returns up to `size` further bytes; none at the end."""
        data = self._source.read(min(size, self._size - self._read))
        rest = memoryview(data)
        while rest:
            if not self._read % HASH_BYTES:
                self._pieces.append(hashlib.sha256())
            part = rest[: HASH_BYTES - self._read % HASH_BYTES]
            self._pieces[-1].update(part)
            self._read += len(part)
            rest = rest[len(part) :]
        return data

    def capture_id(self) -> str:
        """Reads what is left and returns the file's identity, in hexadecimal.

        It is the SHA-256 of the file (what `sha256sum` prints) up to HASH_BYTES; of a longer file, the SHA-256 of the
        SHA-256 digests of its pieces of HASH_BYTES.

        Raises:
            OSError: the file has become shorter than `size` bytes.
        """
        while self.read(_CHUNK):
            pass
        if self._read < self._size:
            raise OSError(f"it became {self._size - self._read} bytes shorter while it was read")
        digests = [piece.digest() for piece in self._pieces or [hashlib.sha256()]]
        return digests[0].hex() if len(digests) == 1 else hashlib.sha256(b"".join(digests)).hexdigest()
