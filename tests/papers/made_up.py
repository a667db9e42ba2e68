"""Made-up runs, to test how a paper's module reads runs without hours of computing."""

import types

import numpy as np
import pandas as pd

from simfl.scenario import load
from simfl.studies.papers import Runs
from simfl.studies.reproducing import scenarios_folder

SCENARIOS = scenarios_folder()


class MadeUpColumns:
    """A data frame as `Run.evaluations` shows it."""

    def __init__(self, frame):
        self.names = list(frame.columns)
        self._frame = frame

    def __getitem__(self, name):
        return self._frame[name].to_numpy()

    def row(self, number):
        return dict(self._frame.iloc[number])


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
        scenario = load(SCENARIOS / experiment.base, [*experiment.overrides, f"seed={seed}"])
        self.scenario = scenario.resolved()
        self.privacy, self.algorithm = self.scenario["privacy"], scenario.algorithm.kind
        self.status, self.is_live = "done", False
        end = self.scenario["stop"]["updates"] or 1000
        step = (self.scenario["evaluate"]["every"] or {}).get("updates") or max(1, end // 50)
        updates = np.unique([*range(0, end, step), end])
        share = np.linspace(0.0, 1.0, len(updates))
        self._epsilon = np.nan if epsilon is None else epsilon
        zero = np.zeros(len(updates))
        self.metrics = pd.DataFrame(
            {
                "time_s": time_s * share,
                "updates": updates,
                "epochs": 20 * share,
                "rounds": np.round(100 * share).astype(int),
                "messages": np.round(1000 * share).astype(int),
                "bytes_sent": np.round(1e6 * share).astype(int),
                "epsilon": self._epsilon * share,
                "test_accuracy": 0.1 + (accuracy - 0.1) * np.sqrt(share),
                "test_loss": 2.3 - share,
                "train_loss": 2.3 - 2 * share,
                "gradient_norm": 2.5 - 2 * share,
                "clipped_share": 1 - share,
                "clipping_norm": zero + 10,
                "consensus_distance": zero,
            }
        )
        self.evaluations = MadeUpColumns(self.metrics)
        self.manifest = types.SimpleNamespace(seed=seed, time_s=time_s, updates=int(end), status="done")
        self.manifest.extra = {"noise": {"noise_multiplier": [1.0, 1.0]}}
        count = self.scenario["clients"]["count"]
        self.client_metrics = pd.DataFrame(
            {"time_s": [time_s] * count, "client": range(count), "test_accuracy": [accuracy] * count}
        )
        self.clients = pd.DataFrame({"client": range(count), "epsilon": [self._epsilon] * count, "delta": 1e-5})
        self.clients["early"] = 0
        self.cohorts = pd.DataFrame({"release": 0, "time_s": time_s, "client": range(count), "updates": 1})

    measures = ()

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
