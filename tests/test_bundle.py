"""The Databricks bundle: valid by the published job schema, and every name in it is one of this project."""

import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml
from databricks.bundles.alerts import Alert
from databricks.bundles.jobs import Job
from databricks.bundles.schemas import Schema
from databricks.bundles.volumes import Volume

import msmq_replay
from jobs import cli
from jobs.app.command_line import command_parser
from schemas.outcomes import OUTCOMES
from udfs.on_spark import arrow_schema

ROOT = Path(__file__).parents[1]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text())
RESOURCES: dict[str, dict[str, dict[str, Any]]] = BUNDLE["resources"]
JOBS = RESOURCES["jobs"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", JOBS)
def test_jobs_are_valid_by_the_schema(name: str) -> None:
    job = Job.from_dict(JOBS[name])
    assert job.as_dict()["tasks"] == JOBS[name]["tasks"]
    with pytest.raises(ValueError, match="tusks"):
        Job.from_dict(JOBS[name] | {"tusks": []})


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("schemas", "volumes") for name in RESOURCES[kind]]
)
def test_schemas_and_volumes_are_valid_by_the_schema(kind: str, name: str) -> None:
    model = {"schemas": Schema, "volumes": Volume}[kind]
    assert model.from_dict(RESOURCES[kind][name]).as_dict() == RESOURCES[kind][name]


@pytest.mark.parametrize(
    ("lost", "stuck", "days", "counted"),
    [(True, False, 0, 3), (False, True, 1, 3), (True, False, 9, 0), (False, False, 0, 0)],
)
def test_the_alert_counts_what_was_lost_or_is_stuck_of_late(lost: bool, stuck: bool, days: int, counted: int) -> None:
    declared = RESOURCES["alerts"]["loss"]
    assert Alert.from_dict(declared).as_dict() == declared
    seen = datetime.now(UTC) - timedelta(days=days)
    row = {"lost": lost, "stuck": stuck, "numbers": 3, "last_seen_at": seen}
    schema = arrow_schema(OUTCOMES.spark)
    outcomes = pa.table({name: pa.array([value], schema.field(name).type) for name, value in row.items()})
    query = re.sub(r"\S+\.outcomes", "outcomes", declared["query_text"])
    found = duckdb.from_arrow(outcomes).query("outcomes", query)
    assert found.columns == [declared["evaluation"]["source"]["name"]]
    assert found.fetchall() == [(counted,)]


def test_names_of_resources_and_tasks_exist() -> None:
    text = (ROOT / "databricks.yml").read_text()
    for kind, name in re.findall(r"\$\{resources\.(\w+)\.(\w+)\.\w+\}", text):
        assert name in RESOURCES[kind]
    for job in JOBS.values():
        keys = {task["task_key"] for task in job["tasks"]}
        assert {one["task_key"] for task in job["tasks"] for one in task.get("depends_on", [])} <= keys


def test_a_loss_is_told_apart_from_a_failure() -> None:
    nightly, loss = JOBS["nightly"]["tasks"]
    assert nightly["email_notifications"] != loss["email_notifications"]
    assert "--fail-on" not in nightly["python_wheel_task"]["parameters"]
    assert "--fail-on" in loss["python_wheel_task"]["parameters"]
    assert loss["max_retries"] == 0


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if "environments" in job])
def test_tasks_run_commands_with_options_that_exist(name: str) -> None:
    environments = {one["environment_key"] for one in JOBS[name]["environments"]}
    parameters = {one["name"] for one in JOBS[name]["parameters"]}
    used: set[str] = set()
    for task in JOBS[name]["tasks"]:
        wheel = task["python_wheel_task"]
        assert (wheel["package_name"], wheel["entry_point"] in PROJECT["scripts"]) == (PROJECT["name"], True)
        command, *options = wheel["parameters"]
        assert command in cli.COMMANDS
        command_parser(command).parse_args(options)
        used |= set(re.findall(r"\{\{job\.parameters\.(\w+)\}\}", " ".join(options)))
        assert task["environment_key"] in environments
    assert used == parameters


def test_variables_are_declared_and_used() -> None:
    used = set(re.findall(r"\$\{var\.(\w+)\}", (ROOT / "databricks.yml").read_text()))
    assert used == set(BUNDLE["variables"])


def test_a_task_fails_when_its_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel task takes no notice of what its function returns."""
    assert PROJECT["scripts"]["msmq-replay"] == "msmq_replay:script"
    for code in (0, 3):
        monkeypatch.setattr(cli, "main", lambda code=code: code)
        if code:
            with pytest.raises(SystemExit, match="3"):
                msmq_replay.script()
        else:
            msmq_replay.script()
