"""What every command does around its work: options, Spark, the summary, the exit code."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from jobs.config import Config, add_options
from jobs.errors import JobError
from jobs.session import open_session

Summary = dict[str, Any]
Run = Callable[[SparkSession, Config], Summary]
RunAlone = Callable[[Config], Summary]
FAIL_ON_MATCHED = 3


def progress(message: str) -> None:
    """Tell a person what is going on, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)  # noqa: T201 - this is the terminal's


def main(name: str, run: Run, arguments: Sequence[str]) -> int:
    """Run one command on Spark; returns its exit code: 0 done, 1 failed, 2 wrong use, 3 --fail-on matched."""

    def on_spark(config: Config) -> Summary:
        return run(open_session(f"msmq-replay {name}"), config)

    return main_alone(name, on_spark, arguments)


def main_alone(name: str, run: RunAlone, arguments: Sequence[str]) -> int:
    """Run one command that needs no Spark; returns its exit code."""
    parser = argparse.ArgumentParser(f"msmq-replay {name}", allow_abbrev=False)
    add_options(parser)
    options = vars(parser.parse_args(arguments))
    began = time.monotonic()
    try:
        config = Config.load(options, options["config"])
        summary = run(config)
    except JobError as error:
        print(f"msmq-replay {name}: {error}", file=sys.stderr)  # noqa: T201 - this is the terminal's
        return error.exit_code
    summary["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(summary) if config.json else _for_people(summary))  # noqa: T201 - the result
    return _exit_code(summary, config)


def _exit_code(summary: Summary, config: Config) -> int:
    if summary.get("books", {}).get("unbalanced"):
        return 1
    return FAIL_ON_MATCHED if any(summary.get("verdicts", {}).get(verdict) for verdict in config.fail_on) else 0


def _for_people(summary: Summary, indent: str = "") -> str:
    lines = []
    for key, value in summary.items():
        title = f"{indent}{key.replace('_', ' ')}:"
        if isinstance(value, dict):
            lines += [title, _for_people(value, indent + "  ")] if value else [f"{title} none"]
        else:
            lines.append(f"{title:<{_COLUMN}}{value}")
    return "\n".join(lines)


_COLUMN = 32
