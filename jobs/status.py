"""Prints what was read, what is pending, and what failed and why. The work is in `jobs.steps.status`."""

import sys

from jobs.app import command
from jobs.steps import status

if __name__ == "__main__":
    sys.exit(command.main("status", status.run, sys.argv[1:]))
