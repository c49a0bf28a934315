"""The work of each command: read tables, derive rows, write tables. How that is safe is in `jobs.tables`."""
