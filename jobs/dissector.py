"""Writes a Wireshark dissector. The work is in `jobs.steps.dissector`."""

from jobs.cli import run_script

if __name__ == "__main__":
    run_script("dissector")
