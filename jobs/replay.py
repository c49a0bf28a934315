"""Replays messages into verdicts and what is derived from them. The work is in `jobs.commands.replay`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("replay")
