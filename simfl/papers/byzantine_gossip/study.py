"""Self-centered clipping against other robust rules, with and without attackers.

He, Karimireddy, Jaggi 2022, "Byzantine-robust decentralized learning via ClippedGossip",
https://arxiv.org/abs/2202.01545. The numbers are those that its repository keeps of its runs on MNIST.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from simfl.papers.drawing import Figure, labeled, panels, with_bars
from simfl.plots.style import PALETTE
from simfl.records import Run
from simfl.reproduction.evidence import SEEDS, Reading, within
from simfl.reproduction.papers import Experiment, Number, Paper, PaperClaim, Runs, Section
from simfl.reproduction.reproducing import scenarios_folder

CLIQUES = Section("Two cliques of five, without attackers")
RING = Section("A ring of five, with attackers")
GOSSIP, CLIP, RFA, TRIMMED = "gossip", "clipping", "geometric median", "trimmed mean"
DATA = {"alike": "iid", "one digit each": "{kind: by_label, labels_per_client: 1}"}
ATTACKS = {"ALIE": "{kind: alie, tau: 10", "IPM": "{kind: ipm", "dissensus": "{kind: dissensus"}
MODELS = {"softmax": "softmax", "MLP": "{kind: mlp, hidden: [32]}"}
GRAPHS = {"two each": (10, "ring"), "one more": (11, "ring-more")}
"""Attackers -> how many, and the file of the graph."""
PUBLISHED = {
    ("two each", "ALIE"): {CLIP: 94.1, RFA: 9.8, TRIMMED: 11.3},
    ("two each", "IPM"): {CLIP: 91.1, RFA: 11.3, TRIMMED: 84.8},
    ("one more", "IPM"): {CLIP: 91.5, TRIMMED: 11.3},
    ("one more", "dissensus"): {CLIP: 90.1, RFA: 9.8, TRIMMED: 9.8},
    "alike": {GOSSIP: 95.65, CLIP: 95.67, RFA: 95.39},
    "one digit each": {GOSSIP: 93.24, CLIP: 93.40, RFA: 91.38},
}
"""Attackers and attack, or data without attackers -> accuracy of the mean model with each rule, percent."""
ALIKE, LEAD = 3.0, 5.0
"""Points of accuracy within which rules count as alike, and by which one must be ahead."""


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return all rules on both graphs."""
    made: list[Experiment] = []

    def add(section: Section, cell: tuple[str, ...], clients: int, graph: str, tau: float, *changes: str) -> None:
        rules = {GOSSIP: "null", CLIP: f"{{kind: clipped_gossip, tau: {tau}}}", RFA: "geometric_median"}
        rule = rules.get(cell[-1], "{kind: trimmed_mean, f: 2}")
        path, updates = scenarios_folder() / "robust" / f"{graph}.txt", clients * (150 if quick else 900)
        changes += (f"model={MODELS[cell[0]]}", f"aggregation={rule}", f"topology={{kind: edge_list, path: {path}}}")
        changes += (f"stop.updates={updates}", f"evaluate={{every: {{updates: {updates // 2}}}, clients: true}}")
        base = "robust/dumbbell.yaml" if section is CLIQUES else "robust/ring.yaml"
        made.append(Experiment(section, cell, base, changes, 2 if quick else SEEDS))

    for model in ["softmax"] if quick else MODELS:
        for data, rule in itertools.product(DATA, (GOSSIP, CLIP, RFA)):
            add(CLIQUES, (model, data, rule), 10, "dumbbell", 1.0, f"data.partition={DATA[data]}")
        for (size, attack), rule in itertools.product(itertools.product(GRAPHS, ATTACKS), (CLIP, RFA, TRIMMED)):
            if quick and (size, attack) not in (("two each", "IPM"), ("one more", "dissensus")):
                continue
            count, graph = GRAPHS[size]
            hostile = f"attackers={ATTACKS[attack]}, clients: {list(range(5, 5 + count))}}}"
            add(RING, (model, size, attack, rule), 5 + count, graph, 0.1, f"clients={5 + count}", hostile)
    return made


def reached(run: Run) -> float:
    """Return the mean model's last accuracy in percent, also of a diverged run."""
    return 100 * float(run.metrics["test_accuracy"].iloc[-1])


def alone(run: Run) -> float:
    """Return the mean of the final accuracies of the clients' own models in percent."""
    return 100 * float(run.client_metrics.groupby("client")["test_accuracy"].last().mean())


