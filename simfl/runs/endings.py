"""The end of a run, and its reason."""

from __future__ import annotations

import math

from simfl.algorithms import Algorithm
from simfl.scenario.control import Stop

#: More updates than any run has.
NEVER = 2**62
#: The most groups of clients, and clients of a group, that one line names.
MOST_GROUPS, MOST_NAMED = 4, 5


def last_update(stop: Stop, algorithm: Algorithm) -> int:
    """Return the number of updates at which the run ends; `NEVER` for none."""
    ends = [float(stop.updates)] if stop.updates is not None else []
    ends += [algorithm.marks.updates_in(stop.epochs)] if stop.epochs is not None else []
    return math.ceil(min(ends) - 1e-9) if ends else NEVER


def ended_by(stop: Stop, algorithm: Algorithm) -> str | None:
    """Return the reason to end at this number of updates; None to go on."""
    if stop.updates is not None and algorithm.updates >= stop.updates:
        return "updates"
    if stop.epochs is not None and algorithm.marks.epochs(algorithm.updates) >= stop.epochs * (1 - 1e-6):
        return "epochs"
    return algorithm.ending if algorithm.marks.ends else None


def why_over(algorithm: Algorithm) -> str:
    """Say in a few words why no client has anything left to do."""
    if algorithm.ending:
        return algorithm.ending
    groups: dict[str, list[int]] = {}
    for client in range(algorithm.num_clients):
        groups.setdefault(_standing(algorithm, client), []).append(client)
    if len(groups) == 1:
        return f"every client {next(iter(groups))}{_stuck(algorithm)}"
    phrases = [f"{_name(clients)} {standing}" for standing, clients in groups.items()]
    if len(phrases) > MOST_GROUPS:
        left = sum(len(clients) for clients in list(groups.values())[MOST_GROUPS:])
        phrases = [*phrases[:MOST_GROUPS], f"{left} more wait likewise"]
    return ", ".join(phrases) + _stuck(algorithm)


def _stuck(algorithm: Algorithm) -> str:
    """Name links whose messages never arrive, except to clients that have left."""
    count, gone, now = algorithm.num_clients, algorithm.world.availability.gone, algorithm.clock.now
    pairs = [pair for pair in algorithm.world.network.stuck if pair[1] >= count or not gone(pair[1], now)]
    if not pairs:
        return ""
    source, target = (f"client {node}" if node < count else "the server" for node in pairs[0])
    more = f" (and over {len(pairs) - 1} more links)" if len(pairs) > 1 else ""
    return f"; messages from {source} to {target}{more} never arrive: {target} is offline, or cut off, permanently"


def _standing(algorithm: Algorithm, client: int) -> str:
    """Return the predicate of a client: what it waits for, or why it has ended."""
    if algorithm.world.availability.gone(client, algorithm.clock.now):
        return "has left"
    if client in algorithm.budgets.spent_s:
        return "has spent its privacy budget"
    return algorithm.awaits(client)


def _name(clients: list[int]) -> str:
    if len(clients) == 1:
        return f"client {clients[0]}"
    named = ", ".join(map(str, clients[:MOST_NAMED])) + ", ..." * (len(clients) > MOST_NAMED)
    return f"each of {len(clients)} clients ({named})"
