"""Prints what was read, what is pending, and what failed and why. The work is in `jobs.commands.status`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("status")
