"""The Databricks bundle: valid by the published job schema, and every name in it is one of this project."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from databricks.bundles.jobs import Job

from jobs import cli
from jobs.app.command_line import command_parser

ROOT = Path(__file__).parents[1]
BUNDLE: dict[str, Any] = yaml.safe_load((ROOT / "databricks.yml").read_text())
JOBS: dict[str, dict[str, Any]] = BUNDLE["resources"]["jobs"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", JOBS)
def test_jobs_are_valid_by_the_schema(name: str) -> None:
    job = Job.from_dict(JOBS[name])
    assert job.as_dict()["tasks"] == JOBS[name]["tasks"]
    with pytest.raises(ValueError, match="tusks"):
        Job.from_dict(JOBS[name] | {"tusks": []})


@pytest.mark.parametrize("name", JOBS)
def test_tasks_run_commands_with_options_that_exist(name: str) -> None:
    environments = {one["environment_key"] for one in JOBS[name]["environments"]}
    parameters = {one["name"] for one in JOBS[name]["parameters"]}
    for task in JOBS[name]["tasks"]:
        wheel = task["python_wheel_task"]
        assert (wheel["package_name"], wheel["entry_point"] in PROJECT["scripts"]) == (PROJECT["name"], True)
        command, *options = wheel["parameters"]
        assert command in cli.COMMANDS
        command_parser(command).parse_args(options)
        assert set(re.findall(r"\{\{job\.parameters\.(\w+)\}\}", " ".join(options))) == parameters
        assert task["environment_key"] in environments


def test_variables_are_declared_and_used() -> None:
    used = set(re.findall(r"\$\{var\.(\w+)\}", (ROOT / "databricks.yml").read_text()))
    assert used == set(BUNDLE["variables"])


def test_a_task_fails_when_its_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel task takes no notice of what its function returns."""
    assert PROJECT["scripts"]["msmq-replay"] == "jobs.cli:script"
    for code in (0, 3):
        monkeypatch.setattr(cli, "main", lambda code=code: code)
        if code:
            with pytest.raises(SystemExit, match="3"):
                cli.script()
        else:
            cli.script()
