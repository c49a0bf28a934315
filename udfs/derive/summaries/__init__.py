"""Adds verdicts and outcomes up: per sequence, session, transaction and scope."""
