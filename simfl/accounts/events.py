"""The releases of a run as an event of dp-accounting, for its accountants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from simfl.accounts.check import recorded
from simfl.errors import DataError
from simfl.privacy.accounting import Pair, pairs_of
from simfl.privacy.distributed import DiscreteLedger
from simfl.records import Run
from simfl.runs.runner import prepare
from simfl.scenario import from_mapping
from simfl.scenario.own_code import nothing_loaded

if TYPE_CHECKING:
    import dp_accounting


def dp_event(run: Run, client: int) -> dp_accounting.DpEvent:
    """Return what a run released of a client's data, as a `dp_accounting.DpEvent`.

    An event does not know which data sets are neighbors: give the accountant the scenario's `privacy.neighbors`.
    `dp_accounting.pld.PLDAccountant(relation)` then composes it to the client's epsilon in the table `clients`. Batches
    of a fixed size have no such distribution there, and the bound of `dp_accounting.rdp.RdpAccountant` is larger than
    simfl's. A pure release is a randomized response: no release of that epsilon shows more. Where users own clients,
    `client` is the number of a user.

    Raises:
        DataError: the run has no such client, or no account that an event could state.
    """
    import dp_accounting

    with nothing_loaded():
        ledger = prepare(from_mapping(run.scenario)).ledger
    if ledger is None:
        raise DataError(f"{run.folder}: expected a run with a privacy section; without noise there is no account")
    if not 0 <= client < len(ledger.sizes):
        raise DataError(f"client: expected 0 to {len(ledger.sizes) - 1}, found {client}")
    releases = recorded(ledger, run)
    if not ledger.certifies(releases) or client in ledger.attackers:
        raise DataError(f"{run.folder}: client {client} has no epsilon: {ledger.statement_of(releases)}")
    if isinstance(ledger, DiscreteLedger):
        raise DataError(f"{run.folder}: expected Gaussian or pure noise; no event describes sums of discrete Gaussians")
    examples = int(ledger.sizes[client])
    pairs = pairs_of(ledger.compositions(releases, "local_transcript")[client], ledger.terms.neighbors)
    events: list[dp_accounting.DpEvent] = []
    for pair, count in pairs:
        event = _event(pair, examples)
        if pair.pure_epsilon is None:
            events.append(dp_accounting.SelfComposedDpEvent(event, count))
        else:  # one by one: PLDAccountant (dp-accounting 0.6) counts a composed randomized response once
            events += [event] * count
    return dp_accounting.ComposedDpEvent(events)


def _event(pair: Pair, examples: int) -> dp_accounting.DpEvent:
    """Return one release of a client with so many examples."""
    import dp_accounting

    if pair.pure_epsilon is not None:  # with the amplification by sampling
        return dp_accounting.RandomizedResponseDpEvent(2.0 / (1.0 + math.exp(pair.pure_epsilon)), 2)
    if not pair.private:
        return dp_accounting.NonPrivateDpEvent()
    if pair.fixed:
        gaussian = dp_accounting.GaussianDpEvent(pair.over_distance)
        return dp_accounting.SampledWithoutReplacementDpEvent(examples, round(pair.rate * examples), gaussian)
    gaussian = dp_accounting.GaussianDpEvent(pair.noise_multiplier)
    if pair.rate == 1.0 and not pair.replace:
        return gaussian
    # At rate 1 too: RdpAccountant(REPLACE_ONE) would take a replaced example for one that is removed.
    return dp_accounting.PoissonSampledDpEvent(pair.rate, gaussian)
