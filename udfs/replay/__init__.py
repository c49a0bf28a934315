"""Replays messages: puts them in order, judges each arrival, and tells what became of each message, and why.

`flow` is the replay on one page, the same on each engine. Rules over many rows are functions of Polars frames; rules
over few rows take rows with names. Nothing here knows Spark.
"""
