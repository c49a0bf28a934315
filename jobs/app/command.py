"""Runs a command: parses its options, starts Spark, prints the summary, returns the exit code."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from jobs.app.command_line import command_parser
from jobs.app.config import Config
from jobs.app.errors import JobError
from jobs.app.logs import log, log_as, printable
from jobs.app.spark_session import open_session

Summary = dict[str, Any]
Run = Callable[[SparkSession, Config], Summary]
RunAlone = Callable[[Config], Summary]
FAIL_ON_MATCHED = 3
_COLUMN = 32


def main(name: str, run: Run, arguments: Sequence[str]) -> int:
    """Runs one command on Spark and returns its exit code: 0 done, 1 failed, 2 wrong use, 3 --fail-on matched."""

    def on_spark(config: Config) -> Summary:
        return run(open_session(f"msmq-replay {name}"), config)

    return main_alone(name, on_spark, arguments)


def main_alone(name: str, run: RunAlone, arguments: Sequence[str]) -> int:
    """Runs one command that starts Spark itself, if at all; returns its exit code."""
    options = vars(command_parser(name).parse_args(arguments))
    began = time.monotonic()
    try:
        config = Config.load(options, options["config"])
        log_as(config.log_format)
        summary = run(config)
    except JobError as error:
        log("error", f"msmq-replay {name}: {error}", command=name, exit_code=error.exit_code)
        return error.exit_code
    except Exception as error:
        log("error", f"msmq-replay {name}: {type(error).__name__}: {_first_line(error)}", command=name, exit_code=1)
        raise
    summary["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(summary) if config.json else _for_people(summary))  # noqa: T201 - the result
    exit_code = _exit_code(summary, config)
    if config.log_format == "json":
        log("info", f"msmq-replay {name}: done", command=name, exit_code=exit_code, seconds=summary["seconds"])
    return exit_code


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _exit_code(summary: Summary, config: Config) -> int:
    if summary.get("books", {}).get("unbalanced"):
        return 1
    found = {
        name for kind in ("verdicts", "findings", "severities") for name, many in summary.get(kind, {}).items() if many
    }
    found |= {name for name in ("lost", "stuck") if summary.get(name)}
    found |= {"unknown"} if summary.get("outcomes", {}).get("unknown") else set()
    return FAIL_ON_MATCHED if found.intersection(config.fail_on) else 0


def _for_people(summary: Summary, indent: str = "") -> str:
    lines = []
    for key, value in summary.items():
        title = f"{indent}{printable(key.replace('_', ' '))}:"
        if isinstance(value, dict):
            lines += [title, _for_people(value, indent + "  ")] if value else [f"{title} none"]
        elif isinstance(value, list):
            lines += [title, *(f"{indent}  {printable(str(one))}" for one in value)] if value else [f"{title} none"]
        else:
            lines.append(f"{title:<{_COLUMN}}{printable(str(value))}")
    return "\n".join(lines)
