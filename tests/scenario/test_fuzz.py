"""Randomly broken scenarios: each is rejected in short lines, quickly, and without leftovers.

Valid scenarios are damaged as values (types, missing, unknown and doubled keys, extremes, nesting) and as text (cut,
bytes that are no text, anchors, doubled lines). Most are only loaded; some that are still valid are prepared as well.
`SIMFL_FUZZ=20000` tries so many more.
"""

import contextlib
import copy
import itertools
import math
import os
import random
import signal
from pathlib import Path

import pytest
import yaml

from simfl.assembly.data import shared_data
from simfl.errors import SimflError
from simfl.runs.runner import prepare
from simfl.scenario import load, loads
from tests.helpers import limited

TRIES = int(os.environ.get("SIMFL_FUZZ", 2000))
PREPARED = 200
"""One in this many valid scenarios is prepared."""

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
ROOT = Path(__file__).parents[2] / "scenarios"
ODD = [
    *(None, True, False, 0, -1, 1, 2, 1e-300, 1e300, 10**30, -(10**30), 0.5, math.nan, math.inf, -math.inf),
    *("", " ", "x", "1", "nan", "1 s", "-1 s", "1e400 s", "10 lightyears", "auto", "null", "0x10", "1_000"),
    *("\u0000", "\x1b[31m", "\ud7ff\ue000", "a" * 5000, "../../etc", "/dev/zero", "os:system", "nowhere:Class"),
    *([], {}, [[]], [None], [1, 2, 3], {"kind": "x"}, {"a": {"b": {"c": [1, {"d": 2}]}}}, [{"clients": [0]}]),
]
WORDS = [
    "kind", "seed", "seeds", "clients", "count", "algorithm",
    "options", "stop", "time", "every", "<<", "privacy",
    "x",
]  # fmt: skip


def originals():
    """Return the shipped scenarios as plain values, without studies."""
    contents = [
        yaml.load(path.read_text(), LOADER) for path in sorted(ROOT.rglob("*.yaml")) if "studies" not in path.parts
    ]
    return [content for content in contents if "algorithm" in content]


# -- damage ------------------------------------------------------------------------------------


def break_values(content, rng):
    """Damage some values of a scenario."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        place, key = anywhere(content, rng)
        kind = rng.randrange(8)
        if kind < 4:
            place[key] = rng.choice(ODD)
        elif kind == 4:
            del place[key]
        elif kind == 5 and isinstance(place, dict):
            name = rng.choice([*WORDS, str(key)[:-1] or "k", f"{key}s"])
            place[name] = rng.choice(ODD)
        elif kind == 6:
            other, name = anywhere(content, rng)
            with contextlib.suppress(ValueError):  # a recursive value cannot be written
                value = copy.deepcopy(other[name])
                place[key] = value
        else:
            place[key] = rng.choice([[place[key]], {"kind": place[key]}, str(place[key]), {str(key): place[key]}])
        if not content:
            break
    return content


def anywhere(content, rng):
    """Return a container of a scenario and one of its keys."""
    place = content
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = rng.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.75:
            place = place[key]
        else:
            return place, key


def break_text(text, rng):
    """Damage the text of a scenario, as bytes."""
    lines = text.splitlines(keepends=True)
    kind = rng.randrange(9)
    spot = rng.randrange(len(lines))
    if kind == 0:
        return text.encode()[: rng.randrange(len(text))]
    if kind == 1:
        content = bytearray(text.encode())
        for _ in range(rng.choice([1, 3, 20])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        return bytes(content)
    if kind == 2:
        lines.insert(spot, rng.choice(lines))
    elif kind == 3:
        lines[spot] = (
            rng.choice([" ", "\t", "  - ", "? ", "- - ", "!!python/object:os.system ", "%TAG ! x\n"]) + lines[spot]
        )
    elif kind == 4:
        lines[spot] = lines[spot].replace(":", rng.choice([" ", ": &a *a", ": *b", ": !!set ", ": |", ": 'x", "::"]), 1)
    elif kind == 5:
        depth = rng.choice([5, 60, 3000])
        lines.append(f"x: {'[' * depth}{']' * depth}\n")
    elif kind == 6:
        lines.append("a: &a [1]\n")
        lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in itertools.pairwise("abcdefg")]
    elif kind == 7:
        return rng.choice(
            [text.encode("utf-16"), b"\xff" + text.encode(), b"", b"\x00", b"---\n" * 50, rng.randbytes(99)]
        )
    else:
        lines.append("# " + "x" * rng.choice([10, 100_000]) + "\n" + "seed: " + "9" * rng.choice([5, 5000]) + "\n")
    return "".join(lines).encode()


def broken(scenarios, rng):
    """Return a broken scenario as bytes."""
    content = copy.deepcopy(rng.choice(scenarios))
    if rng.random() < 0.7:
        content = break_values(content, rng)
    with contextlib.suppress(yaml.YAMLError, RecursionError):
        text = yaml.dump(content, Dumper=DUMPER, allow_unicode=True, sort_keys=False)
        return break_text(text, rng) if rng.random() < 0.35 and text.strip() else text.encode(errors="surrogatepass")
    return b"?"


# -- tests --------------------------------------------------------------------


def opened(text, file):
    """Load bytes as a scenario, from a file if they may not be text."""
    if not text.isascii():
        file.write_bytes(text)
        return load(file)
    return loads(text.decode())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="signals of POSIX")
def test_random_damage_is_rejected_in_short_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIMFL_DATA", raising=False)  # loading real sets is slow, and not tested here
    scenarios, rng = originals(), random.Random(5)
    file = Path("s.yaml")
    refused = valid = 0
    with shared_data():
        for number in range(TRIES):
            text = broken(scenarios, rng)
            try:
                with limited(60, "a scenario"):
                    scenario = opened(text, file)
                    valid += 1
                    if valid % PREPARED == 0 and scenario.clients.count <= 1000:
                        prepare(scenario)
            except SimflError as error:
                refused += 1
                check_lines(str(error), number)
            except Exception as error:
                raise AssertionError(f"{number}: {type(error).__name__}: {error}\n{text[:3000]!r}") from error
    assert refused > 0.6 * TRIES
    assert valid > 0.02 * TRIES
    assert os.listdir(tmp_path) in ([], ["s.yaml"]), "nothing is left behind"


def check_lines(message, number):
    """Messages are lines that a terminal can show."""
    for line in message.splitlines():
        assert 0 < len(line) <= 600, (number, line)
        assert line.isprintable(), (number, line)
