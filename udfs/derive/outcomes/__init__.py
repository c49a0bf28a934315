"""Derives what became of each message from its verdicts; everything that speaks of loss rests on these rows."""
