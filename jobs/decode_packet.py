"""Prints one packet as an annotated tree. The work is in `jobs.steps.decode_packet`."""

import sys

from jobs.steps import decode_packet

if __name__ == "__main__":
    sys.exit(decode_packet.main(sys.argv[1:]))
