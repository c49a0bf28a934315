"""Writes captures of simulated queue managers, with their truth. The work is in `jobs.steps.simulate`."""

import sys

from jobs.app import command
from jobs.steps import simulate

if __name__ == "__main__":
    sys.exit(command.main_alone("simulate", simulate.run, sys.argv[1:]))
