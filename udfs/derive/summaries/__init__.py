"""Adds verdicts up by sequence, session and scope."""
