"""Runs one night: ingest, decode, replay and report, in order. The work is in `jobs.steps.nightly`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["nightly", *sys.argv[1:]]))
