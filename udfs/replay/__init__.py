"""Explains what a replay found, in plain Python: what became of each message, why, and which rows prove it.

Few rows come in here: arrivals that are not plain, and sums of all others. A pass reads them in an order that lets it
hold one slot and some counters. No module knows Spark.
"""
