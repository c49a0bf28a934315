"""The lines for cron and systemd in docs/every-night.md, run as they stand there."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from jobs.app.command_line import command_parser
from jobs.simulator import simulate

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "every-night.md").read_text(encoding="utf-8")
PROGRAM = "/opt/msmq-replay/.venv/bin/msmq-replay"


def cron_command() -> str:
    """What cron gives to the shell: without the times and the user, and with no `%`, which cron takes for a newline."""
    (line,) = re.findall(r"^30 6 \* \* \* msmq (.*)$", PAGE, re.MULTILINE)
    assert "%" not in line
    return str(line)


def mail_of(command: str, captures: Path, folder: Path) -> str:
    """What cron would mail of the command: all that it prints."""
    moved = {PROGRAM: str(ROOT / ".venv/bin/msmq-replay"), "/data/pcap": str(captures), "/data/msmq": str(folder)}
    for name, place in moved.items():
        command = command.replace(name, place)
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def test_both_examples_fail_on_what_an_operator_must_see() -> None:
    (cron,) = re.findall(r"\$\((.*?) 2>", cron_command())
    (unit,) = re.findall(rf"^ExecStart=({PROGRAM}.*)$", PAGE, re.MULTILINE)
    assert cron == unit
    program, command, *options = shlex.split(cron)
    assert (program, command) == (PROGRAM, "nightly")
    fail_on = vars(command_parser("nightly").parse_args(options))["fail_on"]
    assert set(fail_on if isinstance(fail_on, list | tuple) else fail_on.split(",")) == {"lost", "stuck", "unknown"}


def test_a_run_that_cannot_begin_is_mailed_with_its_reason(tmp_path: Path) -> None:
    mail = mail_of(cron_command(), tmp_path / "nowhere", tmp_path / "msmq")
    assert "nowhere" in mail


@pytest.mark.spark
def test_the_mail_of_a_loss_begins_with_it_and_says_what_to_do(tmp_path: Path) -> None:
    simulate(str(tmp_path / "pcap"), 1, 0, is_demo=True)
    mail = mail_of(cron_command(), tmp_path / "pcap", tmp_path / "msmq").splitlines()
    assert mail[0].startswith("21 messages were lost since 2026-03-03 08:24:26 UTC, to ")
    assert " 104 messages are stuck since 2026-03-03 08:05:33 UTC, to " in mail[0]
    advice = [line for line in mail if line.lstrip().startswith("What to do: ")]
    assert len(advice) == 2
    assert any("Two machines have one queue manager GUID" in line for line in advice)
    assert any(line.startswith("report ") for line in mail)
