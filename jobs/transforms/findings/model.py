"""Declares a finding, and builds the sentences that operators read."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import tx_sequence
from schemas.replay import FindingKind, Severity
from schemas.wire import MessageClass

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class MessageRule:
    """A kind of finding that one verdict and its neighbours show; the columns are those of `engine.with_neighbours`."""

    kind: FindingKind
    severity: Severity | Column
    """The severity of a message; a finding has that of its gravest message."""
    when: Column
    sentence: Column
    """What an operator reads; `messages` is the number of messages found, the other columns are of the first one."""
    witness: tuple[Column, ...]
    """Keys of the first message and of what it is compared with; nulls are left out."""


def choose(cases: Iterable[tuple[Column, Column]]) -> Column:
    """Returns the value of the first case whose condition holds; null where none does."""
    (condition, value), *others = cases
    return reduce(lambda chain, case: chain.when(*case), others, F.when(condition, value))


def sentence(template: str, *columns: Column | str) -> Column:
    """Returns the template with a column's text at each {}; a null reads "unknown"."""
    parts = template.split("{}")
    pieces = [F.lit(parts[0])]
    for column, part in zip(columns, parts[1:], strict=True):
        pieces += [_text(column), F.lit(part)]
    return F.concat(*pieces)


def _text(column: Column | str) -> Column:
    if isinstance(column, str):  # one call to the JVM instead of seven: there are a hundred sentences
        return F.expr(f"coalesce(string({column}), 'unknown')")
    return F.coalesce(column.cast("string"), F.lit("unknown"))


def counted(count: Column | str, one: str, many: str) -> Column:
    """Returns a number and what it counts: "1 message was", "14 messages were"."""
    return F.concat(_column(count).cast("string"), F.lit(" "), one_or_many(count, one, many))


def one_or_many(count: Column | str, one: str, many: str) -> Column:
    """Returns the form of a word that goes with a number."""
    return F.when(_column(count) == 1, one).otherwise(many)


def _column(column: Column | str) -> Column:
    return F.col(column) if isinstance(column, str) else column


def sequence_name() -> Column:
    """Returns "sequence 2026-03-02T07:59:41Z#3"."""
    return F.concat(F.lit("sequence "), tx_sequence(F.col("tx_sequence_id")))


def receiver_state() -> Column:
    """Returns the sequence and number that the receiver had accepted before a message."""
    number = F.col("incoming_tx_sequence_number")
    same = F.col("incoming_tx_sequence_id") == F.col("tx_sequence_id")
    return (
        F.when(number.isNull(), F.lit("not known"))
        .when(same, sentence("number {}", number))
        .otherwise(sentence("number {} of sequence {}", number, tx_sequence(F.col("incoming_tx_sequence_id"))))
    )


def class_name(message_class: Column) -> Column:
    """Returns the documents' name of a MessageClass without its prefix, such as NACK_ACCESS_DENIED."""
    names = ((message_class == int(c), F.lit(c.name.removeprefix("MQMSG_CLASS_"))) for c in MessageClass)
    return F.coalesce(choose(names), F.concat(F.lit("class "), message_class.cast("string")))
