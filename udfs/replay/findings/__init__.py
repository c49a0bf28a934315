"""Finds what an analyst should look at: one module a theme, and for each kind of finding what returns its sentence.

A kind has one of two forms. What an arrival shows by itself or beside its neighbours is a rule (`finding.MessageRule`)
in `messages`, and `on_messages` applies it. What `udfs.derive.facts` counts over many rows is a named tuple with a
method `tell`, in `senders`, `receivers` or `captures`; its fields are columns of FINDINGS and what the sentence names,
so `messages` is how many things of the kind there are. Nothing here decides what a receiver accepted.
"""
