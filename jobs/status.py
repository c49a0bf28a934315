"""Prints what was read, what is pending, and what failed and why. The work is in `jobs.steps.status`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["status", *sys.argv[1:]]))
