"""Runs one night: ingest, decode, replay and report, in order. The work is in `jobs.steps.nightly`."""

import sys

from jobs.steps import nightly

if __name__ == "__main__":
    sys.exit(nightly.main(sys.argv[1:]))
