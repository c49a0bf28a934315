"""Reads new captures into Delta tables: streams, packets, quarantine, books. The work is in `jobs.commands.ingest`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("ingest")
