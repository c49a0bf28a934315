"""Derives what became of each message from its verdicts, with windows and aggregates only.

Everything that speaks of loss rests on these rows; what an outcome means to an analyst is said in `findings`.
"""
