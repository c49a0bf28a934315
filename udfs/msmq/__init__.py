"""Frames, decodes and judges MSMQ packets, from the declarations in `schemas.wire`.

Keep TCP sequence numbers and capture files out: this room takes stream bytes and rows.
"""
