"""Replays messages into verdicts and what is derived from them. The work is in `jobs.steps.replay`."""

import sys

from jobs.app import command
from jobs.steps import replay

if __name__ == "__main__":
    sys.exit(command.main("replay", replay.run, sys.argv[1:]))
