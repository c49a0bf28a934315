"""Reads and writes small text files on any file system of `pyarrow.fs`."""

import uuid

from pyarrow import fs

from jobs.app.errors import JobError
from jobs.app.local_files import NOT_REGULAR
from udfs.capture.files import locate


def read_text(uri: str, most: int | None = None) -> str:
    """Returns the text of a file, or of its first `most` bytes.

    Raises:
        OSError: there is no such file, it cannot be read, or it is no regular file.
        ValueError: the URI has no known scheme, or the whole file is not UTF-8.
    """
    filesystem, path = locate(uri)
    if filesystem.get_file_info(path).type is fs.FileType.Unknown:  # a pipe may block, a device may never end
        raise OSError(NOT_REGULAR)
    with filesystem.open_input_stream(path) as file:
        data: bytes = file.read(most)
    return data.decode("utf-8-sig", "strict" if most is None else "replace")


def write_text(uri: str, text: str) -> None:
    """Writes the text, whole or not at all.

    A local file is renamed into place. Object stores show a file when it is complete.

    Raises:
        JobError: the place cannot be written.
    """
    try:
        filesystem, path = locate(uri)
        local = isinstance(filesystem, fs.LocalFileSystem)
        folder = path.rpartition("/")[0]
        if local and folder:
            filesystem.create_dir(folder, recursive=True)
        target = f"{path}.{uuid.uuid4().hex}" if local else path
        with filesystem.open_output_stream(target) as file:
            file.write(text.encode())
        if local:
            try:
                filesystem.move(target, path)
            except OSError:
                filesystem.delete_file(target)
                raise
    except (OSError, ValueError) as error:
        raise JobError(f"{uri} cannot be written: {error}") from error


def exists(uri: str) -> bool:
    """Returns whether there is a file."""
    filesystem, path = locate(uri)
    return bool(filesystem.get_file_info(path).type is fs.FileType.File)
