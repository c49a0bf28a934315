"""Counts what single arrivals do not show, for findings and incidents."""
