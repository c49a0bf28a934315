"""Reads new captures into Delta tables: streams, packets, quarantine, books. The work is in `jobs.steps.ingest`."""

from jobs.cli import run_script

if __name__ == "__main__":
    run_script("ingest")
