"""Replays the acceptance rules of [MS-MQQB] 3.1.5.8.6: from messages to verdicts.

What verdicts add up to is in `summaries`, what to look at in `findings`.
"""
