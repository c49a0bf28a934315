"""Runs one night: ingest, decode, replay and report, in order. The work is in `jobs.steps.nightly`."""

from jobs.cli import run_script

if __name__ == "__main__":
    run_script("nightly")
