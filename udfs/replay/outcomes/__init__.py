"""Tells what became of each message and number; everything that speaks of loss rests on these rows."""
