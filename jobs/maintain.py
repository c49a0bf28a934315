"""Compacts the tables and removes what is no longer needed. The work is in `jobs.steps.maintain`."""

from jobs.cli import run_script

if __name__ == "__main__":
    run_script("maintain")
