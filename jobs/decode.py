"""Decodes packets into messages, acks, handshakes and session_acks. The work is in `jobs.steps.decode`."""

import sys

from jobs.cli import main

if __name__ == "__main__":
    sys.exit(main(["decode", *sys.argv[1:]]))
