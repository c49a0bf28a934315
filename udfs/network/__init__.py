"""Finds TCP segments and IP fragments in the records of a block, as columns.

Order and overlap of segments are for `udfs.tcp`; payloads are not read here.
"""
