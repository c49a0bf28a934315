"""Replays messages: who talks with whom, what the receiver did with each message, and what became of it."""
