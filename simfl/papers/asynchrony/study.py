"""Time to accuracy of 35 algorithms in four worlds, tuned by one rule.

No paper has this study. Its claims are those of the papers of the algorithms. In a world, all algorithms have the same
clients, data, model, mini-batches and links. The step size of an algorithm is the best of a grid on tuning seeds; its
results are those of other seeds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from simfl.papers.asynchrony import tuning
from simfl.papers.asynchrony.algorithms import BY_NAME, PLAIN
from simfl.papers.asynchrony.drawing import draw_curves, draw_times
from simfl.papers.asynchrony.tuning import FINAL, TARGET, WORLDS, cost, costs, later, own_time, ranks, step_of, tuned
from simfl.plots.style import NAMES
from simfl.reproduction.evidence import Part, Reading, above, log_ratio, show, show_ratio
from simfl.reproduction.papers import Number, Paper, PaperClaim, Runs

TABLE = f"Time to an accuracy of {TARGET:.0%}"
UNITS = {"time_s": "s", "epochs": "passes", "rounds": "rounds"}
DIVISORS = {"bytes_sent": 1e6}


def rows(runs: Runs) -> list[str]:
    """Return the algorithms with runs, by their mean rank."""
    by_world = [ranks(runs, world) for world in WORLDS]
    names = {name for ranked in by_world for name in ranked}
    return sorted(names, key=lambda name: (_mean_rank(by_world, name), name))


def _mean_rank(by_world: Sequence[dict[str, float]], name: str) -> float:
    own = [ranked[name] for ranked in by_world if name in ranked]
    return sum(own) / len(own)


def time_numbers(runs: Runs) -> Iterator[Number]:
    """Yield the time to the target accuracy in every world."""
    yield from _costs(runs, TABLE, "time_s", "s")


def other_numbers(runs: Runs) -> Iterator[Number]:
    """Yield other costs, clients' own models, and the tuned step sizes."""
    yield from _costs(runs, f"Data to {TARGET:.0%}: examples of all clients", "epochs", "passes over all data")
    yield from _costs(runs, f"Bytes to {TARGET:.0%}: sent by all clients and servers", "bytes_sent", "MB")
    for name, world in _places(runs):
        own = tuple(map(own_time, runs.of(FINAL, (world, name)).values()))
        if not any(map(math.isnan, own)):
            part = "The same time, for the mean accuracy of the clients' own models"
            yield Number(part, _row(name), world, own, unit="s", never=_end(runs, world, name, own=True))
    all_, border = "Step sizes: the best on the tuning seeds", "Step sizes at the border of their grid"
    for part, (name, world) in itertools.product((all_, border), _places(runs)):
        entry = BY_NAME[name]
        if part == all_ or tuning.border(runs, world, entry):
            yield Number(part, _row(name), world, (step_of(entry, tuned(runs, world, entry)),), digits=5)


def _row(name: str) -> str:
    return f"{name} ({BY_NAME[name].family})"


def _places(runs: Runs) -> list[tuple[str, str]]:
    return [(name, world) for name in rows(runs) for world in WORLDS if runs.has(FINAL, (world, name))]


def _costs(runs: Runs, part: str, column: str, unit: str) -> Iterator[Number]:
    divisor = DIVISORS.get(column, 1.0)
    for name, world in _places(runs):
        values = tuple(value / divisor for value in costs(runs, world, name, column))
        yield Number(part, _row(name), world, values, unit=unit, never=_end(runs, world, name, column, divisor))


def _end(runs: Runs, world: str, name: str, column: str = "time_s", divisor: float = 1.0, own: bool = False) -> str:
    """Return the cost at which the first run without the target ended, in words."""
    reached = own_time if own else functools.partial(cost, column="time_s")
    lost = [run for run in runs.of(FINAL, (world, name)).values() if math.isinf(reached(run))]
    return f"> {min(float(run.metrics[column].iloc[-1]) / divisor for run in lost):.3g}" if lost else "never"


def faster(runs: Runs, world: str, one: str, other: str, column: str = "time_s") -> Part:
    """Return whether an algorithm reaches the target at less cost than another."""
    cells = [runs.of(FINAL, (world, name)) for name in (one, other)]
    pairs = [tuple(cost(runs[seed], column) for runs in cells) for seed in cells[0] if seed in cells[1]]
    return compared(pairs, one, other, UNITS[column])


def compared(pairs: Sequence[Sequence[float]], one: str, other: str, unit: str) -> Part:
    """Return whether the first costs of pairs lie below the second ones.

    A pair of runs that both never reach the target decides nothing. A ratio below `AHEAD` is no difference.
    """
    firsts, seconds = zip(*pairs, strict=True)
    logs = [log_ratio(second, first) for first, second in pairs]
    text = f"{one} {show(firsts)} {unit}, {other} {show(seconds)} {unit}"
    if all(map(math.isfinite, logs)):
        text += f": {other} takes {show_ratio(logs)} times as much"
    return above(logs, 0.0, text, math.log(AHEAD))


