"""Translates the rules of `udfs.msmq.violations` to Lua, by applying them to expressions instead of numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import numpy as np

from udfs.msmq.violations import Rule

_ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Expression:
    """A Lua expression: a number of at most 32 bits, or a truth value. Its operators return expressions."""

    text: str
    is_truth: bool = False

    __hash__ = None  # type: ignore[assignment]  # as `==` returns an expression

    def _compare(self, operator: str, other: Any) -> "Expression":
        return Expression(f"({self.text} {operator} {_lua(other)})", is_truth=True)

    def _combine(self, truth: str, bits: str, other: Any) -> "Expression":
        if self.is_truth:
            return Expression(f"({self.text} {truth} {_lua(other)})", is_truth=True)
        return Expression(f"{bits}({self.text}, {_lua(other)})")

    __eq__ = partialmethod(_compare, "==")
    __ne__ = partialmethod(_compare, "~=")
    __lt__ = partialmethod(_compare, "<")
    __gt__ = partialmethod(_compare, ">")
    __ge__ = partialmethod(_compare, ">=")
    __and__ = partialmethod(_combine, "and", "band")
    __or__ = __ror__ = partialmethod(_combine, "or", "bor")

    def __add__(self, other: Any) -> "Expression":
        return Expression(f"({self.text} + {_lua(other)})")

    def __array_function__(
        self, function: Callable[..., Any], _: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Translates numpy.isin, the only function of numpy that rules apply."""
        if function is not np.isin or dict(options) != {"invert": True}:
            return NotImplemented
        _, numbers = arguments
        tests = " and ".join(f"{self.text} ~= {number}" for number in numbers)
        return Expression(f"({tests})", is_truth=True)


class _Columns(dict[str, Expression]):
    def __missing__(self, column: str) -> Expression:
        return Expression(f"v_{column}")


def translate(rule: Rule) -> str:
    """Returns a rule as a Lua expression over variables `v_<column>`."""
    found: Expression = rule(_Columns())
    return found.text


def _lua(value: Any) -> str:
    """Returns an operand; a negative number is a mask, and Lua's are unsigned."""
    return value.text if isinstance(value, Expression) else str(int(value) & _ALL_BITS)
