"""Writes a Wireshark dissector. The work is in `jobs.steps.dissector`."""

import sys

from jobs.app import command
from jobs.steps import dissector

if __name__ == "__main__":
    sys.exit(command.main_alone("dissector", dissector.run, sys.argv[1:]))
