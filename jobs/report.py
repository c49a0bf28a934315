"""Writes the report: one HTML file from the tables. The work is in `jobs.steps.report`."""

import sys

from jobs.app import command
from jobs.steps import report

if __name__ == "__main__":
    sys.exit(command.main("report", report.run, sys.argv[1:]))
