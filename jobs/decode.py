"""Decodes packets into messages, acks, handshakes and session_acks. The work is in `jobs.steps.decode`."""

from jobs.cli import run_script

if __name__ == "__main__":
    run_script("decode")
