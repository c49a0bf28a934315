"""Spark jobs: transforms from table to table, and the thin commands that run them."""
