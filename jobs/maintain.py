"""Compacts the tables and removes what is no longer needed. The work is in `jobs.steps.maintain`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["maintain", *sys.argv[1:]]))
