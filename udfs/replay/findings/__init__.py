"""Finds what an analyst should look at: one module a theme, one function a kind, which returns the sentence.

`on_messages` applies the rules to arrivals, `on_facts` the others to what Spark counted. Nothing here decides what a
receiver accepted.
"""
