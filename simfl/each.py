"""Numbers that differ between the settings of a group of runs.

Runs that differ in arithmetic alone (a step size, a level of noise) have one sequence of events. An `Each` stands in
the one world for the values of all of them: sums and products of it are again `Each`, value by value, with the same
bits as in a run alone. A question whose answer could change the world (is it positive? is it below a bound?) is
answered if all values agree. If they do not, or if a single number is needed, it raises a `DisagreementError`: such
runs cannot be played together.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from simfl.errors import RunError

#: Results that a number remembers. A constant step size takes part in the same few products again and again.
KEPT = 256
_NEGATIVE = "neg", 0.0
_PLAIN = (float, int)


class DisagreementError(RunError):
    """The settings of a group do not agree on what the world must know."""

    def __init__(self, what: str = "a single number") -> None:
        super().__init__(f"the settings of a group do not agree on {what}")


class Each:
    """One number for each setting of a group; see the module.

    Attributes:
        values: [settings].
    """

    __slots__ = ("_known", "values")
    __array_ufunc__ = None  # NumPy's numbers leave an operation to this class

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = tuple(values)
        self._known: dict[tuple[str, float], Any] = {}

    def __repr__(self) -> str:
        return f"Each({', '.join(map(repr, self.values))})"

    def __bool__(self) -> bool:
        return _agreed([bool(value) for value in self.values], "whether it is 0")

    def _refuse(self, *_: object) -> NoReturn:
        raise DisagreementError

    __hash__ = __float__ = __int__ = __index__ = __complex__ = __round__ = _refuse
    __trunc__ = __floor__ = __ceil__ = __format__ = _refuse

    def __neg__(self) -> Any:
        known = self._known.get(_NEGATIVE)
        if known is None:
            known = self._known[_NEGATIVE] = each_of([-value for value in self.values])
        return known

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return each_of([abs(value) for value in self.values])

    def square_root(self) -> Any:
        """Return the square root of each."""
        return each_of([square_root(value) for value in self.values])

    def _with(
        self, name: str, function: Callable[[Any, Any], Any], other: Any, make: Callable[[list[Any]], Any]
    ) -> Any:
        """Return a function of this number and another one, value by value."""
        if other.__class__ is Each:
            return make([function(value, own) for value, own in zip(self.values, other.values, strict=True)])
        if not isinstance(other, int | float | np.number | np.bool_):
            return NotImplemented
        made = make([function(value, other) for value in self.values])
        # 2 and 2.0 may be one key, since Python makes a float of both. -0.0 and 0.0 must not be.
        if other.__class__ in _PLAIN and other and len(self._known) < KEPT:
            self._known[name, other] = made
        return made


def _define(name: str, function: Callable[[Any, Any], Any], make: Callable[[list[Any]], Any]) -> None:
    """Give the class an operator that remembers results with plain numbers."""

    def operate(self: Each, other: Any) -> Any:
        known = self._known.get((name, other)) if other.__class__ in _PLAIN else None
        return self._with(name, function, other, make) if known is None else known

    setattr(Each, f"__{name}__", operate)


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, first: function(first, value)


def _agreed(answers: list[Any], what: str = "a comparison") -> bool:
    first = bool(answers[0])
    if any(bool(answer) is not first for answer in answers):
        raise DisagreementError(what)
    return first


class EachArray:
    """One array for each setting of a group, of one shape; only the tape takes it.

    Attributes:
        values: [settings].
    """

    __slots__ = ("values",)
    __array_ufunc__ = None

    def __init__(self, values: Sequence[NDArray[Any]]) -> None:
        self.values = tuple(values)

    def __len__(self) -> int:
        return len(self.values[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each."""
        return self.values[0].shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of their numbers."""
        return self.values[0].dtype

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise DisagreementError("an array")

    __array__ = __getitem__ = __iter__ = _refuse


def array_for_each(values: Sequence[NDArray[Any]]) -> Any:
    """Return an array for each setting: a plain one if all have the same bits."""
    first = values[0]
    return first if all(value.tobytes() == first.tobytes() for value in values) else EachArray(values)


def filled(size: int, value: Any) -> Any:
    """Return a vector f32 [size] of one number, for each setting."""
    if value.__class__ is not Each:
        return np.full(size, value, dtype=np.float32)
    return EachArray([np.full(size, float(one), dtype=np.float32) for one in value.values])


def each_of(values: Iterable[Any]) -> Any:
    """Return a number for each setting.

    It is a plain one if all are the same, else an `Each`.
    """
    listed = list(values)
    first = listed[0]
    is_one = all(value.__class__ is first.__class__ and value == first for value in listed)
    if is_one and (first or isinstance(first, int) or len(listed) == 1):  # 0.0 == -0.0
        return first
    return Each(listed)


def of_each(function: Callable[..., Any], *numbers: Any) -> Any:
    """Return a function of numbers, an `Each` if one of them is one."""
    settings = next((len(value.values) for value in numbers if value.__class__ is Each), 0)
    if not settings:
        return function(*numbers)
    return each_of([function(*(of_setting(value, k) for value in numbers)) for k in range(settings)])


def square_root(value: Any) -> Any:
    """Return the square root of a number, value by value."""
    return value.square_root() if hasattr(value, "square_root") else math.sqrt(value)


def number(value: Any) -> float:
    """Return a float, or the `Each` that it is."""
    return value if value.__class__ is Each else float(value)  # type: ignore[return-value]


def of_setting(value: Any, setting: int) -> Any:
    """Return what a number or an array is in one setting."""
    return value.values[setting] if isinstance(value, Each | EachArray) else value


@dataclass
class Varied:
    """Entries of an array that differ between settings.

    Attributes:
        places: their places in the flat array, int64 [m].
        values: [settings, m].
    """

    places: NDArray[np.int64]
    values: NDArray[Any]

    def moved(self, places: NDArray[np.int64]) -> Varied:
        """Return the same values at other places."""
        return Varied(places, self.values)

    def into(self, array: NDArray[Any], setting: int) -> NDArray[Any]:
        """Return a copy of an array with the entries of a setting."""
        copy = array.copy()
        copy.reshape(-1)[self.places] = self.values[setting]
        return copy


def array_of(values: list[Any], dtype: DTypeLike) -> tuple[NDArray[Any], Varied | None]:
    """Return numbers as an array [n], and what differs between settings.

    The array has 0 there.
    """
    places = [place for place, value in enumerate(values) if value.__class__ is Each]
    if not places:
        return np.fromiter(values, dtype, len(values)), None
    different = np.array([values[place].values for place in places], dtype=np.float64).astype(dtype)
    for place in places:
        values[place] = 0.0
    return np.fromiter(values, dtype, len(values)), Varied(
        np.array(places, dtype=np.int64), np.ascontiguousarray(different.T)
    )


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _function = getattr(operator, _name)
    _define(_name, _function, each_of)
    _define(f"r{_name}", _reflected(_function), each_of)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _define(_name, getattr(operator, _name), _agreed)
