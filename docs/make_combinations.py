"""Write docs/combinations.md: which algorithm accepts which feature of a scenario.

    python docs/make_combinations.py

No cell of its tables is typed in. For each cell, scenarios of four clients are loaded and assembled, as before a run,
and the cell says which of them are accepted. A test compares the page with what this script writes.
"""

from __future__ import annotations

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
from simfl.scenario.meetings import ANY, OF_MESSAGES, OF_SUMS, Row

TARGET = Path(__file__).with_name("combinations.md")

INTRODUCTION = """\
# What goes with what

<!-- Written by docs/make_combinations.py, which loads and assembles a scenario for each cell; run it again. -->

After this page you know which algorithm accepts compressed messages, a bound on staleness, an optimizer, a choice of
clients, robust rules, attackers, secure sums, and noise for examples, clients or users. A feature that an algorithm
does not accept is refused in one line before anything runs.

- **compression**: the schemes ([Compressed messages](compression.md)). `error_feedback` and `ef21` are for updates to a
  server.
- **staleness_bound**: whether `algorithm.staleness_bound` is accepted ([Algorithms](algorithms.md)).
- **graph**: whether clients talk to their neighbors in `topology`. *fixed*: the graph must not change during the run.
- **optimizer**, **server_optimizer**: whether momentum or Adam is accepted ([Optimizers](algorithms.md#optimizers)).
- **selection**: whether `selection` says which clients take part ([Choice of clients](selection.md)).
- **rules**: the rules of `aggregation`; **attacks**: those of `attackers` ([Hostile clients](robust.md)). Every
  algorithm of several clients accepts `label_flip`, which changes data and not messages.
- **secure_sum**: the protocols ([Secure sums](secure_sums.md)).
- **privacy**: the units that a mechanism protects. Whether an epsilon is certified also depends on the options:
  [the last column of the algorithms' tables](algorithms.md) says more.

A cell is about its feature alone, beside the algorithm's defaults. Two features that an algorithm accepts one by one
may exclude each other: the last section lists these pairs.
"""
WHY = """\
## Why not

An algorithm says what becomes of its messages and of their sums (`uses`, in `simfl/scenario/seams.py`). The reasons
follow from that, and refusals say them.
"""
PAIRS = """\
## Pairs that exclude each other

For each option, what it must be beside another feature, and why. Sizes are checked, too, against each other and against
the number of clients.
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
        return "no"
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
    """Return the attacks, of which those that need the same are accepted alike."""
    named = {name: (attack.among, attack.on_data) for name, attack in ATTACKS.items()}
    return _chosen(named, lambda name: accepts(kind, attackers={"kind": name, "clients": [1]}))


def secure_sum(kind: str) -> str:
    """Return the protocols of secure sums."""
    if "secure_sum" not in SECTIONS[kind].model_fields:
        return "no"
    fields = {*SECTIONS[kind].model_fields}
    ways = [way for way in BESIDE if {*way} <= fields]
    return _listed(name for name in PROTOCOLS if any(accepts(kind, {"secure_sum": name, **way}) for way in ways))


def privacy(kind: str) -> str:
    """Return the units that noise may protect."""
    units = (unit for unit, ways in MECHANISMS.items() if any(accepts(kind, privacy=way) for way in ways))
    return ", ".join(units) or "no"


CELLS = (compression, bound, graph, optimizer, server_optimizer, selection, rules, attacks, secure_sum, privacy)


def row(kind: str) -> str:
    """Return the line of an algorithm in the table."""
    if not accepts(kind):
        raise ValueError(f"{kind}: expected a scenario that can be assembled: see NEEDED")
    return f"| `{kind}` | {' | '.join(cell(kind) for cell in CELLS)} |"


def page(rows: Mapping[str, str] | None = None) -> str:
    """Return the page, with the given lines of algorithms or newly made ones."""
    lines, family = [INTRODUCTION.rstrip("\n")], None
    for kind, entry in listing.algorithms().items():
        if entry.details["family"] != family:
            family = entry.details["family"]
            lines += ["", f"## {family.capitalize()}", "", f"| {' | '.join(HEADER)} |", "| --- " * len(HEADER) + "|"]
        lines.append(row(kind) if rows is None else rows[kind])
    lines += ["", *WHY.splitlines(), "", *reasons(), "", *PAIRS.splitlines(), ""]
    lines += [line for pair in (*ANY, *OF_MESSAGES, *OF_SUMS) for line in _item(pair)]
    return "\n".join(lines) + "\n"


def reasons() -> Iterator[str]:
    """Yield the lines that say which algorithms take no feature of a seam, and why."""
    why: dict[tuple[str, str], list[str]] = {}
    for kind in sorted(ALGORITHMS):
        uses = SECTIONS[kind].uses  # type: ignore[attr-defined]
        why.setdefault(("No compression", uses.messages.why), []).append(kind)
        why.setdefault(("No rules and no attacks on messages", uses.summing.why), []).append(kind)
        why.setdefault(("No noise for users", "" if uses.summing.noise else uses.why_no_noise), []).append(kind)
    for (what, reason), kinds in sorted(why.items()):
        if reason:
            yield from _wrapped(f"- {what} with {_listed(kinds)}: {reason}.")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 120, subsequent_indent="  ")


def _item(pair: Row) -> list[str]:
    """Return the lines of two features that exclude each other."""
    algorithm, privacy = SimpleNamespace(kind="..."), SimpleNamespace(mechanism="...", where="...", correlated="...")
    privacy.claim = algorithm
    expected = pair.expected.format(a=algorithm, p=privacy)
    return _wrapped(f"- `{pair.at}`: {expected}. Reason: {pair.why}.")


def _chosen(needs: Mapping[str, Any], accepted: Callable[[str], bool]) -> str:
    """Return names as they are shortest: those that are accepted, or those that are not."""
    one_of_each = {need: accepted(name) for name, need in needs.items()}
    names = [name for name, need in needs.items() if one_of_each[need]]
    others: Sequence[str] = [name for name in needs if name not in names]
    if names and others and len(others) < len(names):
        return f"all but {_listed(others)}"
    return "all" if names and not others else _listed(names)


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names) or "no"


def _yes(accepted: bool) -> str:
    return "yes" if accepted else "no"


def rows(kinds: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each algorithm with its line."""
    with shared_data():
        for kind in kinds:
            yield kind, row(kind)


if __name__ == "__main__":
    TARGET.write_text(page(dict(rows([*ALGORITHMS]))), encoding="utf-8")
    print(TARGET)
