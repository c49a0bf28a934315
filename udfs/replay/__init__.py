"""Explains what the replay found, in plain Python: few rows come in as objects, and sentences go out.

Nothing here knows Spark. Each pass takes Arrow batches, of which all rows with one key come together, and yields Arrow
batches; it holds no more than one key's counters.
"""
