"""Says what a step is doing and what is odd, on one logger; a command shows it on its terminal (`jobs.cli.logs`)."""

import logging

LOG = logging.getLogger("msmq_replay")
