"""The accuracy that the utility graph predicts for a private run.

Van Dijk et al. 2021, "Proactive DP", https://arxiv.org/abs/2102.09030, Sections 3.3 and 4.1: acc(w* + n), where w* is
trained with clipping and without noise. Here w* is the final model of a run with clipping and without noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from simfl.assembly.assemble import assemble
from simfl.assembly.setup import Setup
from simfl.papers.proactive_dp.rehearsal import steps_of
from simfl.papers.proactive_dp.utility import READINGS, Floats, Task, noise_factors, perturbed_accuracies
from simfl.records import Run
from simfl.scenario import from_mapping

DRAWS = 20
"""Draws of the noise on w*."""


@functools.cache
def predicted(quiet: Run, private: Run) -> Mapping[str, float]:
    """Return the mean accuracy of w* + n in percent, for each reading of n.

    Args:
        quiet: a finished run with clipping and without noise, whose final model is w*.
        private: a run of `sync_sgd` or `async_fl` on the same data, whose noise, batches and steps n has.
    """
    setup = assemble(from_mapping(quiet.scenario))
    data, model = setup.dataset.floats(), setup.model
    task = Task(model, data.train_x, data.train_y, data.test_x, data.test_y, setup.training.initial).on_device()
    stds = noise_stds(private)
    key = setup.streams.key("utility-graph")
    accuracies = perturbed_accuracies(task, model.joined(quiet.model), np.array(list(stds.values())), DRAWS, key)
    return dict(zip(stds, (100.0 * accuracies.mean(axis=1)).tolist(), strict=True))


def noise_stds(run: Run) -> dict[str, float]:
    """Return the standard deviation of n per coordinate for each reading."""
    setup = assemble(from_mapping(run.scenario))
    privacy, count = run.scenario["privacy"], setup.scenario.clients.count
    size, rounds = _size(run.scenario), math.ceil(int(run.manifest.updates) / count)
    steps = mean_steps(setup, size, rounds)
    scale = privacy["clipping_norm"] * privacy["noise_multiplier"]
    return {
        reading: scale
        * noise_factors(reading, steps=steps, batch_size=size, num_clients=count, rounds=[float(rounds)])[0]
        for reading in READINGS
    }


def _size(scenario: Mapping[str, Any]) -> int:
    algorithm = scenario["algorithm"]
    return int(algorithm["sizes"]["value"] if algorithm["kind"] == "async_fl" else algorithm["batch_size"])


def mean_steps(setup: Setup, size: int, rounds: int) -> Floats:
    """Return the step size of each round on the mean gradient of all clients, [T].

    `async_fl` adds up the clients' sums of gradients: its step eta_i moves the model by eta_i n s times the mean.
    """
    config: Any = setup.scenario.algorithm
    if config.kind != "async_fl":
        return steps_of(setup, rounds)
    schedule, count = setup.training.step_size, setup.scenario.clients.count
    shared = count if config.step_size_of == "each" else 1
    if config.aggregation == "mean":
        raise ValueError("aggregation: expected sum, found mean")
    steps = np.empty(rounds)
    for i in range(rounds):
        before = i * size * count
        eta = (
            schedule(i, before // shared, before / int(setup.training.sizes.sum())) if callable(schedule) else schedule
        )
        steps[i] = eta * size * count
    return steps
