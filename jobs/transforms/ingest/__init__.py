"""Rows of the tables of ingest, from what the passes return; and which connections have to be read again."""
