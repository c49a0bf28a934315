"""Names the forms in which simulated traffic can be captured: each writes plain ones again."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random

from jobs.simulator.renumbered import behind_firewall

Form = Callable[[Path, str, Random], None]
"""Replaces the captures of a folder whose names have a prefix."""
PLAIN = "plain"
FORMS: Mapping[str, Form] = {
    "renumbered": partial(behind_firewall, translates=False),
    "renumbered-translated": partial(behind_firewall, translates=True),
}
