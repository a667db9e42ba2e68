"""Write docs/combinations.md: which algorithm accepts which feature of a scenario.

    python docs/make_combinations.py

No cell of its tables is typed in. For each cell, scenarios of four clients are loaded and assembled, as before a run,
and the cell says which of them are accepted. A test compares the page with what this script writes.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from simfl.algorithms import ALGORITHMS
from simfl.assembly.assemble import assemble
from simfl.assembly.data import shared_data
from simfl.cli import listing
from simfl.errors import SimflError
from simfl.robust.attacks import ATTACKS
from simfl.robust.rules import RULES
from simfl.scenario import from_mapping
from simfl.scenario.catalogues import Algorithm
from simfl.scenario.compression import Scheme
from simfl.scenario.fields import kind_of, members_of
from simfl.scenario.meetings import ANY, OF_MESSAGES, OF_SUMS

TARGET = Path(__file__).with_name("combinations.md")

INTRODUCTION = """\
# What goes with what

<!-- Written by docs/make_combinations.py, which loads and assembles a scenario for each cell; run it again. -->

After this page you know which algorithm accepts compressed messages, a bound on staleness, an optimizer, a choice of
clients, robust rules, attackers, secure sums, and noise for examples, clients or users. A feature that an algorithm
does not accept is refused in one line before anything runs.

