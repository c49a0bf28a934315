"""Starts `msmq-replay`, and says in one sentence what is missing where its packages or Spark cannot be imported."""

import sys
from importlib.util import find_spec


def script() -> None:
    """Runs the command; ends the process only on failure, because a Databricks task takes any exit for one."""
    try:
        code = _run()
    except KeyboardInterrupt:  # before the command has begun, or while its packages are imported
        code = 130
    if code:
        sys.exit(code)


def _run() -> int:
    try:
        from jobs.main import main  # noqa: PLC0415 - it may not be there

        return main()  # which imports the module of the command
    except ImportError as error:
        sys.exit(f"msmq-replay: {_explanation(error)}")


def _explanation(error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    if package == "pyspark":
        return "Spark is not installed here: pip install 'msmq-replay[local]'. Clusters bring their own."
    if package == "jobs" and (found := find_spec("jobs")):
        return (
            f"Its package jobs is hidden by {found.origin}. Install msmq-replay into a virtual environment of its own."
        )
    return str(error)


if __name__ == "__main__":
    script()
