"""Writes the report: one HTML file from the tables. The work is in `jobs.commands.report`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("report")
