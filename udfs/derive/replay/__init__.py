"""Derives verdicts from messages: ends and flows, the scopes that are replayed, and what the captures lack."""
