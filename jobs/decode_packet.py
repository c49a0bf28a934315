"""Prints one packet as an annotated tree. The work is in `jobs.steps.decode_packet`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["decode-packet", *sys.argv[1:]]))
