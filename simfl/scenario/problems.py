"""Problems of one value: where, expected, found, and advice.

Checks in this room raise `InvalidValueError`, a `ValueError`. Pydantic collects it with its own errors, and
`simfl.scenario.errors` writes all of them as lines of one form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from simfl.errors import nearest

Path = tuple[str | int, ...]

_WIDEST = 40


@dataclass(frozen=True)
class Problem:
    """One problem.

    Args:
        expected: a valid value, as a noun phrase.
        found: the present value, as `show` returns it.
        advice: what to do, in the imperative.
        at: the key path from the checked object to the value.
    """

    expected: str
    found: str
    advice: str
    at: Path = ()

    def below(self, path: Path) -> Problem:
        """Return the same problem below the key path `path`."""
        return replace(self, at=path + self.at)

    def __str__(self) -> str:
        return f"expected {self.expected}, found {self.found}; {self.advice}"


class InvalidValueError(ValueError):
    """Problems of an object under validation; a `ValueError`, as pydantic requires."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def invalid(expected: str, found: str, advice: str, at: Path = ()) -> InvalidValueError:
    """Return the error of one `Problem`."""
    return InvalidValueError(Problem(expected, found, advice, at))


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def show(value: object) -> str:
    """Return `value` as YAML on one line, at most about 40 characters."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value if len(value) <= _WIDEST else value[: _WIDEST - 3] + "...")
        case float():
            return repr(value)
        case int():  # one of thousands of digits cannot be printed, one of fifty is unreadable
            return repr(value) if abs(value) < 10**_WIDEST else "a very large number"
        case list() | tuple():
            text = "[" + ", ".join(show(item) for item in value[:_WIDEST]) + "]"
            return text if len(text) <= _WIDEST else f"a list of {len(value)}"
        case Mapping():
            return "a mapping" if value else "an empty mapping"
    named = [getattr(value, key) for key in ("kind", "mechanism", "correlated") if hasattr(value, key)]
    return repr(named[0]) if named else f"a {_words(type(value).__name__)}"


def show_default(value: object) -> str:
    """Return a default in words: a section by its kind, a text without quotes."""
    value = getattr(value, "kind", "null" if value is None else value)
    return value if isinstance(value, str) else show(value).removesuffix(".0")


def _words(name: str) -> str:
    """Return the words of a class's name: StalenessBound is a staleness bound."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def one_of(words: Iterable[str]) -> str:
    """Return "a, b or c"."""
    listed = list(words)
    return listed[0] if len(listed) == 1 else ", ".join(listed[:-1]) + " or " + listed[-1]


def suggestion(word: object, valid: Iterable[str], otherwise: str) -> str:
    """Return the advice "did you mean 'x'?" for the nearest valid word."""
    return nearest(word, valid).removeprefix("; ") or otherwise


def spell(path: Path) -> str:
    """Return a key path as in messages and overrides: `slowdowns.0.factor`."""
    parts = [str(part) for part in path]
    plain = all(part.isprintable() and len(part) <= _WIDEST and not set(part) & set(" .") for part in parts)
    return ".".join(parts if plain else [repr(part[:_WIDEST]) if isinstance(part, str) else part for part in parts])


def one_each(values: int, count: int, at: Path) -> Iterator[Problem]:
    """Yield a problem if a list does not have one value for each client."""
    if values != count:
        yield Problem(f"{count} values, one for each client", str(values), "change the list or clients.count", at)
