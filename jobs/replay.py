"""Replays messages into verdicts and what is derived from them. The work is in `jobs.steps.replay`."""

from jobs.cli import run_script

if __name__ == "__main__":
    run_script("replay")
