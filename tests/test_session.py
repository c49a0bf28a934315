"""Options, help, and the sentences that a person reads when a run cannot start."""

import os
import subprocess
import sys
import sysconfig
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from document import template
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tiers import merge_needs

from jobs import main
from jobs.cli import command, spark_output, spark_session
from jobs.cli.code_version import VERSION
from jobs.cli.command import Summary
from jobs.cli.command_line import COMMANDS, command_parser
from jobs.cli.config import DEFAULTS, Config


@pytest.mark.parametrize(
    ("release", "delta"),
    [("4.1.1", "io.delta:delta-spark_4.1_2.13:4.3.1"), ("4.2.1", "io.delta:delta-spark_4.2_2.13:4.4.0")],
)
def test_delta_lake_belongs_to_the_installed_spark(monkeypatch: pytest.MonkeyPatch, release: str, delta: str) -> None:
    monkeypatch.setattr("pyspark.__version__", release)
    assert spark_session.spark_defaults()["spark.jars.packages"] == delta


ADDRESSES = {"spark.driver.bindAddress", "spark.driver.host"}
OTHERS = {"spark.authenticate", "spark.connect.grpc.binding.address"}


class Given(dict[str, str]):
    """Settings of a JVM, as SparkConf has them."""

    contains = dict.__contains__


@pytest.mark.parametrize(
    ("remote", "given", "added"),
    [
        ("", {"spark.master": "local[*]"}, ADDRESSES | OTHERS),
        ("local[2]", {"spark.master": "local[*]"}, ADDRESSES | OTHERS),
        ("", {"spark.master": "local-cluster[2,1,1024]"}, set()),
        ("", {"spark.master": "local[*]", "spark.driver.host": "10.0.0.7"}, OTHERS),
        ("", {"spark.master": "local", "spark.authenticate": "false"}, ADDRESSES | OTHERS - {"spark.authenticate"}),
    ],
)
def test_only_a_spark_of_this_machine_is_kept_to_it_and_not_against_its_users_settings(
    remote: str, given: dict[str, str], added: set[str]
) -> None:
    assert spark_session._kept_private(Given(given), remote).keys() == added


@pytest.mark.parametrize("verbose", merge_needs([[]], [[], ["--verbose"]]))
def test_a_jvm_that_does_not_start_has_its_last_lines_shown(tmp_path: Path, verbose: list[str]) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'no room' >&2\nexit 1\n")
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "jobs.main", "report", "--warehouse", str(tmp_path / "w"), *verbose]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert not done.stdout
    assert "no room" in done.stderr
    assert "Spark could not start. It needs Java 17" in done.stderr.splitlines()[-1]
    kept = list(tmp_path.glob("*.log"))
    assert len(kept) == (not verbose)
    assert all("no room" in file.read_text() and str(file) in done.stderr for file in kept)


NOT_WRITTEN = (
    "java.io.FileNotFoundException: /nowhere/.ivy2.5.2/cache/resolved-x.xml (No such file or directory)",
    "java.io.FileNotFoundException: /nowhere/.ivy2.5.2/cache/resolved-x.xml (Permission denied)",
    "java.nio.file.AccessDeniedException: /nowhere/.ivy2.5.2",
)


@pytest.mark.parametrize("said", NOT_WRITTEN)
def test_what_a_jvm_says_of_a_home_that_cannot_be_written_is_known(said: str) -> None:
    assert spark_session._why_not_started(said).startswith("Cannot write /nowhere/.ivy2.5.2, where Spark keeps")


def test_a_home_that_cannot_be_written_is_not_taken_for_missing_java(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'Exception in thread \"main\" {NOT_WRITTEN[0]}' >&2\nexit 1\n")
    java.chmod(0o755)
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "jobs.main", "report", "--warehouse", str(tmp_path / "w")]
    assert subprocess.run(command, check=False, env=environment).returncode == 1
    printed = capfd.readouterr().err
    assert "Cannot write /nowhere/.ivy2.5.2, where Spark keeps Delta Lake's jars." in printed
    assert "spark.jars.ivy=FOLDER" in printed
    assert "needs Java" not in printed


_HELP_OF_ALL = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from jobs import main
from jobs.cli.command_line import COMMANDS
for name in COMMANDS:
    for asked in (["--help"], ["--warehouse", "w", "-h"]):
        try:
            main.main([name, *asked])
        except SystemExit as ended:
            print("code", ended.code)
