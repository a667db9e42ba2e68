"""Correlated noise, from `privacy.noise`."""

from __future__ import annotations

from collections.abc import Sequence

from simfl.build.setup import Setup
from simfl.errors import ScenarioError
from simfl.privacy.correlated import Correlation, InTime, Pairwise
from simfl.privacy.in_time import noising_coefficients, participation
from simfl.scenario.privacy import BandedStrategy, BltStrategy, Gaussian, InTimeNoise, PairwiseNoise


def noising_of(setup: Setup) -> tuple[float, ...] | None:
    """Return the coefficients of noise correlated over time; None for other noise.

    Raises:
        ScenarioError: releases are not single mini-batches, their number is not planned, or jax_privacy is missing.
    """
    privacy, algorithm, stop = setup.scenario.privacy, setup.scenario.algorithm, setup.scenario.stop
    if not isinstance(privacy, Gaussian) or privacy.noise is None:
        return None
    single = setup.kind.released_whole and not setup.kind.local and not setup.algorithm.own_clipping
    if not single or algorithm.noise_of_server or setup.tasks > 1:
        raise ScenarioError(
            f"privacy.noise: expected null, found {privacy.correlated}, with {algorithm.kind}: noise is correlated "
            "between releases of single mini-batches of one model; use adpsgd or decentralized_sgd, for example"
        )
    if not isinstance(privacy.noise, InTimeNoise):
        return None
    noise = privacy.noise
    strategy, window = noise.strategy, noise.window
    if not isinstance(strategy, BandedStrategy | BltStrategy):
        return noising_coefficients(strategy.kind, window)
    if noise.horizon is None and stop.epochs is None and stop.updates is None:
        raise ScenarioError(
            "privacy.noise.horizon: expected a number of releases, or stop.epochs or stop.updates, from which it "
            f"follows, found only a time; add it: strategy {strategy.kind} is made for a number of releases"
        )
    releases = noise.horizon or setup.kind.planned_updates(setup.sizes.tolist())
    takes = participation(setup.kind.sampling, int(setup.sizes.min()), algorithm.batch_size, releases)
    size = strategy.bands if isinstance(strategy, BandedStrategy) else strategy.buffers
    return noising_coefficients(strategy.kind, window, size=size, releases=releases, takes=takes)


def correlation_of(setup: Setup, scales: Sequence[float], noising: tuple[float, ...] | None) -> Correlation | None:
    """Return the composition of each release's noise; None if it is independent.

    Args:
        setup: accepted by `noising_of`.
        scales: standard deviation of each client's own noise on the sum of a mini-batch, [K].
        noising: the result of `noising_of`.

    Raises:
        ScenarioError: there are no neighbors, they change, or there is no noise.
    """
    privacy, algorithm = setup.scenario.privacy, setup.scenario.algorithm
    if not isinstance(privacy, Gaussian) or privacy.noise is None:
        return None
    if min(scales) == 0.0:
        raise ScenarioError(
            "privacy.noise_multiplier: expected more than 0 beside noise, found 0: correlated noise comes in units of "
            "a client's own, without which nothing is private; raise it"
        )
    if noising is not None:
        return InTime(noising)
    assert isinstance(privacy.noise, PairwiseNoise)
    wrong = "privacy.noise: expected null, found pairwise, with"
    if not algorithm.follows_topology:
        raise ScenarioError(
            f"{wrong} {algorithm.kind}, whose clients have no neighbors in topology; use decentralized_sgd, adpsgd, "
            "gossip_learning, or sgp with graph: topology"
        )
    if setup.changing is not None:
        raise ScenarioError(
            f"{wrong} topology '{setup.scenario.topology.kind}', which changes: seeds are shared over edges that stay"
        )
    edges = sorted((one, other) for one in range(len(scales)) for other in setup.topology.neighbors(one) if one < other)
    std = privacy.noise.pair_multiplier * privacy.clipping_norm
    return Pairwise.over(edges, std, scales, setup.streams.key("pair-noise"))
