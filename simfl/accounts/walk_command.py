"""`simfl privacy walk`: what a client learns from a model that walks at random."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from simfl.accounts import shared
from simfl.accounts.shared import present, show

_NOTES = (
    "certified: any gradients, also of clients that repeat what they received (an adaptive adversary)",
    "if nonexpansive: certified only if no step moves two models apart, as with convex beta-smooth losses, steps of at "
    "most 2 / beta, and clipping that keeps this",
    "PN-f-DP, PN-Renyi: not certified. The hitting-time account of the program of PN-f-DP, composed in f-DP and in "
    "Renyi: it counts the mean number of gradients of a client, and the noise that several of them share for each",
    "at least: exact for gradients that react to nothing; a smaller epsilon is refuted",
    "the walk begins at a random client, and goes on to one more after the last step; its order is secret and does not "
    "depend on data; in a run, simfl privacy network takes it as known",
)


def command(
    graph: Annotated[str, Option(help="A topology of simfl list, or everyone: the next client is any one.")] = "ring",
    clients: Annotated[int, Option(help="Number of clients.")] = 16,
    steps: Annotated[int, Option("--steps", help="T, steps of the model, at most 500.")] = 300,
    noise_multiplier: Annotated[float, Option(help="z, noise of a step over the clipping norm.")] = 2.0,
    uses: Annotated[int | None, Option(help="Steps of the client that use the example; all by default.")] = None,
    observer: Annotated[int, Option(help="The client that observes.")] = 0,
    delta: shared.Delta = 1e-5,
    seed: Annotated[int, Option(help="Seed of a random graph.")] = 0,
    as_json: shared.AsJson = False,
) -> None:
    """Account for what a client learns from a random walk, in f-DP.

    One client for each distance from the observer on the graph: the one with the lowest number.
    """
    import numpy as np

    from simfl.accounts.network import hops_from
    from simfl.accounts.walks import epsilons_of_walk, walk_of
    from simfl.privacy import checks
    from simfl.streams import Streams
    from simfl.world.topology import build_topology

    checks.whole(2, 200, clients=clients)
    checks.whole(0, clients - 1, observer=observer)
    kind = "complete" if graph == "everyone" else graph
    topology = build_topology(kind, clients, Streams(seed).generator("topology"))
    w = np.full((clients, clients), 1.0 / clients) if graph == "everyone" else walk_of(topology)
    nearest: dict[int, int] = {}
    for client, hops in sorted(hops_from([observer], topology.edges)[observer].items()):
        nearest.setdefault(int(hops), client)
    table: list[dict[str, Any]] = []
    for distance, client in sorted(nearest.items())[1:]:
        epsilons = epsilons_of_walk(w, steps, client, observer, noise_multiplier, delta, uses)
        table.append({"distance": distance, "client": client, **vars(epsilons)})
    columns = {"distance": "distance", "certified": "certified", "if nonexpansive": "nonexpansive"}
    columns |= {"PN-f-DP": "published", "PN-Renyi": "renyi", "at least": "at_least"}
    cells = {
        name: [show(row[key] if key == "distance" else float(f"{row[key]:.4g}")) for row in table]
        for name, key in columns.items()
    }
    title = f"Epsilon at delta = {show(delta)} of a walk of {steps:,} steps on {graph}, {clients} clients"
    present(f"{title}, z = {show(noise_multiplier)}", cells=cells, notes=_NOTES, result=table, as_json=as_json)
