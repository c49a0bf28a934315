"""Prints one packet as an annotated tree. The work is in `jobs.steps.decode_packet`."""

from jobs.cli import run_script

if __name__ == "__main__":
    run_script("decode-packet")
