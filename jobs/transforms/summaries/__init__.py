"""Adds verdicts up per sequence, scope, session and transaction.

What a single message means is decided in `replay`; what an analyst should look at is in `findings`.
"""
