"""Replays messages into verdicts and what is derived from them. The work is in `jobs.steps.replay`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["replay", *sys.argv[1:]]))
