"""Reads and writes small files, on any file system of `pyarrow.fs`."""

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pyarrow import fs

from jobs.cli.errors import JobError
from udfs.capture.files import locate

_NOT_REGULAR = "it is a folder, a pipe or a device, and no regular file"
"""A pipe may block, and a device may never end."""


def read_text(uri: str, most: int | None = None) -> str:
    """Returns the text of a file, or of its first `most` bytes.

    Raises:
        OSError: there is no such file, it cannot be read, or it is no regular file.
        ValueError: the URI has no known scheme, or the whole file is not UTF-8.
    """
    filesystem, path = locate(uri)
    if filesystem.get_file_info(path).type is fs.FileType.Unknown:
        raise OSError(_NOT_REGULAR)
    with filesystem.open_input_stream(path) as file:
        data: bytes = file.read(most)
    return data.decode("utf-8-sig", "strict" if most is None else "replace")


def write_text(uri: str, text: str) -> None:
    """Writes the text, whole or not at all.

    Raises:
        JobError: the place cannot be written, or is a pipe or a device, which a rename would replace.
    """
    with writing(uri) as file:
        file.write(text.encode())


@contextmanager
def writing(uri: str) -> Iterator[IO[bytes]]:
    """Opens a file to write that is there, whole, when the block ends, and not at all if that raises.

    A local file is renamed; what goes to an object store is written here first.

    Raises:
        JobError: the place cannot be written, or is a pipe or a device, which a rename would replace.
    """
    try:
        filesystem, path = locate(uri)
        if filesystem.get_file_info(path).type is fs.FileType.Unknown:
            raise OSError(_NOT_REGULAR)  # noqa: TRY301 - said with the place
        if isinstance(filesystem, fs.LocalFileSystem):
            with _replacing(Path(path).resolve()) as file:
                yield file
        else:
            with tempfile.TemporaryFile() as file:
                yield file
                file.seek(0)
                with filesystem.open_output_stream(path) as stored:
                    shutil.copyfileobj(file, stored)
    except (OSError, ValueError) as error:
        raise JobError(f"{uri} cannot be written: {error}.") from error


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def exists(uri: str) -> bool:
    """Returns whether there is a file."""
    filesystem, path = locate(uri)
    return bool(filesystem.get_file_info(path).type is fs.FileType.File)
