"""Counts and looks up what findings and incidents are made of: few rows out of many.

What they mean, and the sentences, are in `udfs.replay`.
"""
