"""Adds verdicts up: per sequence, session and transaction, and how much of a session was captured."""
