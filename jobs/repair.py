"""Finishes what a killed run left. The work is in `jobs.steps.repair`."""

import sys

from jobs.app import command
from jobs.steps import repair

if __name__ == "__main__":
    sys.exit(command.main("repair", repair.run, sys.argv[1:]))
