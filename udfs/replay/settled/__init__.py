"""Decides what is judged again, and what stays as the last replay left it."""
