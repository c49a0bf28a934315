"""spark-submit with the zip, where nothing is installed but the dependencies."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.archive import write_archive

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that sees the installed dependencies and not this project.

    A path in a .pth file is searched, but the .pth files in it (the editable install) are not read.
    """
    home = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    python = home / "bin" / "python"
    missing = subprocess.run([python, "-c", "import udfs"], cwd=home, capture_output=True, check=False)
    assert b"ModuleNotFoundError" in missing.stderr
    return python


def test_spark_submit_with_the_zip(bare_python: Path, tmp_path: Path) -> None:
    archive = tmp_path / "msmq_replay.zip"
    write_archive(archive)
    script = tmp_path / "jobs" / "nightly.py"
    script.parent.mkdir()
    script.write_bytes((ROOT / "jobs" / "nightly.py").read_bytes())
    submit = Path(sysconfig.get_paths()["purelib"], "pyspark", "bin", "spark-submit")
    done = subprocess.run(
        [
            *(submit, "--properties-file", ROOT / "conf" / "spark-defaults.conf", "--py-files", archive, script),
            *("--captures", ROOT / "tests" / "captures" / "orders.pcapng", "--warehouse", tmp_path / "warehouse"),
            *("--json", "--fail-on", "duplicate"),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": str(bare_python), "PYSPARK_DRIVER_PYTHON": str(bare_python)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr[-3000:]
    summary = json.loads(done.stdout.splitlines()[-1])  # spark-submit joins a Python job's stderr and stdout
    assert summary["transactional_messages"] == 131
    assert summary["books"]["unbalanced"] == 0
    assert DeltaTable(str(tmp_path / "warehouse" / "verdicts")).to_pyarrow_dataset().count_rows() == 131
