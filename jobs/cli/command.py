"""Runs a command: parses its options, starts Spark, prints the summary, returns the exit code."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from jobs.cli.alarm import matched
from jobs.cli.command_line import parse
from jobs.cli.config import Config
from jobs.cli.errors import JobError, first_line, known_error
from jobs.cli.logs import log, log_as, print_result, step, warn
from jobs.cli.spark_output import keep_output, spark_said
from jobs.cli.summary_text import first_lines, for_people
from jobs.cli.webhook import failure, payload, post

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Summary = dict[str, Any]
Run = Callable[["SparkSession", Config], Summary]
RunAlone = Callable[[Config], Summary]
FAIL_ON_MATCHED = 3
_OF_A_SIGNAL = 128
"""A shell adds this to the number of the signal that ended a program."""
STARTING = "Starting Spark"
STDOUT = "stdout"
"""The place of a command's lines that leaves no room for its summary there."""
_HEEDS_FAIL_ON = ("nightly", "look", "replay", "repair")
"""The commands whose summaries say what --fail-on names."""
_TELLS_OTHERS = ("nightly", "look")
"""The commands that others than who runs them are told of: --prometheus, --webhook."""


class _TerminatedError(KeyboardInterrupt):
    """Ends a run as an interruption does."""


def main(name: str, run: Run, arguments: Sequence[str]) -> int:
    """Runs one command on Spark and returns its exit code.

    0 done, 1 failed, 2 wrong use, 3 --fail-on matched, 130 or 143 interrupted (SIGINT, SIGTERM).
    """
    return main_alone(name, partial(on_spark, name, run), arguments)


def on_spark(name: str, run: Run, config: Config) -> Summary:
    """Starts Spark and runs one command on it."""
    from jobs.cli.spark_session import open_session  # noqa: PLC0415 - other commands need no Spark

    with step(STARTING, 1, 2):
        spark = open_session(f"msmq-replay {name}", verbose=config.verbose)
    with step(name, 2, 2):
        return run(spark, config)


def main_if_needed(name: str, run: Run, needs_spark: Callable[[Config], bool], arguments: Sequence[str]) -> int:
    """Runs one command, on Spark only where its options need that; returns its exit code."""

    def run_alone(config: Config) -> Summary:
        return on_spark(name, run, config) if needs_spark(config) else run(cast("SparkSession", None), config)

    return main_alone(name, run_alone, arguments)


def main_alone(name: str, run: RunAlone, arguments: Sequence[str]) -> int:
    """Runs one command that starts Spark itself, if at all; returns its exit code."""
    options = parse(name, arguments)
    began, config = time.monotonic(), None
    try:
        config = Config.load(options, options["config"])
        log_as(config.log_format)
        if options["fail_on"] and name not in _HEEDS_FAIL_ON:
            warn(f"{name} does not look at --fail-on, which is for {', '.join(_HEEDS_FAIL_ON)}")
        with _ending_in_order():
            summary = run(config)
        summary["seconds"] = round(time.monotonic() - began, 1)
        code = exit_code(summary, config)
        if code == FAIL_ON_MATCHED:
            found = ", ".join(matched(config.fail_on, summary))
            warn(f"exit code {code}: --fail-on names {found}, which was found")
        text = json.dumps(summary) if config.json else for_people(summary)
        if summary.get("out") == STDOUT:
            print(text, file=sys.stderr)  # noqa: T201 - the lines are on stdout
        else:
            print_result(text, "The run is done, but its summary")
        if name in _TELLS_OTHERS:
            _tell_others(name, summary, config, code)
    except JobError as error:
        return _tell(name, error, config)
    except KeyboardInterrupt as error:
        code = _OF_A_SIGNAL + (signal.SIGTERM if isinstance(error, _TerminatedError) else signal.SIGINT)
        log("error", f"msmq-replay {name}: interrupted", command=name, exit_code=code)
        return code
    except Exception as error:
        if (cause := known_error(error, spark_said())) is not None:
            cause.details = (f"{type(error).__name__}: {first_line(error)}",)
            return _tell(name, cause, config)
        log("error", f"msmq-replay {name}: {type(error).__name__}: {first_line(error)}", command=name, exit_code=1)
        _name_output()
        _post_failure(name, 1, f"{type(error).__name__}: {first_line(error)}", config)
        raise
    if config.log_format == "json":
        log("info", f"msmq-replay {name}: done", command=name, exit_code=code, seconds=summary["seconds"])
    return code


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


def _tell_others(name: str, summary: Summary, config: Config, exit_code: int) -> None:
    """Posts what was found, if that is asked for and bad, and writes figures for Prometheus.

    Raises:
        JobError: these cannot be written.
    """
    if config.webhook and exit_code:
        post(config.webhook, payload(name, exit_code, matched(config.fail_on, summary), first_lines(summary), summary))
    if config.prometheus:
        from jobs.cli.metrics import write_metrics  # noqa: PLC0415 - few runs write them

        write_metrics(config.prometheus, summary, exit_code)


def _post_failure(name: str, exit_code: int, error: str, config: Config | None) -> None:
    if config is not None and config.webhook and name in _TELLS_OTHERS:
        post(config.webhook, failure(name, exit_code, error))


def _tell(name: str, error: JobError, config: Config | None) -> int:
    """Tells an error that a person can act on, and returns the command's exit code."""
    for line in error.details:
        log("error", f"  {line}")
    if error.details:
        _name_output()
    # This comes last: a mail from cron has the last lines.
    log("error", f"msmq-replay {name}: {error}", command=name, exit_code=error.exit_code)
    _post_failure(name, error.exit_code, str(error), config)
    return error.exit_code


def _name_output() -> None:
    if kept := keep_output():
        log("error", f"Spark's output is in {kept}; --verbose prints it here.")


def exit_code(summary: Summary, config: Config) -> int:
    """Returns the exit code of a run with this summary: 1 if its books do not balance, 3 if --fail-on matched, or 0."""
    if summary.get("books", {}).get("unbalanced"):
        return 1
    return FAIL_ON_MATCHED if matched(config.fail_on, summary) else 0
