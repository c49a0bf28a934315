"""Finds what an analyst should look at, with words and the rows that prove it."""
