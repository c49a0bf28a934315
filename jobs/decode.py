"""Decodes packets into messages, acks, handshakes and session_acks. The work is in `jobs.commands.decode`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("decode")
