"""Compare delivery times under fair sharing with SimGrid's, over random networks and patterns of messages.

    apt-get install python3-simgrid           # SimGrid 3.32 on Debian 12, for the system's Python
    python docs/check_simgrid.py              # 200 networks, some minutes
    python docs/check_simgrid.py --cases 20 --seed 7 --python /usr/bin/python3

Networks are stars, trees, fat trees and rings of 2 to 64 hosts, each edge with a capacity and a latency of its own;
10 to 2,000 messages go to one host, between random pairs or around a ring, at once or one after the other. What is
compared is how long each message takes. The fluid model without correction factors must be the same:

    fair        `sharing: fair`, and in SimGrid latencies are waited for before a message begins: those that belong to
                links make rates go by one over the latency, which no option of it turns off
    by_latency  `sharing: by_latency`, and in SimGrid latencies belong to the links

What corrections for TCP change, in comparison with `by_latency`, and with `fair`:

    window      a flow sends at most 4 MiB per round trip (network/TCP-gamma)
    LV08        SimGrid's default: 97 % of each bandwidth, 13.01 times each latency, weights by bandwidth, windows

Leaves with 1 where a message of `fair` or `by_latency` is off by more than 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from simfl.streams import Streams
from simfl.world import Availability, Clock, Network
from simfl.world.flows import Flows
from simfl.world.links import LinkModel
from simfl.world.underlay import Underlay, fat_tree, leaves, two_level_tree

#: The Python that has SimGrid's bindings; Debian's package installs for the system's.
PYTHON = os.environ.get("SIMGRID_PYTHON", "/usr/bin/python3")
TIMES = Path(__file__).with_name("simgrid_times.py")
KINDS = "star", "tree", "fat tree", "ring"
PATTERNS = "to one", "pairs", "around"
TOLERANCE = 0.01

#: Rates are computed in full at every event. By default SimGrid 3.32 updates them lazily, which where weights differ
#: misses some changes: single messages then are up to a fifth away from its own full computation.
FULL = "network/optim:Full"
#: Everything that corrects the fluid model is off.
PLAIN = (
    FULL,
    "network/model:CM02",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
)
WINDOW = (*PLAIN[:-2], "network/TCP-gamma:4194304", PLAIN[-1])
#: Name -> SimGrid's options, and whether latencies belong to the links.
MODELS = {"fair": (PLAIN, False), "by_latency": (PLAIN, True), "window": (WINDOW, True), "LV08": ((FULL,), True)}
#: What is compared, of SimGrid and of here; the first two must agree.
PAIRS = (
    ("fair", "fair"),
    ("by_latency", "by_latency"),
    ("by_latency", "fair"),
    ("window", "by_latency"),
    ("LV08", "by_latency"),
    ("LV08", "fair"),
)
SAME = PAIRS[:2]


@dataclass(frozen=True)
class Case:
    """A network, and messages [(time, source, target, bytes)] in order of time."""

    kind: str
    pattern: str
    hosts: int
    underlay: Underlay
    messages: list[tuple[float, int, int, int]]


def cases(count: int, seed: int, hosts: int = 64, messages: int = 2000) -> Iterator[Case]:
    """Yield random cases, kinds in turn.

    Args:
        count: how many.
        seed: all follow from it.
        hosts, messages: at most.
    """
    for number in range(count):
        generator = np.random.Generator(np.random.Philox(key=[seed, number]))
        kind, pattern = KINDS[number % len(KINDS)], PATTERNS[number // len(KINDS) % len(PATTERNS)]
        many = _scaled(generator, 2, hosts)
        yield Case(kind, pattern, many, _network(kind, many, generator), _sent(pattern, many, messages, generator))


def _scaled(generator: np.random.Generator, low: float, high: float) -> int:
    """Draw a whole number whose logarithm is uniform."""
    return round(float(np.exp(generator.uniform(np.log(low), np.log(high)))))


def _network(kind: str, hosts: int, generator: np.random.Generator) -> Underlay:
    """Return switches with hosts at their ends."""
    graph: nx.Graph[Any]
    if kind == "star":
        graph = nx.empty_graph(1)
    elif kind == "tree":
        graph = two_level_tree(int(generator.integers(2, 5)), int(generator.integers(1, 5)))
    elif kind == "fat tree":
        graph = fat_tree(4)
    else:
        graph = nx.cycle_graph(int(generator.integers(3, 17)))
    places = leaves(graph)
    graph.add_edges_from((("host", k), places[k % len(places)]) for k in range(hosts))
    for _, _, values in graph.edges(data=True):
        values["latency"] = float(np.exp(generator.uniform(np.log(1e-5), np.log(2e-2))))
        values["bandwidth"] = float(np.exp(generator.uniform(np.log(1e6), np.log(1e8))))
    return Underlay(graph, [("host", k) for k in range(hosts)])


def _sent(pattern: str, hosts: int, most: int, generator: np.random.Generator) -> list[tuple[float, int, int, int]]:
    count = _scaled(generator, 10, most)
    sizes = np.exp(generator.uniform(np.log(1e4), np.log(1e7), count))
    if generator.random() < 0.2:
        sizes[:] = sizes[0]  # models are all of one size
    if pattern == "around":
        sources = np.arange(count) % hosts
        targets = (sources + 1) % hosts
    else:
        targets = np.zeros(count, np.int64) if pattern == "to one" else generator.integers(0, hosts, count)
        sources = (targets + generator.integers(1, hosts, count)) % hosts
    spread_s = generator.choice([0.0, 1.0, 30.0])  # at once, dense, or with pauses
    times = np.sort(generator.uniform(0.0, 1.0, count)) * spread_s
    return [
        (float(at), int(source), int(target), int(size))
        for at, source, target, size in zip(times, sources, targets, sizes, strict=True)
    ]


def simulated(case: Case, sharing: str) -> NDArray[np.float64]:
    """Return how long each message takes here, in seconds, [m]."""
    clock, streams = Clock(), Streams(0)
    carrier = lambda network: Flows(network, case.underlay, sharing == "by_latency")  # noqa: E731
    network = Network(clock, LinkModel(), case.hosts, streams, Availability(streams), None, carrier)
    took = np.zeros(len(case.messages))

    def send(number: int, at: float, source: int, target: int, size: int) -> None:
        def deliver() -> None:
            took[number] = clock.now - at

        clock.call_at(at, lambda: network.send(source, target, size, deliver))

    for number, message in enumerate(case.messages):
        send(number, *message)
    clock.run()
    return took


def by_simgrid(case: Case, model: str, python: str = PYTHON) -> NDArray[np.float64]:
    """Return how long each message takes in SimGrid, in seconds, [m]."""
    options, latencies = MODELS[model]
    underlay, numbers = case.underlay, dict[tuple[Any, Any], int]()
    links: list[tuple[float, float]] = []
    for edge, (one, other) in enumerate(underlay.edges):
        if (other, one) not in numbers:
            numbers[one, other] = len(links)
            links.append((underlay.bandwidths[edge], underlay.latencies_s[edge] if latencies else 0.0))

    def crossed(edge: int) -> tuple[int, bool]:
        one, other = underlay.edges[edge]
        return (numbers[one, other], True) if (one, other) in numbers else (numbers[other, one], False)

    paths = {(source, target): underlay.path(source, target) for _, source, target, _ in case.messages}
    routes = [(*pair, [crossed(edge) for edge in path.edges]) for pair, path in paths.items()]
    waits = [0.0 if latencies else paths[source, target].latency_s for _, source, target, _ in case.messages]
    begins = [message[0] + wait for message, wait in zip(case.messages, waits, strict=True)]
    order = sorted(range(len(begins)), key=lambda i: begins[i])
    told = {
        "options": options,
        "hosts": case.hosts,
        "links": links,
        "routes": routes,
        "messages": [(begins[i], *case.messages[i][1:]) for i in order],
    }
    done = subprocess.run([python, str(TIMES)], input=json.dumps(told), capture_output=True, text=True, check=True)
    took = np.zeros(len(order))
    took[order] = json.loads(done.stdout)
    sent = np.array([message[0] for message in case.messages])
    return took - sent


def has_simgrid(python: str = PYTHON) -> bool:
    """Whether that Python can import SimGrid's bindings."""
    try:
        return subprocess.run([python, "-c", "import simgrid"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _table(ratios: dict[tuple[str, str], list[NDArray[np.float64]]]) -> str:
    rows = ["| SimGrid | here | median | 5 % | 95 % | within 1 % | within 10 % | worst |", "| --- " * 8 + "|"]
    for pair, found in ratios.items():
        ratio = np.concatenate(found)
        off = np.abs(ratio - 1.0)
        low, middle, high = np.quantile(ratio, [0.05, 0.5, 0.95])
        near = [f"{100 * np.mean(off <= bar):.1f} %" for bar in (0.01, 0.1)]
        cells = *pair, f"{middle:.3f}", f"{low:.3f}", f"{high:.3f}", *near, f"{100 * off.max():.2g} %"
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and return how the program ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=PYTHON, help="the Python that has SimGrid's bindings")
    chosen = parser.parse_args(arguments)
    if not has_simgrid(chosen.python):
        print(f"{chosen.python} cannot import simgrid: apt-get install python3-simgrid, or name another by --python")
        return 2
    ratios: dict[tuple[str, str], list[NDArray[np.float64]]] = {pair: [] for pair in PAIRS}
    messages, here_s, worst = 0, 0.0, dict.fromkeys(KINDS, 0.0)
    for number, case in enumerate(cases(chosen.cases, chosen.seed)):
        print(f"\r{number} of {chosen.cases}", end="", file=sys.stderr, flush=True)
        begin = time.perf_counter()
        here = {sharing: simulated(case, sharing) for sharing in ("fair", "by_latency")}
        here_s += time.perf_counter() - begin
        messages += len(case.messages)
        there = {model: by_simgrid(case, model, chosen.python) for model in MODELS}
        for (model, sharing), found in ratios.items():
            found.append(there[model] / here[sharing])
        off = max(float(np.abs(ratios[pair][-1] - 1.0).max()) for pair in SAME)
        worst[case.kind] = max(worst[case.kind], off)
        if off > TOLERANCE:
            size = f"{case.hosts} hosts, {len(case.messages)} messages"
            print(f"case {number}: {case.kind}, {case.pattern}, {size}: {off:.2%} off")
    print(f"{chosen.cases} networks, seed {chosen.seed}, {messages:,} messages, {here_s:.0f} s here (twice)\n")
    print("Worst message of the same model: " + ", ".join(f"{kind} {100 * off:.2g} %" for kind, off in worst.items()))
    print("\nTime in SimGrid over time here, of all messages:\n\n" + _table(ratios))
    return int(max(worst.values()) > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