def numbers(runs: Runs) -> Iterator[Number]:
    """Yield the accuracies on both graphs."""
    for section in (CLIQUES, RING):
        for cell in runs.cells(section):
            row, ours = section.label(*cell), list(runs.of(section, cell).values())
            paper = PUBLISHED.get(cell[1] if section is CLIQUES else cell[1:3], {}).get(cell[-1])
            yield Number(section.title, row, "mean of honest models, %", tuple(map(reached, ours)), paper)
            if section is CLIQUES:
                yield Number(section.title, row, "clients' own models, %", tuple(map(alone, ours)))


def costs_nothing(runs: Runs) -> Iterator[Reading]:
    """Judge whether clipping is as accurate as gossip without attackers."""
    for model, data, _ in (cell for cell in runs.cells(CLIQUES) if cell[-1] == CLIP):
        cells = (model, data, CLIP), (model, data, GOSSIP)
        parts = runs.leads(CLIQUES, *cells, "{lead} points", ALIKE, judge=within, measure=reached, digits=2)
        yield Reading({"data": data, "model": model}, parts)


def bridges_stay(runs: Runs) -> Iterator[Reading]:
    """Judge whether clients learn more with clipping than with a geometric median."""
    for model, data, _ in (cell for cell in runs.cells(CLIQUES) if cell[1:] == ("one digit each", CLIP)):
        cells = (model, data, CLIP), (model, data, RFA)
        parts = runs.leads(CLIQUES, *cells, "own models {lead} points ahead", LEAD, measure=alone, digits=2)
        yield Reading({"model": model}, parts)


def clipping_leads(runs: Runs) -> Iterator[Reading]:
    """Judge whether clipping is ahead where the published runs of other rules fail."""
    for model, size, attack, rule in runs.cells(RING):
        paper = PUBLISHED.get((size, attack), {})
        if rule == CLIP or paper.get(CLIP, 0.0) - paper.get(rule, 100.0) < LEAD:
            continue
        one, other = ((model, size, attack, name) for name in (CLIP, rule))
        text = f"{{lead}} points ahead (published: {paper[CLIP] - paper[rule]:.1f})"
        yield Reading({"model": model, "attackers": size, "attack": attack, "rule": rule},
                      runs.leads(RING, one, other, text, LEAD, measure=reached, digits=2))  # fmt: skip


def draw_ring(runs: Runs) -> Figure:
    """Draw the accuracies of the rules under each attack."""
    cases = list(dict.fromkeys(cell[1:3] for cell in runs.cells(RING, "softmax")))
    figure, axes = panels(-(-len(cases) // 3), 3, (8, 2.6 * -(-len(cases) // 3)), sharey=True)
    for axis, case in zip(axes.flat, cases, strict=False):
        cells = runs.cells(RING, "softmax", *case)
        values = [tuple(map(reached, runs.of(RING, cell).values())) for cell in cells]
        with_bars(axis, range(len(cells)), values, ls="", color=PALETTE[0], label="simfl")
        paper = [PUBLISHED.get(case, {}).get(cell[-1], float("nan")) for cell in cells]
        axis.plot(range(len(cells)), paper, "x", color=PALETTE[1], label="published")
        axis.set_xticks(range(len(cells)), [cell[-1].replace(" ", "\n") for cell in cells])
        axis.set(title=f"{case[1]}, {case[0]}", xlim=(-0.5, len(cells) - 0.5))
    return labeled(figure, axes, "", "accuracy of honest clients, %", columns=2)


PAPER = Paper(
    name="byzantine_gossip",
    title="He, Karimireddy, Jaggi: Byzantine-robust decentralized learning via ClippedGossip",
    page="robust.md",
    data=("mnist",),
    minutes=(2, 128),
    experiments=experiments,
    numbers=(numbers,),
    claims=(
        PaperClaim("Without attackers, self-centered clipping is as accurate as gossip.", costs_nothing),
        PaperClaim("Over a bridge between cliques with other data, clients learn with clipping and not with a median.",
                   bridges_stay),
        PaperClaim("Self-centered clipping learns under attacks that stop the geometric median or the trimmed mean.",
                   clipping_leads, True, "ring", "softmax regression and an MLP instead of a CNN"),
    ),
    figures={"ring": ("accuracy of each rule under attack", draw_ring)},
    deviations=(
        "Softmax regression and an MLP in place of a CNN; all other settings of training are the paper's.",
        "A client sends the model at which it takes its next gradient; in the paper, the one after its step.",
    ),
)  # fmt: skip
