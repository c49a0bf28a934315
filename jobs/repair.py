"""Finishes what a killed run left. The work is in `jobs.steps.repair`."""

from jobs.cli import run_script

if __name__ == "__main__":
    run_script("repair")
