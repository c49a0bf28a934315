"""Computes rows from rows: DataFrame in, DataFrame out. No session, no reading or writing, no action."""
