"""Reads and writes the Delta tables so that runs can be killed, repeated and started twice.

Knows how tables are created, written and restored, but no protocol, and computes no rows.
"""
