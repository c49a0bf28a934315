"""Judges messages, and explains what the replay found: rows come in as objects or frames, and sentences go out.

Nothing here knows Spark. Each pass takes Arrow batches, of which all rows with one key come together, and yields Arrow
batches; it holds no more than one key's counters.
"""