"""


def test_the_help_of_every_command_needs_no_spark() -> None:
    done = subprocess.run([sys.executable, "-c", _HELP_OF_ALL], capture_output=True, text=True, check=True)
    assert done.stdout.count("code 0\n") == 2 * len(COMMANDS)
    assert all(f"usage: msmq-replay {name} [options]" in done.stdout for name in COMMANDS)


def test_a_jvm_that_ran_out_of_memory_is_told_with_a_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be gone before it can answer, so that the error at hand says nothing of it."""
    output = tmp_path / "spark.log"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(spark_output.SparkOutput, "path", output)

    def run(_: Config) -> Summary:
        raise ConnectionRefusedError(111, "Connection refused")

    output.write_text("some other trouble\n")
    with pytest.raises(ConnectionRefusedError):
        command.main_alone("report", run, ["--warehouse", str(tmp_path)])
    assert "out of memory" not in capsys.readouterr().err

    output.write_text("java.lang.OutOfMemoryError: Java heap space\n")
    assert command.main_alone("report", run, ["--warehouse", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "ran out of memory" in said
    assert "--in-memory-bytes 0" in said
    assert "Connection refused" in said
    assert str(output) in said


_PRINTING = """
import sys
from jobs.cli.spark_output import keep_output
from jobs.cli.spark_session import open_session
print("before")
spark = open_session("printing", verbose=bool(int(sys.argv[1])))
spark._jvm.System.out.println("as VACUUM does")
print("after")
print(keep_output(), file=sys.stderr)
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("verbose", [False, True])
def test_what_spark_prints_is_no_result(verbose: bool) -> None:
    command = [sys.executable, "-c", _PRINTING, str(int(verbose))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["before", "after"]
    assert ("as VACUUM does" in done.stderr) is verbose
    if not verbose:
        kept = Path(done.stderr.strip())
        assert "as VACUUM does" in kept.read_text()
        kept.unlink()


def test_a_file_of_options_is_taken_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    text = 'warehouse = "/w"\n[replay]\nreading = "literal"\nscope = "queue"\n[ingest]\nports = [1801, 2103]\n'
    file.write_text(text, encoding="utf-8-sig")  # with a byte order mark, as editors on Windows write it
    config = Config.load({"scope": "session", "captures": ["a"], "reading": None}, str(file))
    assert (config.warehouse, config.reading, config.scope, config.ports) == ("/w", "literal", "session", (1801, 2103))
    assert (config.bodies, config.overlap) == ("drop", "first")


def test_the_template_is_written_from_the_declarations() -> None:
    text = files("conf").joinpath("base.toml").read_text()
    assert text == template()
    tree = tomllib.loads(text)
    flat = {
        key: value
        for name, value in tree.items()
        for key, value in (value if isinstance(value, dict) else {name: value}).items()
    }
    assert Config.load(flat, None) == DEFAULTS


def test_help_shows_the_options_of_its_command_and_every_command_takes_them_all() -> None:
    shown = command_parser("report").format_help()
    assert "--since" in shown
    assert "--seed" not in shown
    assert "msmq-replay report --warehouse" in shown
    assert command_parser("report").parse_args(["--seed", "3"]).seed == "3"


def test_a_command_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["nonsense"]) == 2
    assert "usage: msmq-replay COMMAND" in capsys.readouterr().err
    assert main.main(["--help"]) == 0
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out.endswith(f"msmq-replay {VERSION}\n")
    assert main.main(["simulate", "--messages", "1"]) == 2


def test_a_failed_query_prints_no_stack_trace(spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM no_such_table").collect()
    assert capfd.readouterr().err == ""


def test_the_fail_on_of_a_command_that_finds_nothing_is_warned_of(
    demonstration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["look", str(demonstration), "--fail-on", "lost", "--out", str(tmp_path / "a.html")]) == 3
    assert "does not look at" not in capsys.readouterr().err
    assert main.main(["status", "--warehouse", str(tmp_path / "nowhere"), "--fail-on", "lost"]) == 2
    assert "status does not look at --fail-on, which is for nightly, look, replay, repair" in capsys.readouterr().err


def test_settings_that_the_environment_gives_win_but_for_those_that_results_depend_on(spark: SparkSession) -> None:
    parallelism = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    assert (spark.conf.get(parallelism), spark_session.spark_defaults()[parallelism]) == ("3", "4")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("master", "partitions"), [("local[1]", 8), ("local-cluster[1,1,1024]", 200)])
def test_settings_given_to_spark_submit_win_and_a_cluster_has_none_of_a_laptops(
    tmp_path: Path, master: str, partitions: int
) -> None:
    job = tmp_path / "job.py"
    asked = ["spark.sql.shuffle.partitions", "spark.sql.parquet.compression.codec", "spark.sql.session.timeZone"]
    job.write_text(
        "from jobs.cli.spark_session import open_session\n"
        f"print(*[open_session('asks').conf.get(key) for key in {asked}])\n"
    )
    given = {
        "spark.sql.parquet.compression.codec": "gzip",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.ui.enabled": "false",
    }
    settings = [f"--conf={key}={value}" for key, value in given.items()]
    packages = f"--packages={spark_session.spark_defaults()['spark.jars.packages']}"
    submit = Path(sysconfig.get_paths()["purelib"], "pyspark", "bin", "spark-submit")
    done = subprocess.run(
        [submit, "--master", master, packages, *settings, job],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[0].split() == [str(partitions), "gzip", "UTC"]
