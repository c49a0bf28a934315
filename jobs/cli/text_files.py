"""Reads and writes small files, on any file system of `pyarrow.fs`."""

import uuid
from pathlib import Path

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
    """Writes the text, whole or not at all: a local file is renamed, and object stores show a file when it is complete.

    Raises:
        JobError: the place cannot be written, or is a pipe or a device, which a rename would replace.
    """
    try:
        filesystem, path = locate(uri)
        if filesystem.get_file_info(path).type is fs.FileType.Unknown:
            raise OSError(_NOT_REGULAR)  # noqa: TRY301 - said with the place
        if isinstance(filesystem, fs.LocalFileSystem):
            _replace(Path(path).resolve(), text)
        else:
            with filesystem.open_output_stream(path) as file:
                file.write(text.encode())
    except (OSError, ValueError) as error:
        raise JobError(f"{uri} cannot be written: {error}.") from error


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def exists(uri: str) -> bool:
    """Returns whether there is a file."""
    filesystem, path = locate(uri)
    return bool(filesystem.get_file_info(path).type is fs.FileType.File)
