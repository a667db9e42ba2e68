"""Privacy of networks: what A(DP)²SGD's workers learn about each other.

No paper has this study. It compares asynchronous runs with two claims of the literature on gossip, which are proved for
rounds. The first is that a node farther away learns less (Muffliato, and later accounts of gossip). The second is that
one node reconstructs what distant others hold (El Mrini, Cyffers and Bellet). The worlds of the runs are replayed to
get accounts and matrices.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simfl.accounts.figures import plot_by_distance
from simfl.accounts.network import Network, network
from simfl.accounts.views import recovered, rounding_of
from simfl.papers.drawing import Figure, labeled, log_axis, panels
from simfl.plots.style import PALETTE, color_of
from simfl.records import Run
from simfl.reproduction.evidence import SEEDS, Part, Reading, above, below, show
from simfl.reproduction.papers import Experiment, Number, Paper, PaperClaim, Runs, Section, accuracy, mean
from simfl.reproduction.reproducing import scenarios_folder
from simfl.scenario import from_mapping, load

if TYPE_CHECKING:
    import pandas as pd

WORKERS = Section("A(DP)²SGD's 16 workers")
CASES = {"case I": "case1", "case II": "case2"}
LEAD = 0.1
"""Points of accuracy below which a lead of one graph counts as none."""
ALIKE = 0.05
"""The share below which a difference of epsilons, or of what is solved for, counts as none."""
SLOW = 3
"""The worker that is ten times slower in case II."""
ASYNCHRONOUS, ROUNDS, SYNC = "A(DP)²SGD", "D-PSGD", "SYNC"
METHODS = {ASYNCHRONOUS: "adpsgd", ROUNDS: "decentralized_sgd"}
GRAPHS = ("ring", "torus", "exponential", "complete")
ALL = "everybody"
"""SYNC's graph."""

#: The paper's cases with few, large mini-batches, so that accounts of all pairs take seconds.
_BRIEF = ("algorithm.batch_size=512", "algorithm.step_size=1.0", "stop={epochs: 4}",
          "evaluate={every: {epochs: 1}, clients: true}", "record.updates=false")  # fmt: skip
_DPSGD = "algorithm={kind: decentralized_sgd, batch_size: 512, sampling: poisson, step_size: 1.0}"

NETWORKS: dict[str, tuple[int, str]] = {
    "ring": (16, "ring"),
    "random regular": (16, "{kind: regular, degree: 4}"),
    "Florentine families": (15, "florentine.txt"),
    "karate club": (34, "karate.txt"),
}
"""Name -> clients, and the topology or the file of its links."""
STEPS = (5, 10, 20, 40)
"""Gradients of every client that an attacker has seen when it solves for them."""
EACH, NOISY = 10, 20
"""The same where it solves for each gradient by itself, and where gradients have noise."""
SOLVERS = {"decentralized_sgd": ROUNDS, "adpsgd": "AD-PSGD"}
KINDS = {"epsilon": "certified", "published": "as published"}
"""Column of pairs -> its name in tables."""
CLOSE = 0.1
"""Relative error up to which a gradient from 32-bit messages counts as found."""
SMALL = ("ring", "random regular", "Florentine families")
"""The networks that are also solved with noise."""
NOISE = 1.0
"""Noise multiplier, at clipping norm 1, of the gradients with noise."""


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return A(DP)²SGD, D-PSGD on four graphs, and SYNC, with slow learners."""
    cases, graphs = (["case II"], ("ring", "complete")) if quick else ([*CASES], GRAPHS)
    places = [*itertools.product(cases, graphs, METHODS), *((case, ALL, SYNC) for case in cases)]
    made = []
    for case, graph, method in places:
        base = f"adp2sgd/{CASES[case]}-{'sync' if method == SYNC else 'adpsgd'}.yaml"
        changes = (*[_DPSGD] * (method == ROUNDS), *_BRIEF, *[f"topology={graph}"] * (graph != ALL))
        made.append(Experiment(WORKERS, (case, method, graph), base, changes, 2 if quick else SEEDS))
    return made


def account(run: Run) -> pd.DataFrame:
    """Return the table of pairs of a run's world."""
    return _account(json.dumps(run.scenario))


@functools.cache
def _account(text: str) -> pd.DataFrame:
    return network(from_mapping(json.loads(text))).pairs


