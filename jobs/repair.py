"""Finishes what a killed run left. The work is in `jobs.steps.repair`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["repair", *sys.argv[1:]]))
