"""Looks at captures at once, without Spark and tables. The work is in `jobs.steps.look`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["look", *sys.argv[1:]]))
