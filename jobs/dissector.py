"""Writes a Wireshark dissector. The work is in `jobs.steps.dissector`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["dissector", *sys.argv[1:]]))