def pairs_of(
    couples: Sequence[tuple[str, str]], worlds: Sequence[str], column: str = "time_s"
) -> Callable[[Runs], Iterator[Reading]]:
    """Return readings, one for each world: is the first of each couple faster?"""

    def check(runs: Runs) -> Iterator[Reading]:
        for (one, other), world in itertools.product(couples, worlds):
            if runs.has(FINAL, (world, one), (world, other)):
                choices = {"pair": f"{one} against {other}"} if len(couples) > 1 else {}
                yield Reading({**choices, "world": world}, [faster(runs, world, one, other, column)])

    return check


def of(one: str, other: str) -> tuple[str, str]:
    """Return the names of two algorithms."""
    return NAMES[one], NAMES[other]


AHEAD = 1.1
"""The least ratio of costs that counts as a difference."""
WAITING = (
    of("async_sgd", "sync_sgd"),
    of("adpsgd", "decentralized_sgd"),
    of("fedbuff", "fedavg"),
    of("fedasync", "fedavg"),
    of("async_local_sgd", "diloco"),
)
CORRECTED = (of("ca2fl", "fedbuff"), of("ace", "fedbuff"), of("ringleader", "async_sgd"))
OUTER = of("async_local_sgd", "diloco")
ACROSS = (of("halos", "async_local_sgd"), of("halos", "diloco"), of("async_local_sgd", "diloco"))

CLAIMS = (
    PaperClaim("If one client is ten times slower, algorithms that do not wait for it need less time.",
               pairs_of(WAITING, ("straggler",)), True, "times"),
    PaperClaim("If times of computation are heavy-tailed, algorithms that wait for no client need less time.",
               pairs_of(WAITING, ("tails",))),
    PaperClaim("Wait-free gossip with the newest models (SWIFT) is ahead of AD-PSGD.",
               pairs_of([of("swift", "adpsgd")], WORLDS)),
    PaperClaim("ADSGD needs less time than SWIFT and AD-PSGD.",
               pairs_of([of("adsgd", "swift"), of("adsgd", "adpsgd")], WORLDS)),
    PaperClaim("Multi-Walk needs less data than AD-PSGD.",
               pairs_of([of("multi_walk", "adpsgd")], WORLDS, "epochs")),
    PaperClaim("NoLoCo needs less time than DiLoCo.",
               pairs_of([of("noloco", "diloco")], WORLDS)),
    PaperClaim("A²CiD² is ahead of AD-PSGD on a ring.",
               pairs_of([of("a2cid2", "adpsgd")], WORLDS)),
    PaperClaim("Epidemic Learning needs fewer rounds than D-PSGD with as many messages (de Vos et al. 2023).",
               pairs_of([of("epidemic", "decentralized_sgd")], WORLDS, "rounds")),
    PaperClaim("Ringmaster ASGD is ahead of ASGD if clients are unequal.",
               pairs_of([of("ringmaster", "async_sgd")], ("straggler", "tails", "regions"))),
    PaperClaim("MindFlayer SGD is ahead with heavy tails.",
               pairs_of([of("mindflayer", "rennala"), of("mindflayer", "async_sgd")], ("tails",))),
    PaperClaim("Servers that correct for unlike data are ahead of those that do not (CA2FL, ACE, Ringleader ASGD).",
               pairs_of(CORRECTED, WORLDS[:3])),
    PaperClaim("Across regions, HALoS is ahead of asynchronous local SGD and of DiLoCo, and "
               "asynchronous local SGD of DiLoCo.", pairs_of(ACROSS, ("regions",))),
    PaperClaim("Without outer momentum, asynchronous local SGD needs no more data than synchronous.",
               pairs_of([(OUTER[0] + PLAIN, OUTER[1] + PLAIN)], WORLDS, "epochs")),
    PaperClaim("With outer momentum, asynchronous local SGD needs more data than synchronous.",
               pairs_of([(OUTER[1], OUTER[0])], WORLDS, "epochs")),
)  # fmt: skip

PAPER = Paper(
    name="asynchrony",
    title="Asynchrony: time to accuracy in four worlds",
    page="asynchrony.md",
    minutes=(1, 35),
    experiments=tuning.experiments,
    later=later,
    numbers=(time_numbers, other_numbers),
    shown=(TABLE,),
    claims=CLAIMS,
    figures={
        "times": ("time to the target accuracy of every algorithm in four worlds", draw_times),
        "curves": ("accuracy over time of six algorithms in four worlds", draw_curves),
    },
    deviations=(
        "Claims are of the algorithms' papers. None has these worlds, data or model (1,797 digits, 2,410 parameters).",
        f"A ratio of costs of less than {AHEAD:g} counts as no difference.",
        "Step sizes alone are tuned.",
    ),
)
