"""Decodes packets into messages, acks, handshakes and session_acks. The work is in `jobs.steps.decode`."""

import sys

from jobs.app import command
from jobs.steps import decode

if __name__ == "__main__":
    sys.exit(command.main("decode", decode.run, sys.argv[1:]))
