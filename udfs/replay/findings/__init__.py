"""Finds what an analyst should look at: one module a theme, and for each kind of finding what returns its sentence.

`on_messages` applies the rules to arrivals; the other kinds say what `udfs.derive.facts` counted. Nothing here decides
what a receiver accepted.
"""
