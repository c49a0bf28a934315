"""Reads new captures into Delta tables: streams, packets, quarantine, books. The work is in `jobs.steps.ingest`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["ingest", *sys.argv[1:]]))
