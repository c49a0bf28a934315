"""Reads new captures into Delta tables: streams, packets, quarantine, books. The work is in `jobs.steps.ingest`."""

import sys

from jobs.app import command
from jobs.steps import ingest

if __name__ == "__main__":
    sys.exit(command.main("ingest", ingest.run, sys.argv[1:]))
