"""Compacts the tables and removes what is no longer needed. The work is in `jobs.steps.maintain`."""

import sys

from jobs.app import command
from jobs.steps import maintain

if __name__ == "__main__":
    sys.exit(command.main("maintain", maintain.run, sys.argv[1:]))
