"""The algorithms of the study, with the settings that are not tuned."""

from __future__ import annotations

from dataclasses import dataclass

from simfl.plots.style import NAMES

ROUNDS, SERVER, GOSSIP = "rounds", "server", "gossip"
SGD, ADAM, AMSGRAD = 0.2, 0.005, 0.016
"""Centers of the grids of step sizes, by what makes the step."""
BATCH = 16
_LOCAL = "local_steps: 8"


@dataclass(frozen=True)
class Entry:
    """An algorithm of the study.

    `options` are its settings in a scenario, `tuned` is the field of its step size, and `center` the middle of the
    grid.
    """

    name: str
    family: str
    options: str
    center: float = SGD
    tuned: str = "step_size"

    def section(self, step: float) -> str:
        """Return the section of a scenario, with a step size."""
        return f"algorithm={{{self.options}, batch_size: {BATCH}, {self.tuned}: {step:g}}}"


def _entry(
    kind: str, family: str, options: str = "", center: float = SGD, tuned: str = "step_size", name: str = ""
) -> Entry:
    return Entry(name or NAMES[kind], family, f"kind: {kind}" + (options and f", {options}"), center, tuned)


PLAIN = ", no outer momentum"
ENTRIES = (
    _entry("sync_sgd", ROUNDS),
    _entry("m_sync_sgd", ROUNDS, "wait_for: 12"),
    _entry("fedavg", ROUNDS, _LOCAL),
    _entry("diloco", ROUNDS, _LOCAL, ADAM),
    _entry("diloco", ROUNDS, f"{_LOCAL}, server_optimizer: sgd, server_step: 1", ADAM, name=NAMES["diloco"] + PLAIN),
    _entry("noloco", ROUNDS, _LOCAL, ADAM),
    _entry("mindflayer", ROUNDS, "trial_factor: 1.5"),
    _entry("decentralized_sgd", GOSSIP),
    _entry("sgp", GOSSIP),
    _entry("matcha", GOSSIP),
    _entry("epidemic", GOSSIP, "peers: 2"),
    _entry("teleportation", GOSSIP),
    _entry("plexus", GOSSIP, _LOCAL),
    _entry("async_sgd", SERVER),
    _entry("ringmaster", SERVER),
    _entry("rennala", SERVER),
    _entry("ringleader", SERVER),
    _entry("fedasync", SERVER, _LOCAL),
    _entry("fedbuff", SERVER, f"{_LOCAL}, buffer_size: 4"),
    _entry("ca2fl", SERVER, f"{_LOCAL}, buffer_size: 4"),
    _entry("fadas", SERVER, f"{_LOCAL}, buffer_size: 4, step_size: 0.2", AMSGRAD, "server_step"),
    _entry("ace", SERVER, f"{_LOCAL}, server_step: 0.0625"),
    _entry("fedat", SERVER, f"{_LOCAL}, tiers: 4"),
    _entry("favas", SERVER, f"{_LOCAL}, fraction: 0.25, period: 40 ms"),
    _entry("area", SERVER, _LOCAL),
    _entry("async_local_sgd", SERVER, _LOCAL, ADAM),
    _entry("async_local_sgd", SERVER, f"{_LOCAL}, momentum: 0, server_step: 4", ADAM,
           name=NAMES["async_local_sgd"] + PLAIN),
    _entry("halos", SERVER, f"{_LOCAL}, accumulate: 4", ADAM),
    _entry("adpsgd", GOSSIP),
    _entry("a2cid2", GOSSIP),
    _entry("swift", GOSSIP),
    _entry("adsgd", GOSSIP),
    _entry("divshare", GOSSIP, "fragments: 4, peers: 2"),
    _entry("gossip_learning", GOSSIP),
    _entry("multi_walk", GOSSIP),
)  # fmt: skip
"""In the order of tables of settings: those that wait in rounds first."""
BY_NAME = {entry.name: entry for entry in ENTRIES}
QUICK = tuple(NAMES[kind] for kind in ("sync_sgd", "fedavg", "decentralized_sgd", "async_sgd", "fedbuff", "adpsgd"))
"""The algorithms of the quick form, whose accuracy is also drawn over time."""
