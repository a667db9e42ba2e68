"""Made-up runs, to test how a paper's module reads runs without hours of computing."""

import functools
import types

import numpy as np
import pandas as pd

from simfl.reproduction.papers import Runs
from simfl.reproduction.reproducing import scenarios_folder
from simfl.scenario import load

SCENARIOS = scenarios_folder()


@functools.lru_cache(maxsize=2048)
def resolved(base, overrides):
    """Return a resolved scenario, and the kind of its algorithm."""
    scenario = load(SCENARIOS / base, overrides)
    return scenario.resolved(), scenario.algorithm.kind


class MadeUpColumns(dict):
    """Columns as `Run.evaluations` has them."""

    @property
    def names(self):
        return list(self)

    def row(self, number):
        return {name: column[number] for name, column in self.items()}


class MadeUpRun:
    """A run whose test accuracy rises to a given value.

    Args:
        experiment: gives the scenario.
        seed: one of the experiment's seeds.
        accuracy: at the end.
        epsilon: of every client, None for no certificate.
        time_s: virtual time at the end.
    """

    def __init__(self, experiment, seed, accuracy, epsilon=None, time_s=10.0):
        scenario, self.algorithm = resolved(experiment.base, experiment.overrides)
        self.scenario = {**scenario, "seed": seed}
        self.privacy = self.scenario["privacy"]
        self.status, self.is_live = "done", False
        self._accuracy, self._time_s = accuracy, time_s
        self._epsilon = np.nan if epsilon is None else epsilon
        self._end = self.scenario["stop"]["updates"] or 1000
        self._count = self.scenario["clients"]["count"]
        self.manifest = types.SimpleNamespace(seed=seed, time_s=time_s, updates=int(self._end), status="done")
        self.manifest.extra = {"noise": {"noise_multiplier": [1.0, 1.0]}}

    @functools.cached_property
    def evaluations(self):
        step = (self.scenario["evaluate"]["every"] or {}).get("updates") or max(1, self._end // 50)
        updates = np.unique([*range(0, self._end, step), self._end])
        share = np.linspace(0.0, 1.0, len(updates))
        return MadeUpColumns(
            {
                "time_s": self._time_s * share,
                "updates": updates,
                "epochs": 20 * share,
                "rounds": np.round(100 * share).astype(int),
                "messages": np.round(1000 * share).astype(int),
                "bytes_sent": np.round(1e6 * share).astype(int),
                "epsilon": self._epsilon * share,
                "test_accuracy": 0.1 + (self._accuracy - 0.1) * np.sqrt(share),
                "test_loss": 2.3 - share,
                "train_loss": 2.3 - 2 * share,
                "gradient_norm": 2.5 - 2 * share,
                "clipped_share": 1 - share,
                "clipping_norm": np.full(len(updates), 10.0),
                "consensus_distance": np.zeros(len(updates)),
                "suboptimality": 1.01 - self._accuracy * share,
                "distance": np.sqrt(1.01 - self._accuracy * share),
            }
        )

    @functools.cached_property
    def metrics(self):
        return pd.DataFrame(self.evaluations)

    @functools.cached_property
    def client_metrics(self):
        columns = {"time_s": self._time_s, "client": range(self._count), "test_accuracy": self._accuracy}
        return pd.DataFrame(columns)

    @functools.cached_property
    def clients(self):
        return pd.DataFrame(
            {"client": range(self._count), "epsilon": self._epsilon, "delta": 1e-5, "early": 0, "updates": 1}
        )

    @functools.cached_property
    def updates(self):
        pairs = [(i, j) for i in range(self._count) for j in range(self._count) if i != j or self._count == 1]
        table = pd.DataFrame(pairs, columns=["client", "peer"])
        return table.assign(staleness=1, noise_std=1.0, step_size=0.01)

    @functools.cached_property
    def cohorts(self):
        return pd.DataFrame({"release": 0, "time_s": self._time_s, "client": range(self._count), "updates": 1})

    measures = ()
    title = ""

    def epsilon_and_delta(self):
        return self._epsilon, 1e-5


def all_experiments(paper, quick, *values, **others):
    """Return the experiments of a study, those included that follow from made-up runs of the first ones."""
    experiments = list(paper.experiments(quick))
    while paper.later is not None:
        runs = made_up(experiments, *values, **others)
        more = [own for own in paper.later(runs, quick) if own not in experiments]
        if not more:
            break
        experiments += more
    return experiments


def made_up(experiments, accuracy=0.8, seeds=2, **others):
    """Return runs of all experiments; accuracy, epsilon and time_s may be functions of the experiment and its seed."""
    groups = {}
    for own in experiments:
        for seed in range(own.first, own.first + min(seeds, own.seeds)):
            values = {
                key: value(own, seed) if callable(value) else value
                for key, value in {"accuracy": accuracy, **others}.items()
            }
            groups.setdefault(own, {})[seed] = MadeUpRun(own, seed, **values)
    return Runs(groups)
