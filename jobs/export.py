"""Writes messages, findings and incidents as NDJSON for log stores. The work is in `jobs.commands.export`."""

from jobs.main import run_script

if __name__ == "__main__":
    run_script("export")
