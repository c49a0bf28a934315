"""Finds what is judged together, and in which order."""