def pairs(runs: Runs, cell: tuple[Any, ...], who: str, column: str) -> tuple[float, ...]:
    """Return the median epsilon of one worker for another, of the world of every seed.

    `who` is "a neighbor", "the farthest", "the slow one" (others learn about it) or "for the slow one" (it learns about
    others); `column` is "epsilon", the certified one, or "published".
    """
    return runs.each(WORKERS, cell, functools.partial(_median, who=who, column=column))


def _median(run: Run, who: str, column: str) -> float:
    table = account(run)
    slow, observer = table["client"] == SLOW, table["observer"] == str(SLOW)
    others = table["distance"].where(~slow & ~observer)  # a largest distance may be that from the slow one alone
    rows = {
        "a neighbor": others == 1.0,
        "the farthest": others == others.max(),
        "the slow one": slow,
        "for the slow one": observer,
    }[who]
    return float(table[column][rows].median())


def worst(run: Run) -> float:
    """Return the worst worker's final test accuracy in percent."""
    if run.algorithm == "sync_sgd":
        return accuracy(run)
    return 100 * float(run.client_metrics.groupby("client")["test_accuracy"].last().min())


def solved(graph: str, kind: str, steps: int, noise: bool = False) -> dict[str, tuple[float, ...]]:
    """Return the mean share of other clients that one node solves for.

    `graph` is one of `NETWORKS`, `kind` that of the algorithm, `steps` the number of gradients of each client.

    Returns:
        One value per seed of each of these shares. "neighbors": clients that are linked with the node. "slow": clients
        that it solves for if all gradients of a client are equal. "32 bits": the same, with the rounding of messages.
        With noise, "noise": as "slow", if the error is below the noise of a gradient. After `EACH` steps, "each":
        clients of which it finds a single gradient, and "beyond": those of them that are not neighbors.
    """
    worlds = [_solved(graph, kind, steps, noise, seed) for seed in range(1, SEEDS + 1)]
    return {name: tuple(world[name] for world in worlds) for name in worlds[0]}


@functools.cache
def _solved(graph: str, kind: str, steps: int, noise: bool, seed: int) -> dict[str, float]:
    count, topology = NETWORKS[graph]
    folder = scenarios_folder() / "network_privacy"
    if topology.endswith(".txt"):
        topology = json.dumps({"kind": "edge_list", "path": str(folder / topology)})
    changes = [f"clients.count={count}", f"topology={topology}", f"stop.updates={count * steps}", f"seed={seed}"]
    changes += [f"privacy={{clipping_norm: 1, noise_multiplier: {NOISE}}}"] * noise
    network = Network(load(folder / "solved.yaml", [f"algorithm.kind={kind}", *changes]))
    everything = network.observer(["links"])
    rows = network.seen(everything)
    place = {row: number for number, row in enumerate(rows)}
    a, _ = network.matrices(rows, everything)
    sums = a @ (network.owners[:, None] == np.arange(count))
    shares: dict[str, list[float]] = {}
    for observer in network.observers:
        others = [client for client in range(count) if client not in observer.nodes]
        own = [place[row] for row in network.seen(observer)]
        near = network.distances(observer)[others] == 1.0
        possible = recovered(sums[own][:, others])
        says = {"neighbors": near, "slow": possible}
        if noise:
            says["noise"] = network.reconstruction(observer, slow=True)["std"].to_numpy() < NOISE
        else:
            says["32 bits"] = rounding_of(sums[own][:, others], possible) < CLOSE
        if steps == EACH:
            columns = np.flatnonzero(np.isin(network.owners, others))
            whose = network.owners[columns[recovered(a[own][:, columns])]]
            says["each"] = np.isin(others, whose)
            says["beyond"] = says["each"] & ~near
        for name, held in says.items():
            shares.setdefault(name, []).append(float(np.mean(held)))
    return {name: mean(values) for name, values in shares.items()}


def row_of(cell: tuple[Any, ...]) -> str:
    """Return how a cell is named in tables."""
    case, method, graph = cell
    return f"{case}, {method}" if graph == ALL else f"{case}, {method}, {graph}"


