"""Puts the segments of a connection in order and says which bytes count where they overlap.

What the bytes mean is for `udfs.msmq`; nothing here reads files.
"""
