"""Applies the rules on messages: a step that chooses what is shown of each sequence, and a pass that says it.

Between the two, Spark looks up the messages shown: a finding may show messages that no rule looked at.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import polars as pl
import pyarrow as pa

from schemas.replay import Severity, Verdict
from schemas.tallies import FINDINGS_ON_MESSAGES
from udfs.frames.rows import Batches, read_rows, write_rows
from udfs.replay.findings.finding import FindingText, Found, Message, Role, Rule, finding_row
from udfs.replay.findings.messages import RULES

_RULE_OF = {rule.kind.value: rule for rule in RULES}
_ATTEMPTS_SHOWN = 20
_INTERVALS_SHOWN = 12
_SEQUENCE = ("scope_key", "sequence")
FINDING = (*_SEQUENCE, "kind", "cause")
"""The columns that tell the findings on messages apart."""
_FIGURES = Found._fields[:-1]
CHOSEN = (*FINDING, *_FIGURES, "role", "replay_order")
"""The columns of a message that a finding shows in a `role`, by its `replay_order`, beside the finding's figures."""


def choose_messages(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Applies the rules to arrivals of whole sequences; returns the messages that findings show: rows of CHOSEN."""
    in_order, attempts = arrivals.sort(*_SEQUENCE, "replay_order"), _attempts(arrivals)
    shown = []
    for rule in RULES:
        findings = _count(rule, in_order)
        for role in rule.witness:
            of_role = findings.join(attempts, on=_SEQUENCE) if role is Role.ATTEMPT else findings
            shown.append(of_role.select(*FINDING, *_FIGURES, pl.lit(role.name).alias("role"), replay_order=role.value))
    return pl.concat(shown).drop_nulls("replay_order")


def _count(rule: Rule, arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns a row for each finding that a rule makes of arrivals, which are in order: its figures, and its roles."""
    kind, cause = (
        pl.lit(rule.kind.value).alias("kind"),
        pl.col("cause") if rule.by_cause else pl.lit(None, pl.Int64).alias("cause"),
    )
    some = arrivals.filter(rule.when).with_columns(kind, cause)
    intervals = pl.col("interval_s").filter(pl.lit(rule.of_one_message) & (pl.col("arrivals") <= _INTERVALS_SHOWN + 1))
    if rule.of_one_message:
        some = some.filter((pl.col(name) == pl.first(name).over(FINDING)) for name in ("number", "content_hash"))
    return some.group_by(FINDING, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("messages"),
        *((pl.col("fate") == fate).sum().cast(pl.Int64).alias(fate) for fate in ("delivered", "lost", "pending")),
        pl.first("is_sent_after_all_accepted").alias("first_is_sent_later"),
        intervals.alias("intervals"),
        *(pl.first(role.value) for role in rule.witness if role is not Role.ATTEMPT),
    )


def _attempts(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns arrivals with one of the last numbers before their sequence's first gap that were refused before that."""
    number, gap_number = pl.col("number"), pl.col("gap_number")
    is_near = number.is_between(gap_number - pl.min_horizontal("gap_size", _ATTEMPTS_SHOWN), gap_number - 1)
    is_refused = pl.col("verdict") == Verdict.OUT_OF_ORDER.value
    some = arrivals.filter(is_refused, is_near, pl.col("replay_order") < pl.col("gap_order"))
    return some.select(*_SEQUENCE, attempt="replay_order")


def tell_messages(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Turns rows of CHOSEN, each with the columns of Message, into rows of FINDINGS; those of a finding together."""
    rows = (pair for batch in batches for pair in zip(batch.to_pylist(), read_rows([batch], Message), strict=True))
    findings = groupby(rows, lambda pair: itemgetter(*FINDING)(pair[0]))
    return write_rows((_tell(list(shown)) for _, shown in findings), FINDINGS_ON_MESSAGES.arrow)


def _tell(shown: list[tuple[dict[str, Any], Message]]) -> tuple[object, ...]:
    """Returns the row of FINDINGS that shows these messages."""
    messages: dict[str, list[Message]] = defaultdict(list)
    for chosen, message in sorted(shown, key=lambda pair: attrgetter("number", "message_id", "key")(pair[1])):
        messages[Role[chosen["role"]]].append(message)
    found = Found(**{figure: chosen[figure] for figure in _FIGURES}, shown=messages)
    rule = _RULE_OF[chosen["kind"]]
    witness = [message.key for role in rule.witness for message in messages.get(role, ())]
    severity = rule.severity if isinstance(rule.severity, Severity) else rule.severity(found)
    told = FindingText(rule.kind, severity, rule.says(found), witness)
    return finding_row(told, found.first._asdict() | {"messages": found.messages})
