"""The packages have common names: what hides one of them is said, and what is not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from udfs.capture import reader

ROOT = Path(reader.__file__).parents[2]
WITHOUT_SPARK = "sys.modules['pyspark'] = None; "


def start(first: Path, setup: str = "", *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `msmq-replay` answers when modules are searched in the folder `first` before anything else."""
    code = (
        f"import sys; sys.path[:0] = [{str(first)!r}, {str(ROOT)!r}]; {setup}import msmq_replay; msmq_replay.script()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *(arguments or ["--version"])],
        cwd=first,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["schemas", "udfs", "conf", "jobs"])
def test_a_hidden_package_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    started = start(tmp_path)
    assert started.returncode == 1
    (said,) = started.stderr.splitlines()
    assert f"package {name}" in said
    assert str(tmp_path / name) in said
    assert "virtual environment of its own" in said


def test_spark_that_is_not_installed_is_named(tmp_path: Path) -> None:
    """What needs no Spark does without."""
    assert start(tmp_path, WITHOUT_SPARK, "nightly", "--help").returncode == 0
    started = start(tmp_path, WITHOUT_SPARK, "nightly", "--captures", "a.pcap", "--warehouse", "tables")
    assert started.returncode == 1
    assert started.stderr == (
        "msmq-replay: Spark is not installed here: pip install 'msmq-replay[local]'. Clusters bring their own.\n"
    )


def test_a_folder_without_modules_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    started = start(tmp_path)
    assert (started.returncode, started.stderr) == (0, "")
