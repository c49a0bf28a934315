"""Writes captures of simulated queue managers, with their truth. The work is in `jobs.commands.simulate`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("simulate")