def epsilons(runs: Runs) -> Iterator[Number]:
    """Yield what one worker learns about another."""
    part = "Epsilon of one worker for another at delta = 1e-5: medians over pairs"
    for cell in runs.cells(WORKERS):
        whos = ["a neighbor", "the farthest"]
        whos += ["the slow one", "for the slow one"] * (cell[0] == "case II")
        for who, (column, kind) in itertools.product(whos, KINDS.items()):
            yield Number(part, row_of(cell), f"{who}, {kind}", pairs(runs, cell, who, column), digits=3)


def trades(runs: Runs) -> Iterator[Number]:
    """Yield accuracy and time."""
    part = "Accuracy and time after 4 epochs"
    for cell in runs.cells(WORKERS):
        row = row_of(cell)
        yield Number(part, row, "mean model, %", runs.accuracy(WORKERS, cell))
        yield Number(part, row, "worst worker's own model, %", runs.each(WORKERS, cell, worst))
        yield Number(part, row, "virtual time, s", runs.each(WORKERS, cell, lambda run: run.manifest.time_s))
        yield Number(part, row, "largest certified epsilon", runs.epsilon(WORKERS, cell), digits=3)


def reconstructed(runs: Runs) -> Iterator[Number]:
    """Yield the shares of clients that an attacker solves for."""
    runs.require(WORKERS)
    part = (
        "Share of other clients that one attacker solves for (mean over attackers), by the number of gradients of each"
    )
    for graph, (kind, name) in itertools.product(NETWORKS, SOLVERS.items()):
        row, first = f"{graph}, {name}", solved(graph, kind, EACH)
        yield Number(part, row, "neighbors", first["neighbors"])
        yield Number(part, row, f"each gradient by itself, {EACH}", first["each"], digits=3)
        yield Number(part, row, f"of these no neighbors, {EACH}", first["beyond"], digits=3)
        for reading, words in (("slow", "a client's gradients are one"), ("32 bits", "the same, 32 bits")):
            for steps in STEPS:
                yield Number(part, row, f"{words}, {steps}", solved(graph, kind, steps)[reading])
    part = f"The same with noise (z = {NOISE:g}): found with less error than one gradient has, after {NOISY} of each"
    for graph, (kind, name) in itertools.product(SMALL, SOLVERS.items()):
        shares = solved(graph, kind, NOISY, noise=True)
        yield Number(part, f"{graph}, {name}", "neighbors", shares["neighbors"])
        yield Number(part, f"{graph}, {name}", "a client's gradients are one", shares["noise"])


def less(one: Sequence[float], other: Sequence[float], text: str, share: float = 1.0) -> Part:
    """Return whether one thing is smaller than a share of another, world by world.

    Less than `ALIKE` of that share is no difference.
    """
    differences = [first - share * second for first, second in zip(one, other, strict=True)]
    return below(differences, 0.0, text, ALIKE * share * mean(other))


def farther_is_safer(runs: Runs) -> Iterator[Reading]:
    """Judge whether the farthest learn less than half as much as neighbors."""
    for method, (column, account_) in itertools.product(METHODS, KINDS.items()):
        cell = ("case II", method, "ring")
        near, far = (pairs(runs, cell, who, column) for who in ("a neighbor", "the farthest"))
        text = f"ε for a neighbor {show(near)}, for the farthest on a ring {show(far)} (bar: half)"
        yield Reading({"account": account_, "algorithm": method}, [less(far, near, text, 0.5)])


def slow_is_safer(runs: Runs) -> Iterator[Reading]:
    """Judge whether the slow worker reveals less than half as much as others."""
    for method in METHODS:
        cell = ("case II", method, "ring")
        others, slow = (pairs(runs, cell, who, "epsilon") for who in ("a neighbor", "the slow one"))
        text = f"certified ε of the slow one {show(slow)}, of others {show(others)} on a ring (bar: half)"
        yield Reading({"algorithm": method}, [less(slow, others, text, 0.5)])


def graphs_trade(runs: Runs) -> Iterator[Reading]:
    """Judge whether a ring reveals more to neighbors and less to the farthest."""
    for (column, kind), who in itertools.product(KINDS.items(), ("a neighbor", "the farthest")):
        ring, complete = (pairs(runs, ("case II", ASYNCHRONOUS, graph), who, column) for graph in GRAPHS[::3])
        text = f"ε for {who} on a ring {show(ring)}, on a complete graph {show(complete)}"
        part = less(complete, ring, text) if who == "a neighbor" else less(ring, complete, text)
        yield Reading({"account": kind}, [part])


