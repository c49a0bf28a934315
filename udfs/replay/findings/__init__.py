"""Finds what an analyst should look at, and says it: each kind is declared in one place.

What an arrival shows by itself or beside its neighbours is a rule in `messages`, and `on_messages` applies it. What
others count over many rows is a function in `facts`. Nothing here decides what a receiver accepted.
"""
