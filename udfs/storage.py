"""Capture files as byte sources: any file system of `pyarrow.fs`, plain or compressed, by offset."""

import hashlib
import zlib
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from schemas.ingest import CaptureReason, Compression

_CHUNK = 1 << 20
_MAGICS = {b"\x1f\x8b": Compression.GZIP, b"\x28\xb5\x2f\xfd": Compression.ZSTD}
EXPANSION_LIMIT = 250
"""Bytes out for one byte in, above which a compressed file is taken for a bomb (measured over the whole file)."""


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
    """A gzip or zstd file, expanded as it is read; what expands before a fault is kept."""

    def __init__(self, file: pa.NativeFile, compression: Compression, offset: int) -> None:
        self.fault: CaptureReason | None = None
        self._file = file
        self._gzip = compression is Compression.GZIP
        self._stream = None if self._gzip else pa.CompressedInputStream(file, "zstd")
        self._inflate = zlib.decompressobj(wbits=31)
        self._input = b""
        self._read_in = 0
        self._read_out = 0
        while offset > 0 and (skipped := self.read(min(offset, _CHUNK))):
            offset -= len(skipped)

    def read(self, size: int) -> bytes:
        if self.fault is not None:
            return b""
        data = self._read_gzip(size) if self._gzip else self._read_zstd(size)
        self._read_out += len(data)
        if self._read_out > EXPANSION_LIMIT * max(self._read_in, _CHUNK):
            self.fault = CaptureReason.EXPANSION_LIMIT
            return b""
        return data

    def _read_zstd(self, size: int) -> bytes:
        assert self._stream is not None  # noqa: S101 - made in __init__ for every zstd file
        try:
            data: bytes = self._stream.read(size)
        except OSError:
            self.fault = CaptureReason.CORRUPT_COMPRESSION
            return b""
        self._read_in = self._file.tell()
        return data

    def _read_gzip(self, size: int) -> bytes:
        parts: list[bytes] = []
        wanted = size
        while wanted > 0:
            if self._inflate.eof:
                self._input = self._inflate.unused_data or self._file.read(_CHUNK)
                if not self._input.startswith(b"\x1f\x8b"):
                    break  # the end, or padding behind the last member
                self._inflate = zlib.decompressobj(wbits=31)
            elif not self._input:
                self._input = self._file.read(_CHUNK)
                if not self._input:
                    self.fault = CaptureReason.TRUNCATED_COMPRESSION
                    break
            self._read_in = self._file.tell()
            try:
                part = self._inflate.decompress(self._input, wanted)
            except zlib.error:
                self.fault = CaptureReason.CORRUPT_COMPRESSION
                break
            self._input = self._inflate.unconsumed_tail
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)


def open_source(uri: str, compression: Compression, offset: int = 0) -> Source:
    """The bytes of a capture from `offset` of its expanded content on."""
    filesystem, path = locate(uri)
    file = filesystem.open_input_file(path)
    return _Plain(file, offset) if compression is Compression.NONE else _Expanded(file, compression, offset)


def compression_of(uri: str) -> Compression:
    """How the file is packed, by its first bytes."""
    filesystem, path = locate(uri)
    with filesystem.open_input_file(path) as file:
        magic: bytes = file.read(4)
    return next((kind for start, kind in _MAGICS.items() if magic.startswith(start)), Compression.NONE)


def sha256(uri: str) -> tuple[str, int]:
    """The SHA-256 of a file in hexadecimal, and its size in bytes."""
    filesystem, path = locate(uri)
    digest = hashlib.sha256()
    size = 0
    with filesystem.open_input_file(path) as file:
        while chunk := file.read(8 * _CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
