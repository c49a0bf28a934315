"""Which files a run takes from folders with odd names, links, pipes and what cannot be looked at."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pipeline import index_captures
from wiretap import Record, pcap

from jobs.cli.capture_listing import capture_files, stamps
from jobs.cli.errors import UsageError
from schemas.ingest import CaptureReason, CaptureStatus
from udfs.ingest.captures import find_new
from udfs.ingest.options import IngestOptions

CONTENT = pcap([Record(bytes(60))])


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter, with one capture `a`."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    (path / "a").write_bytes(CONTENT)
    yield path
    shutil.rmtree(path)


@contextmanager
def without_rights() -> Iterator[None]:
    """Takes the rights of root away meanwhile, if the tests have them."""
    user = os.geteuid()
    if user:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(user)


def listed(folder: Path) -> list[str]:
    """The files below the folder, without its path."""
    return [file.removeprefix(f"{folder}/") for file in capture_files([str(folder)])]


def test_fault_96_a_name_that_is_not_utf8_gives_a_row_with_a_reason(folder: Path) -> None:
    odd = os.fsencode(folder) + b"/M\xe4rz/\xff.pcap"
    os.mkdir(os.path.dirname(odd))  # noqa: PTH102, PTH120 - not UTF-8
    with open(odd, "wb") as file:  # noqa: PTH123 - not UTF-8
        file.write(CONTENT + b"more")

    files = capture_files([str(folder)])

    named = f"file://{folder}/M%E4rz/%FF.pcap"
    assert files == [f"{folder}/a", named]
    assert capture_files([os.fsdecode(odd)]) == capture_files([named]) == [named]
    assert stamps(files)[named].size == len(CONTENT) + 4
    readable, row = index_captures(files, IngestOptions())
    assert readable["status"] == CaptureStatus.OK
    assert (row["uri"], row["status"], row["reason"]) == (named, CaptureStatus.UNREADABLE, CaptureReason.NOT_READABLE)
    assert row["detail"] == "The file cannot be read: its name is not UTF-8. Rename it"
    assert find_new([row], {row["capture_id"]}, ()) == []


def test_fault_96_links_that_form_loops_list_each_file_once(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "b").write_bytes(CONTENT)
    for name, target in {
        "here": ".",
        "here too": ".",
        "itself": "itself",
        "sub/up": "..",
        "sub/out": "../..",
        "root": "/",
        "first": "sub",
    }.items():
        (folder / name).symlink_to(target)
    assert listed(folder) == ["a", "sub/b"]


def test_fault_96_a_linked_folder_is_listed_and_so_is_a_linked_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c").write_bytes(CONTENT)
    (folder / "elsewhere").symlink_to(tmp_path)
    (folder / "twice").symlink_to(tmp_path / "deep")
    (folder / "z").symlink_to(tmp_path / "deep" / "c")
    assert listed(folder) == ["a", "elsewhere/deep/c", "z"]
    assert capture_files([f"{folder}/else*/*/c"]) == [f"{folder}/elsewhere/deep/c"]


def test_fault_96_what_is_no_file_is_left_out_with_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "gone").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        assert listed(folder) == ["a"]
    said = capsys.readouterr().err
    assert f"{folder}/pipe is left out, because it is a pipe, a socket or a device." in said
    assert f"{folder}/socket is left out, because it is a pipe, a socket or a device." in said
    assert f"{folder}/gone is left out, because it leads to no file: No such file or directory." in said
    with pytest.raises(UsageError, match="pipe is no file and no folder"):
        capture_files([f"{folder}/pipe"])


def test_fault_96_a_folder_without_permission_is_left_out_with_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "closed").mkdir(mode=0)
    with without_rights():
        assert listed(folder) == ["a"]
        with pytest.raises(UsageError, match="Permission denied"):
            capture_files([f"{folder}/closed"])
    assert f"{folder}/closed is left out, because it cannot be listed: Permission denied." in capsys.readouterr().err


def test_fault_96_an_unreadable_file_gives_a_row_with_a_reason(folder: Path) -> None:
    (folder / "a").chmod(0)
    with without_rights():
        (row,) = index_captures([folder / "a"], IngestOptions())
    assert (row["status"], row["reason"]) == (CaptureStatus.UNREADABLE, CaptureReason.NOT_READABLE)
    assert "Permission denied" in row["detail"]


def test_names_that_a_uri_escapes(folder: Path) -> None:
    (folder / "50% off, #1?.pcap").write_bytes(CONTENT)
    files = capture_files([f"file://{folder}"])
    assert files == [f"file://{folder}/50%25%20off%2C%20%231%3F.pcap", f"file://{folder}/a"]
    assert [row["status"] for row in index_captures(files, IngestOptions())] == ["ok", "ok"]
    assert all(stamp.size == len(CONTENT) for stamp in stamps(files).values())
    assert listed(folder) == ["50% off, #1?.pcap", "a"]


def test_an_empty_text_is_not_the_folder_of_the_run() -> None:
    """As a variable of a script that is not set gives it."""
    with pytest.raises(UsageError, match="An empty text was given to --captures"):
        capture_files([""])
