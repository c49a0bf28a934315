"""Frames, decodes and judges MSMQ packets, from the declarations in `schemas.wire`.

Nothing here knows TCP or capture files: it takes bytes and rows.
"""
