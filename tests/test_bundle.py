"""The Databricks bundle: valid by the published schemas, and every name in it is one of this project."""

import json
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
from databricks.bundles.dashboards import Dashboard
from databricks.bundles.jobs import Job
from databricks.bundles.schemas import Schema
from databricks.bundles.volumes import Volume

import msmq_replay
from jobs import main
from jobs.cli.command_line import COMMANDS, command_parser
from schemas.outcomes import OUTCOMES
from schemas.replay import SEQUENCES
from schemas.tables import TABLES

ROOT = Path(__file__).parents[1]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text())
RESOURCES: dict[str, dict[str, dict[str, Any]]] = BUNDLE["resources"]
JOBS = RESOURCES["jobs"]
TARGETS: dict[str, dict[str, Any]] = BUNDLE["targets"]
ON_TARGETS = [(target, name) for target in TARGETS for name in JOBS]
BOARD: dict[str, Any] = json.loads((ROOT / RESOURCES["dashboards"]["night"]["file_path"]).read_text())
DATASETS = {one["name"]: "".join(one["queryLines"]) for one in BOARD["datasets"]}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def job_on(target: str, name: str) -> dict[str, Any]:
    """A job with what its target adds: a task of the same key is one task."""
    added = TARGETS[target]["resources"]["jobs"].get(name, {})
    more = {task["task_key"]: task for task in added.get("tasks", [])}
    tasks = [task | more.pop(task["task_key"], {}) for task in JOBS[name]["tasks"]]
    assert not more
    return {**JOBS[name], **added, "tasks": tasks}


MODELS: dict[str, Any] = {"alerts": Alert, "dashboards": Dashboard, "schemas": Schema, "volumes": Volume}
DECLARED = [
    *((Job, job_on(target, name)) for target, name in ON_TARGETS),
    *((model, declared) for kind, model in MODELS.items() for declared in RESOURCES[kind].values()),
]


@pytest.mark.parametrize(("model", "declared"), DECLARED)
def test_resources_are_valid_by_their_schemas(model: Any, declared: dict[str, Any]) -> None:
    assert model.from_dict(declared).as_dict() == declared
    with pytest.raises(ValueError, match="tusks"):
        model.from_dict(declared | {"tusks": []})


@pytest.mark.parametrize(("target", "name"), ON_TARGETS)
def test_each_task_with_a_wheel_has_somewhere_to_run(target: str, name: str) -> None:
    job = job_on(target, name)
    environments = {one["environment_key"] for one in job.get("environments", [])}
    clusters = {one["job_cluster_key"] for one in job.get("job_clusters", [])}
    for task in job["tasks"]:
        places = [task.get("environment_key"), task.get("job_cluster_key")]
        assert (places[0] in environments) + (places[1] in clusters) == ("python_wheel_task" in task)
        assert places.count(None) == 1 or "python_wheel_task" not in task
        assert ("libraries" in task) == ("job_cluster_key" in task)


@pytest.mark.parametrize(
    ("lost", "stuck", "became", "days", "counted"),
    [
        (True, False, "passed_by", 0, 3),
        (False, True, "pending", 1, 3),
        (None, False, "unacknowledged", 1, 3),
        (True, False, "passed_by", 9, 0),
        (False, False, "not_read", 0, 0),
    ],
)
def test_the_alert_counts_what_was_lost_stuck_or_never_acknowledged_of_late(
    lost: bool | None, stuck: bool, became: str, days: int, counted: int
) -> None:
    declared = RESOURCES["alerts"]["loss"]
    seen = datetime.now(UTC) - timedelta(days=days)
    connection = duckdb.connect()
    outcome = {"lost": lost, "stuck": stuck, "outcome": became, "numbers": 3, "last_seen_at": seen}
    for table, own in ((OUTCOMES, outcome), (SEQUENCES, {"lost_messages": 3 * bool(lost), "last_captured_at": seen})):
        row = {"scope_key": "a", "tx_sequence_id": 1} | own
        schema = table.arrow
        columns = {
            name: pa.array([value], schema.field(name).type) for name, value in row.items() if name in schema.names
        }
        connection.register(table.name, pa.table(columns))
    found = connection.sql(re.sub(r"\$\S+\.(?=outcomes|sequences)", "", declared["query_text"]))
    assert found.columns == [declared["evaluation"]["source"]["name"]]
    assert found.fetchall() == [(counted,)]


def test_each_widget_shows_columns_of_its_query() -> None:
    empty = duckdb.connect()
    for table in TABLES:
        empty.register(table.name, table.arrow.empty_table())
    columns = {name: set(empty.sql(statement).columns) for name, statement in DATASETS.items()}
    used: dict[str, set[str]] = {name: set() for name in DATASETS}
    for one in BOARD["pages"][0]["layout"]:
        for asked in one["widget"].get("queries", []):
            fields = {field["name"] for field in asked["query"]["fields"]}
            assert {field["expression"] for field in asked["query"]["fields"]} == {f"`{name}`" for name in fields}
            assert set(re.findall(r'"fieldName": "(\w+)"', json.dumps(one["widget"]["spec"]))) == fields
            used[asked["query"]["datasetName"]] |= fields
    assert used == columns


def test_names_of_resources_and_tasks_exist() -> None:
    text = (ROOT / "databricks.yml").read_text()
    for kind, name in re.findall(r"\$\{resources\.(\w+)\.(\w+)\.\w+\}", text):
        assert name in RESOURCES[kind]
    for job in JOBS.values():
        keys = {task["task_key"] for task in job["tasks"]}
        assert {one["task_key"] for task in job["tasks"] for one in task.get("depends_on", [])} <= keys


@pytest.mark.parametrize("name", [name for name, job in JOBS.items() if "parameters" in job])
def test_tasks_run_commands_with_options_that_exist(name: str) -> None:
    parameters = {one["name"] for one in JOBS[name]["parameters"]}
    used: set[str] = set()
    for task in JOBS[name]["tasks"]:
        wheel = task["python_wheel_task"]
        assert (wheel["package_name"], wheel["entry_point"] in PROJECT["scripts"]) == (PROJECT["name"], True)
        command, *options = wheel["parameters"]
        assert command in COMMANDS
        command_parser(command).parse_args(options)
        used |= set(re.findall(r"\{\{job\.parameters\.(\w+)\}\}", " ".join(options)))
    assert used == parameters


def test_variables_are_declared_and_used() -> None:
    text = (ROOT / "databricks.yml").read_text()
    used = set(re.findall(r"\$\{var\.(\w+)\}", text))
    assert used == set(BUNDLE["variables"])


def test_a_task_fails_when_its_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel task takes no notice of what its function returns."""
    assert PROJECT["scripts"]["msmq-replay"] == "msmq_replay:script"
    for code in (0, 3):
        monkeypatch.setattr(main, "main", lambda code=code: code)
        if code:
            with pytest.raises(SystemExit, match="3"):
                msmq_replay.script()
        else:
            msmq_replay.script()
