"""Captures of simulated queue managers, with the truth beside them."""

from jobs.cli.command import Summary
from jobs.cli.config import DEMO, Config, Form
from jobs.cli.errors import JobError, UsageError
from jobs.cli.logs import progress
from jobs.simulator import simulate
from jobs.simulator.encapsulations import ENCAPSULATIONS


def run(config: Config) -> Summary:
    """Writes captures and truth.json to the folder --out; returns the summary.

    Raises:
        UsageError: --out is not given, or there is no such encapsulation, or a form is asked for, too.
        JobError: the folder cannot be written.
    """
    if not config.out:
        raise UsageError("Say where the captures go: --out FOLDER.")
    if config.encapsulation not in ENCAPSULATIONS:
        raise UsageError(
            f"encapsulation is {config.encapsulation!r}, but has to be one of {', '.join(ENCAPSULATIONS)}."
        )
    if config.encapsulation != "plain" and config.form != Form.PLAIN:
        raise UsageError("Choose a form or an encapsulation, not both.")
    what = "a morning of three branches" if config.scenario == DEMO else f"{config.messages} messages"
    progress(f"simulate: {what}, seed {config.seed}")
    try:
        simulate(
            config.out,
            config.seed,
            config.messages,
            disorder=config.disorder,
            loss=config.capture_loss,
            begins_s=config.capture_begins_s,
            ends_s=config.capture_ends_s or None,
            situations=config.situations,
            troubles=config.troubles,
            both_ends=config.both_ends,
            mirrored=config.mirrored,
            clock_step_s=-config.clock_step_s,
            form=config.form,
            encapsulation=config.encapsulation,
            is_demo=config.scenario == DEMO,
        )
    except OSError as error:
        raise JobError(f"{config.out} cannot be written: {error.strerror}.") from error
    return {"folder": config.out, "scenario": config.scenario, "seed": config.seed}
