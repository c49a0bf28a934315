"""Replays the acceptance rules of [MS-MQQB] 3.1.5.8.6: from MESSAGES to VERDICTS; no summaries and no findings.

In the order in which a message passes them: `conversations`, `peers`, `scopes`, `acknowledgments`, `coverage`,
`inputs`, `initial_states`, `chains`, `timeline`, `acceptance`, `verdicts`, `evidence`. `jobs.steps.replay` calls them,
and checkpoints between them.
"""
