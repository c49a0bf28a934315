"""Looks at captures at once, without Spark and tables. The work is in `jobs.commands.look`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("look")
