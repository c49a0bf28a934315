"""Runs one night: ingest, decode, replay and report, in order. The work is in `jobs.commands.nightly`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("nightly")
