"""Writes a Wireshark dissector. The work is in `jobs.commands.dissector`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("dissector")
