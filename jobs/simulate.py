"""Writes captures of simulated queue managers, with their truth. The work is in `jobs.steps.simulate`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["simulate", *sys.argv[1:]]))
