"""Runs a command: parses its options, starts Spark, prints the summary, returns the exit code."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jobs.cli.alarm import matched
from jobs.cli.command_line import parse
from jobs.cli.config import Config
from jobs.cli.errors import JobError, first_line, known_error
from jobs.cli.logs import log, log_as, print_result, step, warn
from jobs.cli.spark_output import keep_output, spark_said
from jobs.cli.summary_text import for_people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Summary = dict[str, Any]
Run = Callable[["SparkSession", Config], Summary]
RunAlone = Callable[[Config], Summary]
FAIL_ON_MATCHED = 3
_OF_A_SIGNAL = 128
"""A shell adds this to the number of the signal that ended a program."""
STARTING = "Starting Spark"


class _TerminatedError(KeyboardInterrupt):
    """Ends a run as an interruption does."""


def main(name: str, run: Run, arguments: Sequence[str]) -> int:
    """Runs one command on Spark and returns its exit code.

    0 done, 1 failed, 2 wrong use, 3 --fail-on matched, 130 or 143 interrupted (SIGINT, SIGTERM).
    """

    def on_spark(config: Config) -> Summary:
        from jobs.cli.spark_session import open_session  # noqa: PLC0415 - other commands need no Spark

        with step(STARTING, 1, 2):
            spark = open_session(f"msmq-replay {name}", verbose=config.verbose)
        with step(name, 2, 2):
            return run(spark, config)

    return main_alone(name, on_spark, arguments)


def main_alone(name: str, run: RunAlone, arguments: Sequence[str]) -> int:
    """Runs one command that starts Spark itself, if at all; returns its exit code."""
    options = parse(name, arguments)
    began = time.monotonic()
    try:
        config = Config.load(options, options["config"])
        log_as(config.log_format)
        with _ending_in_order():
            summary = run(config)
        summary["seconds"] = round(time.monotonic() - began, 1)
        exit_code = _exit_code(summary, config)  # what it says comes before the summary
        print_result(json.dumps(summary) if config.json else for_people(summary), "The run is done, but its summary")
    except JobError as error:
        return _tell(name, error)
    except KeyboardInterrupt as error:
        exit_code = _OF_A_SIGNAL + (signal.SIGTERM if isinstance(error, _TerminatedError) else signal.SIGINT)
        log("error", f"msmq-replay {name}: interrupted", command=name, exit_code=exit_code)
        return exit_code
    except Exception as error:
        if (cause := known_error(error, spark_said())) is not None:
            cause.details = (f"{type(error).__name__}: {first_line(error)}",)
            return _tell(name, cause)
        log("error", f"msmq-replay {name}: {type(error).__name__}: {first_line(error)}", command=name, exit_code=1)
        _name_output()
        raise
    if config.log_format == "json":
        log("info", f"msmq-replay {name}: done", command=name, exit_code=exit_code, seconds=summary["seconds"])
    return exit_code


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Lets SIGTERM, which would end the process at once, free the lock and delete temporary files like SIGINT."""

    def end(*_: object) -> None:
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(name: str, error: JobError) -> int:
    """Prints an error that a person can act on, and returns the command's exit code."""
    log("error", f"msmq-replay {name}: {error}", command=name, exit_code=error.exit_code)
    if error.details:
        for line in error.details:
            log("error", f"  {line}")
        _name_output()
    return error.exit_code


def _name_output() -> None:
    if kept := keep_output():
        log("error", f"Spark's output is in {kept}; --verbose prints it here.")


def _exit_code(summary: Summary, config: Config) -> int:
    if summary.get("books", {}).get("unbalanced"):
        return 1
    found = matched(config.fail_on, summary)
    if found:
        warn(f"exit code {FAIL_ON_MATCHED}: --fail-on names {', '.join(found)}, which was found")
    return FAIL_ON_MATCHED if found else 0
