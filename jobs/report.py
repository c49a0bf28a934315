"""Writes the report: one HTML file from the tables. The work is in `jobs.steps.report`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
