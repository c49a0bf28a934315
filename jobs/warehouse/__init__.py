"""Reads and writes the Delta tables so that runs can be killed, repeated and run side by side.

Knows no protocol and computes no rows.
"""
