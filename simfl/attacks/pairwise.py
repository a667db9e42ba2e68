"""Audits of one observer's knowledge of one client, by canaries.

The canaries are those of `audit`; the adversary is another: not who hears every release of the client, but
a node, some link or the server, with a view A g + B xi of the noisy gradients of all clients (`simfl.privacy.network`).
Every message is a sum of releases, in which noise comes with its gradient, so that the view is A r with r the releases
themselves. With M = A^T (B B^T)^+ A, and with d_j what canary j adds to the client's gradients in its direction (its
clipped norm, times how often it is in each batch, or how likely that is where batches are secret), the score is

    d_j^T M r_j - d_j^T M d_j / 2,

r_j being the releases' coordinates in that direction, without what ordinary examples add on average: the logarithm of
the likelihood ratio where batches are known, and a score like any other where they are not. Any score makes a valid
bound.

The bound is held against what is certified for this observer, and shown beside what papers publish for its view.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.network import Network, local_epsilons, statement_of
from simfl.attacks.adversary import Circumstances, ListeningTape, Ordinary
from simfl.attacks.audit import Audit
from simfl.attacks.canary import CanaryModel
from simfl.attacks.faults import TRIALS
from simfl.attacks.statistics import Profile, epsilon_lower_bound, judge, profile_p_value, right_guesses
from simfl.data import Dataset, Partition
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.privacy.network import one_thread
from simfl.records import RunFolder
from simfl.runs.runner import Simulation
from simfl.scenario import Scenario
from simfl.tape import Gradient

#: Ways in which noise may be missing: what it is multiplied by.
BROKEN = {"noise off": 0.0, "noise halved": 0.5}


@dataclass(frozen=True)
class PairwiseReport:
    """The result of the audit of one observer.

    Attributes:
        scenario: name of the scenario.
        observer, client: who was to learn something of whom.
        distance: hops between them over links that carried something.
        canaries: m.
        guesses, correct: r guesses, fixed in advance, and how many were right.
        messages: that reached the observer.
        gradients: of the client, and how many of them the messages say something of.
        heard: likewise.
        complete: whether every release in the messages was heard.
        neighbors, delta: of all epsilons.
        published: epsilon of the view with gradients taken as fixed; not certified.
        certified, certified_by: the smaller of the pairwise and the ledger's epsilon, and which; NaN if nothing is
            certified.
        confidence: 1 - beta of the lower bound and of the refutation.
        lower_bound: epsilon is not smaller than this.
        p_value: bound on the chance of this many correct guesses if the certified account holds.
        refuted: whether that is below beta.
        ceiling: the lower bound, had all guesses been right.
        sees: ways in which a mechanism may be broken, and whether this audit would have shown it.
        statement: what the ledger's epsilon means.
    """

    scenario: str
    observer: str
    client: int
    distance: float
    canaries: int
    guesses: int
    correct: int
    messages: int
    gradients: int
    heard: int
    complete: bool
    neighbors: str
    delta: float
    published: float
    certified: float
    certified_by: str
    confidence: float
    lower_bound: float
    p_value: float
    refuted: bool
    ceiling: float
    sees: dict[str, bool]
    statement: str

    @property
    def passed(self) -> bool:
        """Whether nothing was found to be wrong."""
        return self.complete and not self.refuted


class PairwiseAudit(Audit):
    """An audit of one observer, made ready.

    Args:
        scenario: a scenario with privacy, or the path of one.
        observer: a client by number, "server", or "links" for who hears all links.
        options: of `Audit`; canaries are gradients.

    Raises:
        ScenarioError: there is nothing to audit, or no account of this view is known.
    """

    def __init__(self, scenario: Scenario | str | Path, observer: int | str, **options: Any) -> None:
        if options.get("kind", "gradient") != "gradient":
            raise ScenarioError(
                "--kind: expected gradient with --observer, found input; leave --kind out: what is seen through a "
                "network is scored along directions"
            )
        self._examples: dict[int, tuple[NDArray[np.float32], NDArray[Any], int]] = {}
        super().__init__(scenario, **options)
        self.network = Network(self.setup)
        self.who = self.network.observer([observer])
        if self.client in self.who.nodes:
            raise ScenarioError(
                f"--observer: expected another one than client {self.client}, who knows its own examples; name another "
                "one, or leave it out for who hears every release"
            )

    def _plant(
        self, dataset: Dataset, shares: Partition, model: AbstractModel
    ) -> tuple[Dataset, Partition, AbstractModel]:
        planted = super()._plant(dataset, shares, model)
        floats = dataset.floats()
        for client in range(shares.num_clients):
            self._examples[client] = self._ordinary.get(client) or self._some(floats, shares.of(client))
        return planted

    def _blank(self, touched: int) -> int:
        return 0  # what an observer receives are sums of releases, whose noise is not tested by itself

    def observe(self) -> PairwiseReport:
        """Run the scenario, take the observer's messages, guess, and judge.

        Raises:
            RunError: the run failed.
        """
        network, setup = self.network, self.setup
        rows = network.seen(self.who)
        a, b = network.matrices(rows, self.who)
        view = network.view(a, b)
        ledger = setup.ledger
        assert ledger is not None, "a scenario with privacy has a ledger"
        releases, signals, rates, heard = self._hear()
        own = np.flatnonzero(network.owners == self.client)
        seen = np.any(a != 0.0, axis=0)
        weights = view.whitened[:, own].T @ view.whitened  # [k, n] of M
        inner = weights[:, own]
        squared = (signals * (inner @ signals)).sum(axis=0)
        scores = scores_of(signals, weights @ releases, squared, self.replaces)
        certified, by, published = self._accounts(rows, a, b)
        profile: Profile = [(certified, ledger.delta)] if math.isfinite(certified) else []
        numbers, level = self.guess_numbers, 1.0 - self.confidence
        verdict = judge(scores, self.included, numbers, delta=ledger.delta, profile=profile, confidence=self.confidence)
        share = level / len(numbers)
        made_up = self._made_up(signals, rates, inner, squared)
        return PairwiseReport(
            scenario=self.scenario.name,
            observer=self.who.name,
            client=self.client,
            distance=float(network.distances(self.who)[self.client]),
            canaries=self.canaries,
            guesses=verdict.guesses,
            correct=verdict.correct,
            messages=len(rows),
            gradients=len(own),
            heard=int(np.count_nonzero(seen[own])),
            complete=bool(heard[seen].all()),
            neighbors=ledger.terms.neighbors,
            delta=ledger.delta,
            published=published,
            certified=certified,
            certified_by=by,
            confidence=self.confidence,
            lower_bound=verdict.lower_bound,
            p_value=verdict.p_value,
            refuted=verdict.p_value < level,
            ceiling=epsilon_lower_bound(verdict.guesses, verdict.guesses, self.canaries, ledger.delta, 1.0 - share),
            sees={name: self._shows(trials, profile, share) for name, trials in made_up.items()},
            statement=statement_of(setup, network.replay.releases),
        )

    def _hear(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """Run, and return the releases in the canaries' directions [n, m].
        gradients and how likely or how often they are in each, [k, m] both, and which of the n were heard."""
        network, setup = self.network, self.setup
        model = setup.model
        assert isinstance(model, CanaryModel), "an audit runs on the model with canaries"
        places = {(one.client, one.draw, one.begin): at for at, one in enumerate(network.knowledge.batches)}
        own = {int(at): row for row, at in enumerate(np.flatnonzero(network.owners == self.client))}
        ordinary = {
            client: Ordinary(model, examples)
            for client, examples in self._examples.items()
            if client not in self.who.nodes
        }
        releases = np.zeros((len(places), self.canaries))
        norms, present = np.zeros((len(own), 1)), np.zeros((len(own), self.canaries))
        heard = np.zeros(len(places), dtype=bool)

        def hear(models: NDArray[np.float32], release: NDArray[np.float32], promises: Sequence[Gradient]) -> None:
            for row, promise in enumerate(promises):
                at = places.get((promise.client, promise.draw, promise.begin))
                if at is None:
                    continue
                known = self._circumstances(promise)
                some = slice(row, row + 1)
                rest = ordinary[promise.client].without(models[some], release[some], [known])
                releases[at], heard[at] = rest[0, model.coordinates], True
                if at in own:
                    norms[own[at]] = min(known.norm, model.norm)
                    present[own[at]] = _present(known)

        listening = partial(ListeningTape, clients=dict.fromkeys(ordinary, math.inf), hear=hear)
        simulation = Simulation(setup, self.device, tape=listening)
        try:
            with tempfile.TemporaryDirectory() as temporary:
                simulation.run(RunFolder.create(Path(temporary), "audit"))
            tape = simulation.tape
            assert isinstance(tape, ListeningTape), "the simulation records on the tape it was given"
            tape.deliver()
        finally:
            simulation.release()
        return releases, norms * present, present, heard

    @one_thread()
    def _accounts(
        self, rows: Sequence[int], a: NDArray[np.float64], b: NDArray[np.float64]
    ) -> tuple[float, str, float]:
        """Return the certified epsilon, its account, and the published one."""
        network, ledger = self.network, self.setup.ledger
        assert ledger is not None, "a scenario with privacy has a ledger"
        local = float(local_epsilons(self.setup, network.replay.releases)[self.client])
        checked = network.check(self.who)
        if checked and not rows:
            return 0.0, "pairwise", 0.0
        if math.isnan(local):
            return math.nan, "local", math.nan
        closed = network.closed_view(rows, a, b, self.who) if checked else None
        pairwise, published = (
            math.inf if view is None else float(network.spent(view, [self.client])[1][0])
            for view in (closed, network.view(a, b))
        )
        published = min(published, pairwise, local)
        return (pairwise, "pairwise", published) if pairwise < local else (local, "local", published)

    def _made_up(
        self, signals: NDArray[Any], rates: NDArray[Any], inner: NDArray[Any], squared: NDArray[Any]
    ) -> dict[str, list[tuple[NDArray[np.bool_], NDArray[np.float64]]]]:
        """Return coins and scores of audits of broken mechanisms, under the same view."""
        simulated: dict[str, list[tuple[NDArray[np.bool_], NDArray[np.float64]]]] = {}
        norms = np.divide(signals, rates, out=np.zeros_like(signals), where=rates > 0)
        for name, factor in BROKEN.items():
            simulated[name] = []
            for _ in range(TRIALS):
                coins = self._trials.random(self.canaries) < 0.5
                secret = (rates > 0) & (rates < 1)
                present = np.where(secret, self._trials.random(rates.shape) < rates, rates)
                added = norms * present * np.where(coins, 1.0, -1.0 if self.replaces else 0.0)
                scores = scores_of(signals, inner @ added, squared, self.replaces)
                scores += factor * np.sqrt(np.maximum(squared, 0.0)) * self._trials.standard_normal(self.canaries)
                simulated[name].append((coins, scores))
        return simulated

    def _shows(
        self, trials: Sequence[tuple[NDArray[np.bool_], NDArray[np.float64]]], profile: Profile, level: float
    ) -> bool:
        return all(
            any(
                profile_p_value(right_guesses(scores, coins, guesses), guesses, self.canaries, profile) < level
                for guesses in self.guess_numbers
            )
            for coins, scores in trials
        )


def scores_of(
    signals: NDArray[np.float64], filtered: NDArray[np.float64], squared: NDArray[np.float64], replaces: bool
) -> NDArray[np.float64]:
    """Return the canaries' scores, f64 [m]: half the log-likelihood ratio.

    Args:
        signals: d, what each adds to each of the client's gradients, [k, m].
        filtered: the rows of M r that are the client's, [k, m].
        squared: d^T M d, [m].
        replaces: whether "out" is the opposite; else it adds nothing.
    """
    scores: NDArray[np.float64] = (signals * filtered).sum(axis=0)
    return scores if replaces else scores - squared / 2


def _present(known: Circumstances) -> NDArray[Any] | float:
    """Return each canary's number or probability in a batch, [m] or a number."""
    return known.rate if known.copies is None else known.copies
