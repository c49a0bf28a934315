"""Captures of simulated queue managers, with the truth beside them."""

from jobs.app.command import Summary
from jobs.app.config import DEMO, Config
from jobs.app.errors import UsageError
from jobs.app.logs import progress
from jobs.simulator import LARGEST_BODY, simulate


def run(config: Config) -> Summary:
    """Write captures and truth.json to the folder --out; returns the summary."""
    if not config.out:
        raise UsageError("Say where the captures go: --out FOLDER.")
    if not config.smallest_body <= config.largest_body <= LARGEST_BODY:
        raise UsageError(f"The options must be in order: smallest_body, largest_body, {LARGEST_BODY} bytes.")
    what = "a morning of three branches" if config.scenario == DEMO else f"{config.messages} messages"
    progress(f"simulate: {what}, seed {config.seed}")
    simulate(
        config.out,
        config.seed,
        config.messages,
        bodies=(config.smallest_body, config.largest_body),
        disorder=config.disorder,
        file_bytes=config.ring_file_bytes or None,
        loss=config.capture_loss,
        begins_s=config.capture_begins_s,
        ends_s=config.capture_ends_s or None,
        situations=config.situations,
        both_ends=config.both_ends,
        mirrored=config.mirrored,
        clock_step_s=-config.clock_step_s,
        is_demo=config.scenario == DEMO,
    )
    return {"folder": config.out, "scenario": config.scenario, "seed": config.seed}