def graphs_cost(runs: Runs) -> Iterator[Reading]:
    """Judge whether a complete graph is more accurate than a ring."""
    complete, ring = (("case II", ASYNCHRONOUS, graph) for graph in ("complete", "ring"))
    leads = {
        "the mean of all": runs.ahead(WORKERS, complete, ring),
        "the worst worker's own": runs.pairs(WORKERS, complete, ring, lambda one, other: worst(one) - worst(other)),
    }
    for model, values in leads.items():
        text = f"A(DP)²SGD on a complete graph is {show(values, sign=True)} points ahead of a ring"
        yield Reading({"model": model}, [above(values, 0.0, text, least=LEAD)])


def reaches_beyond(runs: Runs) -> Iterator[Reading]:
    """Judge whether an attacker on D-PSGD solves for more clients than its neighbors."""
    runs.require(WORKERS)
    for graph in NETWORKS:
        share, each = solved(graph, "decentralized_sgd", STEPS[-1]), solved(graph, "decentralized_sgd", EACH)
        text = (
            f"after {STEPS[-1]} rounds solves for {_share(share['32 bits'])} of others from 32-bit messages, "
            f"{_share(share['neighbors'])} are neighbors"
        )
        yield Reading({"gradients": "one for each client", "graph": graph},
                      [less(share["neighbors"], share["32 bits"], text)])  # fmt: skip
        text = f"after {EACH} rounds finds a gradient of {_share(each['beyond'])} of others that are not neighbors"
        alone = Part(min(each["beyond"]) > 0, text)
        yield Reading({"gradients": "differ from round to round", "graph": graph}, [alone])


def asynchrony_protects(runs: Runs) -> Iterator[Reading]:
    """Judge whether an attacker solves for fewer clients of AD-PSGD."""
    runs.require(WORKERS)
    for steps, graph in itertools.product((STEPS[0], STEPS[-1]), NETWORKS):
        rounds, pairwise = (solved(graph, kind, steps)["32 bits"] for kind in SOLVERS)
        text = f"solved for from 32-bit messages: AD-PSGD {_share(pairwise)}, D-PSGD {_share(rounds)}"
        yield Reading({"gradients of each": str(steps), "graph": graph}, [less(pairwise, rounds, text)])


def noise_hides(runs: Runs) -> Iterator[Reading]:
    """Judge whether, with noise, only neighbors are estimated well."""
    runs.require(WORKERS)
    for (kind, name), graph in itertools.product(SOLVERS.items(), SMALL):
        shares = solved(graph, kind, NOISY, noise=True)
        more = [all_ - near for all_, near in zip(shares["noise"], shares["neighbors"], strict=True)]
        text = (
            f"estimated with less error than one gradient's noise: {_share(shares['noise'])} of others, "
            f"{_share(shares['neighbors'])} are neighbors (bar: a point)"
        )
        yield Reading({"algorithm": name, "graph": graph}, [below(more, 0.01, text)])


def _share(values: Sequence[float]) -> str:
    return f"{show([100 * value for value in values], 0)} %"


def draw_distance(runs: Runs) -> Figure:
    """Draw epsilon over distance on a ring in case II."""
    cells = [("case II", method, "ring") for method in METHODS]
    figure, axes = panels(1, 2, (10, 3.9), sharey=True)
    for axis, cell in zip(axes[0], cells, strict=True):
        run = runs.first(WORKERS, cell)
        table = account(run)
        others = table[(table["client"] != SLOW) & (table["observer"] != str(SLOW))]
        plot_by_distance(others, run.epsilon_and_delta()[1], axis)
        axis.get_legend().remove()
        axis.set_title(f"{cell[1]} on a ring, {cell[0]}")
    axes[0][1].set_ylabel("")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False,
        title="medians over pairs; bands hold the middle 80 %", title_fontsize=9,
    )  # fmt: skip
    return figure


