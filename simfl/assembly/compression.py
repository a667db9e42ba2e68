"""The compression of a scenario's messages, in plain values."""

from __future__ import annotations

import numpy as np

from simfl.assembly.setup import Setup
from simfl.compression.base import AbstractCompressor, CompressionPlan, made_by
from simfl.compression.schemes.choco import theory_gamma
from simfl.errors import ScenarioError
from simfl.scenario.own_code import in_one_line
from simfl.scenario.sections import made


def compression_of(setup: Setup) -> CompressionPlan | None:
    """Return how messages are compressed; None if they are not.

    Raises:
        ScenarioError: a user's object is not a compressor, or there is no theory for gamma.
    """
    config, size = setup.scenario.compression, setup.moved.size
    if config is None:
        return None
    compressor: AbstractCompressor = made(config, AbstractCompressor, "compression")
    if config.item is None:
        _try_out(compressor, config.kind, size)
    scheme, gamma = config.scheme or config.usable(setup.scenario.algorithm.uses.messages.schemes)[0], config.gamma
    if gamma is None:
        gamma = _gamma(setup, compressor, size) if scheme == "choco" else 1.0
    return CompressionPlan(compressor, scheme, gamma, size, config.downlink)


def _gamma(setup: Setup, compressor: AbstractCompressor, size: int) -> float:
    """Return the step size of CHOCO-Gossip's theorem; see `theory_gamma`.

    The smallest eigenvalue of W is at least rho - 1, and at least 2 min_i W_ii - 1 by Gershgorin's circles.
    """
    delta, where = compressor.quality(size), "compression.gamma: expected a number"
    if not 0.0 < delta <= 1.0:
        raise ScenarioError(
            f"{where} with '{compressor.kind}', whose messages may be further from a vector than 0 is "
            f"(delta = {delta:g}), found nothing; add one, or leave unbiased out"
        )
    if setup.changing is not None:
        raise ScenarioError(f"{where} with a topology that changes, for which no theory gives one, found nothing")
    rule = setup.scenario.topology.mixing
    rho = setup.topology.spectral_gap(rule)
    smallest = max(rho - 1.0, 2.0 * float(np.min(setup.topology.mixing_matrix(rule).diagonal())) - 1.0)
    return theory_gamma(rho, 1.0 - smallest, delta)


def _try_out(compressor: AbstractCompressor, kind: str, size: int) -> None:
    """Try a user's own compressor on one vector."""
    where = "compression.kind"
    with in_one_line(where, repr(kind)):
        hash(compressor)
        result, bits, quality = made_by(compressor, size), compressor.bits(size), float(compressor.quality(size))
    if result != f"float32[{size}]":
        raise ScenarioError(f"{where}: {kind!r}: compress: expected float32[{size}], found {result}")
    if not (isinstance(bits, int) and bits >= 0 and quality <= 1.0):
        raise ScenarioError(
            f"{where}: {kind!r}: expected an integer of bits and a quality of at most 1, found {bits!r} and {quality:g}"
        )
