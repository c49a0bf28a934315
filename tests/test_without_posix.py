"""`look` needs nothing that only POSIX has. Windows itself is not here: its modules and functions are taken away."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs import main
from jobs.cli import capture_listing

CAPTURE = "tests/captures/reports/no_right_to_send.pcap"
ROOT = Path(__file__).parents[1]
_BLOCKED = """
import os, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios", "pyspark"):
    sys.modules[name] = None  # cannot be imported
for name in ("sysconf", "getuid", "geteuid", "fork", "O_DIRECTORY", "O_NOFOLLOW"):
    delattr(os, name)
for name in ("SIGHUP", "SIGPIPE", "SIGKILL", "pthread_sigmask"):
    delattr(signal, name)
"""
_RUN = """
import sys
from jobs.main import main
sys.exit(main())
"""


def looked(folder: Path, before: str, *options: str, **environment: str) -> tuple[str, str]:
    """What `look` prints, without the time that it took, and the page that it writes."""
    page = folder / "look.html"
    done = subprocess.run(
        [sys.executable, "-c", f"{before}{_RUN}", "look", CAPTURE, "--out", str(page), *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        encoding=environment.get("PYTHONIOENCODING", "utf-8"),
        check=True,
    )
    return without_seconds(done.stdout), page.read_bytes().decode()


def without_seconds(said: str) -> str:
    """Leaves out how long it took."""
    return "\n".join(line for line in said.splitlines() if not line.startswith("took "))


@pytest.mark.slow
def test_look_says_the_same_without_what_only_posix_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, page = looked(tmp_path, _BLOCKED)
    monkeypatch.chdir(ROOT)
    (tmp_path / "look.html").unlink()
    assert main.main(["look", CAPTURE, "--out", str(tmp_path / "look.html")]) == 0
    assert (printed, page) == (without_seconds(capsys.readouterr().out), (tmp_path / "look.html").read_text("utf-8"))
    assert printed.startswith("10 messages were lost")


@pytest.mark.slow
def test_lists_for_the_back_office_and_a_console_of_few_characters(tmp_path: Path) -> None:
    names = tmp_path / "names.toml"
    names.write_text('[queue_managers]\n"10.1.0.20" = "Łódź → 東京"\n', encoding="utf-8")
    options = ("--out-orders", str(tmp_path / "orders"), "--names-file", str(names))
    printed, page = looked(tmp_path, _BLOCKED, *options, PYTHONIOENCODING="cp1252", PYTHONUTF8="0", LC_ALL="C")
    assert r"10.1.0.20 (\u0141\xf3d\u017a \u2192 \u6771\u4eac)".replace(r"\xf3", "ó") in printed
    assert "Łódź → 東京" in page
    (lines,) = [file.read_bytes() for file in (tmp_path / "orders").glob("send_again.csv")]
    assert lines.count(b"\r\n") == 11
    assert b"\r\r" not in lines


def test_files_are_named_with_slashes_whatever_the_system_joins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.pcap").touch()
    walk = os.walk

    def joined_by_backslashes(top: str, **more: Any) -> Any:
        for place, folders, names in walk(top, **more):
            yield place.replace("/b", "\\b"), folders, names

    monkeypatch.setattr(os, "walk", joined_by_backslashes)
    monkeypatch.setattr(os, "sep", "\\")
    assert capture_listing.capture_files([str(tmp_path / "a")]) == [f"{tmp_path}/a/b/c.pcap"]


@pytest.mark.parametrize("told", [True, False])
def test_windows_is_asked_for_its_memory(monkeypatch: pytest.MonkeyPatch, *, told: bool) -> None:
    def say(kibibytes: Any) -> int:
        kibibytes._obj.value = 16 << 20
        return int(told)

    kernel = SimpleNamespace(GetPhysicallyInstalledSystemMemory=say)
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    assert capture_listing.most_in_memory(1 << 40) == (16 << 30 if told else 4 << 30) // 24