def draw_trade(runs: Runs) -> Figure:
    """Draw epsilon of a neighbor and of the farthest on every graph."""
    runs.require(WORKERS)
    figure, axes = panels(1, 2, (10, 3.6), sharey=True)
    for axis, method in zip(axes[0], METHODS, strict=True):
        graphs = [graph for graph in GRAPHS if runs.has(WORKERS, ("case II", method, graph))]
        for (column, kind), line in zip(KINDS.items(), ("-", "--"), strict=True):
            for who, color, marker in (("a neighbor", PALETTE[0], "o"), ("the farthest", PALETTE[1], "s")):
                values = [mean(pairs(runs, ("case II", method, graph), who, column)) for graph in graphs]
                look = {"marker": marker, "ms": 5.5, "mfc": color if line == "-" else "white"}
                axis.plot(graphs, values, line, color=color, label=f"{who}, {kind}", **look)
        axis.set_title(f"{method}, case II")
        axis.set_ylim(bottom=0)
        axis.margins(x=0.08)
    return labeled(figure, axes, "graph", "ε at δ = 1e-5, median over pairs", columns=2, handlelength=3.2)


def draw_solved(runs: Runs) -> Figure:
    """Draw the share of solved clients over gradients, a panel per graph."""
    runs.require(WORKERS)
    figure, axes = panels(1, len(NETWORKS), (11, 3.5), sharey=True)
    for axis, graph in zip(axes[0], NETWORKS, strict=True):
        for kind, name in SOLVERS.items():
            shares = [solved(graph, kind, steps) for steps in STEPS]
            for reading, line, words in (("32 bits", "-", ", 32-bit messages"), ("slow", ":", ", exact")):
                look = {"color": color_of(kind), "marker": "o" if kind == "adpsgd" else "s", "ms": 4.5}
                axis.plot(STEPS, [100 * mean(one[reading]) for one in shares], line, label=name + words, **look)
        near = 100 * mean(shares[-1]["neighbors"])
        axis.axhline(near, color="#555555", ls="--", lw=1.2, label="neighbors")
        log_axis(axis, STEPS)
        axis.set_title(graph)
        axis.set_ylim(0, 104)
    return labeled(figure, axes, "gradients of each client", "clients solved for, %", columns=5, handlelength=2.8)


PAPER = Paper(
    name="network_privacy",
    title="Privacy of whole networks: what A(DP)²SGD's workers learn of one another, and whom an attacker solves for",
    page="network_privacy.md",
    data=("mnist",),
    minutes=(1, 6),
    experiments=experiments,
    numbers=(epsilons, trades, reconstructed),
    claims=(
        PaperClaim("A node learns the less of another the farther away it is (Cyffers, Even, Bellet and Massoulié "
                   "2022, for averaging in rounds).", farther_is_safer, True, "by-distance"),
        PaperClaim("Who is ten times slower gives less away.", slow_is_safer),
        PaperClaim("Sparse graphs keep the farthest in the dark, dense ones neighbors.", graphs_trade,
                   figure="graphs"),
        PaperClaim("A dense graph is more accurate.", graphs_cost),
        PaperClaim("One node reconstructs what clients far beyond its neighbors hold (El Mrini, Cyffers and Bellet "
                   "2024).", reaches_beyond, True, "solved"),
        PaperClaim("Asynchrony protects from reconstruction.", asynchrony_protects, True, "solved"),
        PaperClaim("Noise of one clipping norm hides all but neighbors.", noise_hides),
    ),
    figures={
        "by-distance": ("epsilon over the distance on a ring", draw_distance),
        "graphs": ("epsilon of a neighbor and of the farthest on four graphs", draw_trade),
        "solved": ("share of clients that one attacker solves for", draw_solved),
    },
    deviations=(
        "A(DP)²SGD's cases I and II with mini-batches of 512 and 4 epochs at a step size of 1, so that accounts of all "
        "pairs take seconds.",
        f"A difference of less than {ALIKE:.0%}, or of less than {LEAD:g} points of accuracy, counts as none.",
        "Distances are over links that carried a message. What a neighbor and the farthest learn leaves out the slow "
        "worker.",
        "Certified is the smaller of the ledger's epsilon and that of the view with all models at which its gradients "
        "were taken; as published takes gradients as fixed, and is not a bound where they depend on earlier messages.",
        "Reconstruction has worlds of its own (`scenarios/network_privacy/solved.yaml`): gradients do not change, as "
        "El Mrini and others suppose for D-GD, or each is an unknown.",
    ),
)  # fmt: skip