- *-*: the feature is not accepted.
- **compression**: the schemes ([Compressed messages](compression.md)); *server*: `error_feedback`, `ef21` and `direct`.
- **staleness_bound**: whether `algorithm.staleness_bound` is accepted ([Algorithms](algorithms.md)).
- **graph**: whether clients talk to their neighbors in `topology`. *fixed*: the graph must not change during the run.
- **optimizer**, **server_optimizer**: whether momentum or Adam is accepted ([Optimizers](algorithms.md#optimizers)).
- **selection**: whether `selection` says which clients take part ([Choice of clients](selection.md)).
- **rules**: the rules of `aggregation` ([Hostile clients](robust.md)); *of a sum*: all but `balance` and
  `clipped_gossip`.
- **attacks**: the `attackers` that change messages. Every algorithm of several clients accepts `label_flip`, which
  changes data.
- **secure_sum**: the protocols ([Secure sums](secure_sums.md)).
- **privacy**: the units that a mechanism protects ([What privacy protects](algorithms.md#what-privacy-protects)).

A cell is about its feature alone, beside the algorithm's defaults. The last section lists features that exclude each
other.
"""
WHY = """\
## Why not

The reasons follow from what becomes of an algorithm's messages and of their sums.
"""
PAIRS = """\
## Pairs that exclude each other

For each option, what it must be beside another feature. The refusal says why, and what to do instead.
"""
HEADER = ("kind", "compression", "staleness_bound", "graph", "optimizer", "server_optimizer", "selection", "rules",
          "attacks", "secure_sum", "privacy")  # fmt: skip

#: What an algorithm needs in a scenario that has no other feature.
NEEDED: dict[str, dict[str, Any]] = {
    "centralized_sgd": {"clients": 1},
    "mapa": {"privacy": {"mechanism": "laplace_l2", "neighbors": "replace_one"}},
}
#: A mechanism for each unit, as far as algorithms differ in what they accept.
MECHANISMS = {
    "example": ({"noise_multiplier": 2}, {"mechanism": "one_pass_gaussian"}, NEEDED["mapa"]["privacy"]),
    "client": ({"mechanism": "gaussian_update", "noise_multiplier": 2},),
    "user": ({"unit": "user", "noise_multiplier": 2},),
}
COMPRESSORS = ({"kind": "top_k", "share": 0.5}, {"kind": "moniqua", "theta": 1})
PROTOCOLS = ("bonawitz", "secagg_plus", "lightsecagg")
#: What a protocol of secure sums needs beside it in some algorithms.
BESIDE: tuple[dict[str, Any], ...] = ({}, {"buffer_size": 3, "after_update": "wait"})
#: Keys with values in the words of refusals.
KEYS = re.compile(r"\b((?:privacy\.)?(?:cohorts|noise|rounds|unit|where): [a-z_]+)\b")
SECTIONS = {kind_of(section, "kind"): section for section in members_of(Algorithm)}


def accepts(kind: str, options: Mapping[str, Any] | None = None, **sections: Any) -> bool:
    """Return whether a scenario of this algorithm can be assembled."""
    content = {
        "data": {"set": "logistic", "samples": 160, "dimension": 4},
        "model": "logistic",
        "clients": 4,
        "stop": {"updates": 12},
        **NEEDED.get(kind, {}),
        **sections,
        "algorithm": {"kind": kind, "batch_size": 8, **(options or {})},
    }
    try:
        assemble(from_mapping(content))
    except SimflError:
        return False
    return True


#: Words that the page explains for a list that many algorithms share.
SHORT = {
    "`error_feedback`, `ef21`, `direct`": "*server*",
    "all but `balance`, `clipped_gossip`": "*of a sum*",
}


def compression(kind: str) -> str:
    """Return the schemes of compressed messages."""
    ways = [{**gamma, **compressor} for gamma in ({"gamma": 0.5}, {}) for compressor in COMPRESSORS]

    def takes(scheme: str) -> bool:
        return any(accepts(kind, compression={"scheme": scheme, **way}) for way in ways)

    return _listed(filter(takes, get_args(Scheme)))


def bound(kind: str) -> str:
    """Return whether staleness can be bounded."""
    return _yes("staleness_bound" in SECTIONS[kind].model_fields and accepts(kind, {"staleness_bound": {"bound": 2}}))


def graph(kind: str) -> str:
    """Return which graphs of clients it uses."""
    field = SECTIONS[kind].model_fields.get("graph")
    chosen = field is not None and "topology" in get_args(field.annotation)
    options = {"graph": "topology"} if chosen else {}
    if not SECTIONS[kind].model_validate({"kind": kind, **options}).follows_topology:  # type: ignore[attr-defined]
        return "-"
    ring = {"graph": "ring"}
    changing = {"kind": "sequence", "graphs": [ring, {"from": "1 s", "graph": "complete"}], "every": "2 s"}
    words = "yes" if accepts(kind, options, topology=changing) else "fixed"
    return f"{words}, with `graph: topology`" if chosen else words


def optimizer(kind: str) -> str:
    """Return whether clients take an optimizer."""
    return _yes(any(accepts(kind, {"optimizer": one}) for one in ("momentum", "adam")))


def server_optimizer(kind: str) -> str:
    """Return whether the server takes an optimizer."""
    known = "server_optimizer" in SECTIONS[kind].model_fields
    return _yes(known and any(accepts(kind, {"server_optimizer": one}) for one in ("momentum", "adam")))


def selection(kind: str) -> str:
    """Return whether a server chooses clients."""
    return _yes(accepts(kind, selection="fastest"))


def rules(kind: str) -> str:
    """Return the rules, of which those that need the same are accepted alike."""
    named = {name: rule.among for name, rule in RULES.items() if rule.among != "before"}
    return _chosen(named, lambda name: accepts(kind, aggregation={"kind": name}))


def attacks(kind: str) -> str:
    """Return the attacks on messages, of which those that need the same are accepted alike."""
    if NEEDED.get(kind, {}).get("clients") != 1 and not accepts(kind, attackers={"kind": "label_flip", "clients": [1]}):
        raise ValueError(f"{kind}: expected one that accepts label_flip, as the page says of all")
    named = {name: attack.among for name, attack in ATTACKS.items() if not attack.on_data}
    return _chosen(named, lambda name: accepts(kind, attackers={"kind": name, "clients": [1]}))


def secure_sum(kind: str) -> str:
    """Return the protocols of secure sums."""
    if "secure_sum" not in SECTIONS[kind].model_fields:
        return "-"
    fields = {*SECTIONS[kind].model_fields}
    ways = [way for way in BESIDE if {*way} <= fields]
    return _listed(name for name in PROTOCOLS if any(accepts(kind, {"secure_sum": name, **way}) for way in ways))


def privacy(kind: str) -> str:
    """Return the units that noise may protect."""
    units = (unit for unit, ways in MECHANISMS.items() if any(accepts(kind, privacy=way) for way in ways))
    return ", ".join(units) or "-"


CELLS = (compression, bound, graph, optimizer, server_optimizer, selection, rules, attacks, secure_sum, privacy)


def row(kind: str) -> str:
    """Return the line of an algorithm in the table."""
    if not accepts(kind):
        raise ValueError(f"{kind}: expected a scenario that can be assembled: see NEEDED")
    cells = [cell(kind) for cell in CELLS]
    return f"| `{kind}` | {' | '.join(SHORT.get(cell, cell) for cell in cells)} |"


def page(rows: Mapping[str, str] | None = None) -> str:
    """Return the page, with the given lines of algorithms or newly made ones."""
    lines = [INTRODUCTION, f"| {' | '.join(HEADER)} |", "| --- " * len(HEADER) + "|"]
    lines += [row(kind) if rows is None else rows[kind] for kind in listing.algorithms()]
    lines += ["", *WHY.splitlines(), *reasons(), "", *PAIRS.splitlines(), "", *pairs()]
    return "\n".join(lines) + "\n"


def reasons() -> Iterator[str]:
    """Yield the lines that say which algorithms take no feature of a seam, and why."""
    why: dict[str, dict[str, list[str]]] = {"compression": {}, "rules and attacks on messages": {}, "users": {}}
    compression, rules, users = why.values()
    for kind in sorted(ALGORITHMS):
        uses = SECTIONS[kind].uses  # type: ignore[attr-defined]
        compression.setdefault(uses.messages.why, []).append(kind)
        rules.setdefault(uses.summing.why, []).append(kind)
        users.setdefault("" if uses.summing.noise else uses.why_no_noise, []).append(kind)
    for what, kinds in why.items():
        yield from ("", f"No {'noise for ' * (what == 'users')}{what}:", "")
        for reason in filter(None, sorted(kinds)):
            yield from _wrapped(f"- {_listed(kinds[reason])}: {reason}.")


def pairs() -> Iterator[str]:
    """Yield the lines of features that exclude each other, with what to use where it depends on a kind."""
    algorithm, privacy = SimpleNamespace(kind="..."), SimpleNamespace(mechanism="...", where="...", correlated="...")
    privacy.claim = algorithm
    options: dict[str, list[str]] = {}
    for pair in (*ANY, *OF_MESSAGES, *OF_SUMS):
        expected = pair.expected.format(a=algorithm, p=privacy)
        words = f"{expected} ({pair.why})" if "'...'" in expected else expected
        options.setdefault(KEYS.sub(r"`\1`", words), []).append(pair.at)
    for words, at in options.items():
        yield from _wrapped(f"- {_listed(dict.fromkeys(at))}: {words}.")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 120, subsequent_indent="  ")


def _chosen(needs: Mapping[str, Any], accepted: Callable[[str], bool]) -> str:
    """Return names as they are shortest: those that are accepted, or those that are not."""
    one_of_each = {need: accepted(name) for name, need in needs.items()}
    names = [name for name, need in needs.items() if one_of_each[need]]
    others: Sequence[str] = [name for name in needs if name not in names]
    if names and others and len(others) < len(names):
        return f"all but {_listed(others)}"
    return "all" if names and not others else _listed(names)


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def _yes(accepted: bool) -> str:
    return "yes" if accepted else "-"


def rows(kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each algorithm with its line."""
    with shared_data():
        for kind in kinds:
            yield kind, row(kind)


if __name__ == "__main__":
    TARGET.write_text(page(dict(rows([*ALGORITHMS]))), encoding="utf-8")
    print(TARGET)
