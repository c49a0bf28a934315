"""What people may write into options and files by mistake, and what ends a run from outside: a sentence each."""

import errno
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tiers import merge_needs

import msmq_replay
from jobs.cli import command
from jobs.cli.command import Summary
from jobs.cli.config import DECLARED, Config, parse_time
from jobs.cli.errors import UsageError
from jobs.commands import simulate

_VALUES = (
    *("true", "5", "-1", "0", "1", "65536", "9223372036854775807", "-9223372036854775808", "9" * 40, "1.5", "-0.0"),
    *("inf", "nan", '""', '"x"', '"1801,x"', '","', '"\\u0000"', '"a\\u0000b"', '"\\u202e"', '"all"', "[]", "[5]"),
    *('["x"]', '["a", 5]', "[[1801]]", "[true]", "[1.5]", "[{}]", "{}", '{ x = "y" }', "{ x = { y = 1 } }"),
    *("1979-05-27", "07:32:00", "1979-05-27T07:32:00", "0001-01-01T00:00:00+23:59", '"0001-01-01T00:00+23:59"'),
    *('"9999-12-31T23:59-23:59"', f'"{"x" * 5_000}"', f"[{'1801, ' * 100}]"),
)


def use(config: Config) -> None:
    """What a run derives of its options before it begins."""
    _ = config.ingest, config.hiding_key
    if config.since not in ("last", "all"):
        parse_time(config.since).timestamp()


@pytest.mark.parametrize("name", DECLARED)
def test_a_file_of_options_never_raises_anything_but_wrong_use(tmp_path: Path, name: str) -> None:
    file = tmp_path / "options.toml"
    taken, said = 0, []
    for text in (*(f"{name} = {value}" for value in _VALUES), f"[section]\n[section.{name}]\nx = 1"):
        file.write_text(text)
        try:
            use(Config.load({}, str(file)))
            taken += 1
        except UsageError as error:
            said.append(str(error))
    assert taken
    assert all("\n" not in line and len(line) < 1000 for line in said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reading = ", "cannot be read"),
        ('colour = "red"', "unknown options: colour"),
        ('reading = "loose"', "reading cannot be 'loose'"),
        ('scope = "connection"', "scope cannot be 'connection': choose from auto, session"),
        ('fail_on = "lost,duplicate"\nreading = "literal"', "--fail-on cannot match lost: .* only verdicts"),
        ('since = "2026-03-04"\nuntil = "2026-03-03"', "Nothing is from 2026-03-04 .* before 2026-03-03"),
        ("ports = []", "ports cannot be"),
        ("ports = [0]", "ports cannot be 0: it is a whole number from 1 to 65535"),
        ("captures = 'a\\u0000b'".replace("'", '"'), "captures cannot be"),
        ("disorder = 1.5", "disorder cannot be 1.5"),
        ("claim_seconds = 0", "claim_seconds cannot be 0: it is a whole number from 20 "),
        ("seed = 9223372036854775808", "seed cannot be"),
        ("since = '9999-12-31T23:59-23:59'", "since cannot be"),
        (f"seed = {'[' * 5000}", "cannot be read"),
    ],
)
def test_options_that_cannot_be_are_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "options.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        Config.load({}, str(file))


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "The disk is full"),
        (RuntimeError("Job aborted.\nCaused by: java.io.IOException: No space left on device"), 1, "The disk is full"),
        (
            ValueError('Error: No FileSystem for scheme "foo"\n\tat x'),
            2,
            'open the place (No FileSystem for scheme "foo")',
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_ends_a_run_from_outside_is_a_sentence(
    raised: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: Config) -> Summary:
        raise raised

    assert command.main_alone("report", run, []) == code
    printed = capsys.readouterr().err
    assert said in printed
    assert "Traceback" not in printed


def test_a_summary_that_cannot_be_printed_is_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobs.main", "simulate", "--messages", "1", "--out", str(tmp_path / "out")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "The run is done, but its summary cannot be printed: [Errno 28] No space left" in done.stderr


def test_a_reader_that_has_read_enough_changes_no_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobs.main", "simulate", "--messages", "1", "--out", str(tmp_path / "out")]
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert done.returncode == 0
    assert "cannot be printed" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_captures_that_cannot_be_written_are_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    for out in (file, file / "below"):
        assert command.main_alone("simulate", simulate.run, ["--out", str(out), "--messages", "1"]) == 1
        said = capsys.readouterr().err
        assert f"msmq-replay simulate: {out} cannot be written: " in said
        assert "Traceback" not in said


@pytest.mark.parametrize("number", merge_needs([signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]))
def test_a_run_that_is_interrupted_prints_no_traceback(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "jobs.main", "simulate", "--out", str(tmp_path / "out"), "--messages", "1000000"]
    heeded = partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # as the tests may be told to ignore it
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeded)  # noqa: PLW1509 - the child changes one signal
    assert process.stderr is not None
    process.stderr.readline()  # of its first step
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + number, "msmq-replay simulate: interrupted\n")


def test_a_run_that_is_interrupted_before_it_has_begun_prints_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("jobs.main.main", interrupted)
    with pytest.raises(SystemExit) as ended:
        msmq_replay.script()
    assert ended.value.code == 130
