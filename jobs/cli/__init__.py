"""Serves every command: options, errors, logs, Spark's session, the list of capture files.

Knows no table and no step.
"""
