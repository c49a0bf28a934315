"""Finds what an analyst should look at, as rows of FINDINGS with a sentence and the rows that prove it.

Each module holds the kinds that are read from one thing; nothing here decides what a receiver accepted.
"""
