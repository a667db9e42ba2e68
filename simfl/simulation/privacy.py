"""From the privacy section of a scenario to the noise that each client adds and the ledger that accounts for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ScenarioError
from simfl.privacy.accounting import Accountant
from simfl.privacy.calibration import least_noise
from simfl.privacy.ledger import Ledger, Terms
from simfl.privacy.mechanisms import MECHANISMS, AbstractMechanism
from simfl.privacy.noise import unit_std
from simfl.scenario import Scenario
from simfl.scenario.privacy import (
    Accounted,
    Gaussian,
    GaussianUpdate,
    Laplace,
    LaplaceL2,
    LaplaceL2RadiusOnly,
    OnePassGaussian,
    UnclippedGaussian,
)
from simfl.tape.problem import Clip


@dataclass(frozen=True)
class Protection:
    """What the clients do for privacy, in plain values.

    Attributes:
        clipping_norm: C, bound on what is clipped; None for no clipping.
        clip: what is clipped.
        sampler: name of the unit noise in `simfl.privacy.noise`.
        scales: what multiplies the unit noise on the sum of a mini-batch, of each client.
        stds: standard deviation of that noise on each coordinate, of each client.
        allowances: releases that each client may make within its budget; None for no budget.
        ledger: accounts for the releases; None without privacy.
    """

    clipping_norm: float | None
    clip: Clip
    sampler: str
    scales: list[float]
    stds: list[float]
    allowances: list[int] | None = None
    ledger: Ledger | None = None


def protect(
    scenario: Scenario, sizes: NDArray[np.int64], sampling: str, model_size: int, *, local: bool = False
) -> Protection:
    """Return what the privacy section asks for.

    Args:
        scenario: valid.
        sizes: examples per client, int [K].
        sampling: how mini-batches are drawn; no longer auto.
        model_size: number of parameters, d.
        local: whether clients send the change of their model by a round of local steps, not a sum of gradients.

    Raises:
        ConditionError: if a budget cannot be kept with any noise.
    """
    privacy, count = scenario.privacy, len(sizes)
    batch_size = scenario.algorithm.batch_size
    if privacy is None:
        return Protection(None, "example", "gaussian", [0.0] * count, [0.0] * count)
    if isinstance(privacy, OnePassGaussian):
        raise TypeError("one_pass_gaussian: use simfl.simulation.kinds.without_replacement.protect_one_pass")
    if isinstance(privacy, UnclippedGaussian):
        mechanism: AbstractMechanism = MECHANISMS[privacy.mechanism](noise_std=privacy.noise_std)  # type: ignore[call-arg]
        terms = Terms(privacy.mechanism, privacy.delta, math.nan, refusal=mechanism.refusal)
        stds = [privacy.noise_std] * count
        return Protection(
            None, "example", mechanism.sampler, stds, stds, None, Ledger(terms, sizes, batch_size, sampling, stds)
        )
    terms = _terms(privacy, scenario.algorithm.noise_of_server, scenario.algorithm.without_proof)
    pure = isinstance(privacy, LaplaceL2 | Laplace | LaplaceL2RadiusOnly)
    if isinstance(privacy, Gaussian | GaussianUpdate):
        levels = _noise_multipliers(scenario, privacy, terms, sizes, sampling)
    else:
        levels = _each(privacy.epsilon_per_release, count)
    ledger = Ledger(terms, sizes, batch_size, sampling, levels, pure)
    make = MECHANISMS[terms.mechanism]
    mechanisms = [make(privacy.clipping_norm, privacy.neighbors, level) for level in levels]  # type: ignore[call-arg]
    # The noise is added to the sum of a mini-batch, which the algorithms divide by its size: a single gradient is an
    # update only after that.
    share = batch_size if isinstance(privacy, GaussianUpdate) and not local else 1
    scales = [share * mechanism.scale(model_size) for mechanism in mechanisms]
    unit = unit_std(make.sampler, model_size)
    allowances = None
    if isinstance(privacy, Accounted) and privacy.epsilon is not None and ledger.certified:
        allowances = ledger.allowances(_each(privacy.epsilon, count))
    return Protection(
        clipping_norm=privacy.clipping_norm,
        clip="update" if make.unit == "client" else "example",
        sampler=make.sampler,
        scales=scales,
        stds=[scale * unit for scale in scales],
        allowances=allowances,
        ledger=ledger,
    )


def planned_releases(scenario: Scenario, sizes: NDArray[np.int64]) -> int:
    """Return how many releases each client makes if all of them take part equally often until the run stops."""
    stop = scenario.stop
    ends = [] if stop.updates is None else [float(stop.updates)]
    if stop.epochs is not None:
        ends.append(stop.epochs * float(sizes.sum()) / scenario.algorithm.update_examples(sizes.tolist()))
    return max(1, math.ceil(min(ends) / len(sizes) - 1e-9))


def _each(value: float | Sequence[float], count: int) -> list[float]:
    return [float(item) for item in value] if isinstance(value, tuple | list) else [float(value)] * count  # type: ignore[arg-type]


def _terms(privacy: Accounted | LaplaceL2RadiusOnly, by_server: bool, refusal: str | None) -> Terms:
    if isinstance(privacy, LaplaceL2RadiusOnly):
        refusal = MECHANISMS[privacy.mechanism].refusal
        return Terms(privacy.mechanism, privacy.delta, privacy.clipping_norm, privacy.neighbors, refusal=refusal)
    if getattr(privacy, "noise_on", "all") != "all":
        refusal = (
            "only the gradient of the first convolution carries noise; those of all other layers, which are functions "
            "of the raw examples, are sent as they are"
        )
    return Terms(
        privacy.mechanism,  # type: ignore[attr-defined]
        privacy.delta,
        privacy.clipping_norm,  # type: ignore[attr-defined]
        privacy.neighbors,
        privacy.view,
        privacy.accountant,
        privacy.amplification,
        "client" if isinstance(privacy, GaussianUpdate) else "example",
        refusal,
        by_server=by_server,
    )


def _noise_multipliers(
    scenario: Scenario, privacy: Gaussian | GaussianUpdate, terms: Terms, sizes: NDArray[np.int64], sampling: str
) -> list[float]:
    """Return each client's noise multiplier: the one given, or the one that spends the budget as planned."""
    count = len(sizes)
    if privacy.noise_multiplier is not None:
        return _each(privacy.noise_multiplier, count)
    assert privacy.epsilon is not None, "the schema asks for one of the two"
    steps = planned_releases(scenario, sizes)
    # What one client's plan amounts to depends on its size and budget only.
    kinds = list(zip(sizes.tolist(), _each(privacy.epsilon, count), strict=True))
    accountant = terms.accountant if len(set(kinds)) <= 4 else "renyi"
    found: dict[tuple[int, float], float] = {}
    for n, budget in dict.fromkeys(kinds):
        probe = Ledger(terms, np.array([n]), scenario.algorithm.batch_size, sampling, [1.0])
        if not probe.certified:
            raise ScenarioError(f"privacy.epsilon: expected terms under which an epsilon holds; {probe.statement}")

        def spent(level: float, by: Accountant, probe: Ledger = probe) -> float:
            return probe.epsilon_after(0, steps, by, level)

        found[n, budget] = least_noise(spent, budget, accountant)
    return [found[kind] for kind in kinds]
