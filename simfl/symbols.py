"""Numbers that remember how they were made, for a tape that is executed again.

A run that keeps its tape has an `Each` of two values for each number that reaches models alone: the number, and a
`Symbol` that stands for it. Sums and products of it are again two values. A comparison is answered by the number, and
noted: where other numbers would answer it differently, events might differ, too.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simfl.each import DisagreementError, Each

#: Names of a number: text and the arguments of the function that it comes from.
Name = tuple[str | int | float, ...]
_OPERATORS = {name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "pow")}
_UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "abs": abs, "sqrt": math.sqrt}
_COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


class ChangedError(Exception):
    """Other numbers would answer a question of the world differently."""


class Symbols:
    """The expressions of one run; see the module.

    Attributes:
        names: the named numbers, which are expressions 0, 1, ... in this order, between others.
        expressions: (name of an operator, left, right), or ("name", number, 0). Operands are ["s", expression] or
            ["n", number].
        conditions: (comparison, left, right) -> its answer.
        fixed: numbers that must stay as they are, because they are 0 or infinite, or times may depend on them.
    """

    def __init__(self) -> None:
        self.names: list[Name] = []
        self.expressions: list[tuple[str, Any, Any]] = []
        self.conditions: dict[tuple[Any, ...], bool] = {}
        self.fixed: dict[Name, float] = {}
        self._known: dict[tuple[Any, ...], int] = {}

    def named(self, name: Name, value: float) -> Any:
        """Return a number of the scenario, as an `Each` of itself and its symbol."""
        value = float(value)
        if not value or math.isinf(value):
            return self.stays(name, value)
        number = self._known.get(("name", name))
        if number is None:
            number = self._known["name", name] = len(self.expressions)
            self.expressions.append(("name", len(self.names), 0))
            self.names.append(name)
        return Each((value, Symbol(self, number, value)))

    def stays(self, name: Name, value: float) -> float:
        """Return a number that must not change."""
        self.fixed[name] = float(value)
        return value

    def made(self, name: str, left: Any, right: Any, value: Any) -> Symbol:
        """Return the symbol of an expression."""
        key = name, left, right
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.expressions)
            self.expressions.append(key)
        return Symbol(self, number, value)

    def asked(self, name: str, left: Any, right: Any, answer: bool) -> bool:
        """Note an answer, and return it."""
        self.conditions[name, left, right] = answer
        return answer


class Symbol:
    """A number of a run and the expression that made it."""

    __slots__ = ("_of", "number", "value")
    __array_ufunc__ = None

    def __init__(self, of: Symbols, number: int, value: Any) -> None:
        self._of, self.number, self.value = of, number, value

    @property
    def _side(self) -> tuple[str, int]:
        return "s", self.number

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return self._of.asked("ne", self._side, ("n", 0.0), bool(self.value))

    def __neg__(self) -> Symbol:
        return self._of.made("neg", self._side, ("n", 0.0), -self.value)

    def __abs__(self) -> Symbol:
        return self._of.made("abs", self._side, ("n", 0.0), abs(self.value))

    def square_root(self) -> Symbol:
        """Return the square root."""
        return self._of.made("sqrt", self._side, ("n", 0.0), math.sqrt(self.value))

    __hash__ = None  # type: ignore[assignment]


def _side_of(other: Any) -> tuple[tuple[str, Any], Any]:
    """Return an operand and its value."""
    if other.__class__ is Symbol:
        return other._side, other.value
    if isinstance(other, np.floating) and other.dtype != np.float64:
        raise DisagreementError
    plain = other if isinstance(other, int | float) and other.__class__ is not np.float64 else other.item()
    return ("n", plain), plain


def _define(name: str, function: Callable[[Any, Any], Any]) -> None:
    def operate(self: Symbol, other: Any) -> Symbol:
        side, value = _side_of(other)
        return self._of.made(name, self._side, side, function(self.value, value))

    def reflected(self: Symbol, other: Any) -> Symbol:
        side, value = _side_of(other)
        return self._of.made(name, side, self._side, function(value, self.value))

    setattr(Symbol, f"__{name}__", operate)
    setattr(Symbol, f"__r{name}__", reflected)


def _compare(name: str, function: Callable[[Any, Any], Any]) -> None:
    def compare(self: Symbol, other: Any) -> bool:
        side, value = _side_of(other)
        return self._of.asked(name, self._side, side, bool(function(self.value, value)))

    setattr(Symbol, f"__{name}__", compare)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _define(_name, _OPERATORS[_name])
for _name, _function in _COMPARISONS.items():
    _compare(_name, _function)


def evaluated(
    names: Sequence[Name],
    expressions: Sequence[Sequence[Any]],
    conditions: Sequence[Sequence[Any]],
    value_of: Callable[[Name], float],
) -> np.ndarray:
    """Return the values of all expressions, f64 [n], given those of the names.

    Args:
        names, expressions: as in `Symbols`.
        conditions: (comparison, left, right, answer).
        value_of: returns a named number.

    Raises:
        ChangedError: a condition has another answer.
    """
    values: list[float] = []

    def side(operand: Sequence[Any]) -> Any:
        return values[operand[1]] if operand[0] == "s" else operand[1]

    for name, left, right in expressions:
        if name == "name":
            values.append(value_of(tuple(names[left])))
        elif name in _UNARY:
            values.append(_UNARY[name](side(left)))
        else:
            values.append(_OPERATORS[name](side(left), side(right)))
    for name, left, right, answer in conditions:
        if bool(_COMPARISONS[name](side(left), side(right))) != answer:
            raise ChangedError(f"whether {side(left):g} {name} {side(right):g}")
    return np.array(values, dtype=np.float64)
