"""Finishes what a killed run left. The work is in `jobs.commands.repair`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("repair")
