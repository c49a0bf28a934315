"""Judges each arrival by the acceptance rule, and compares that with the receiver's own acknowledgments."""
