"""Compacts the tables and removes what is no longer needed. The work is in `jobs.commands.maintain`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("maintain")
