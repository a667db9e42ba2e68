"""Membership inference from received messages: which examples were trained on?

The scenario is run unchanged, while observers keep some of the messages to them (`simfl.attacks.listening`). Then every
example of a client (a member) and as many unused ones are scored, and the separation of the scores is measured.

- `loss`: minus the example's mean loss under the received models (Yeom, Giacomelli, Fredrikson and Jha 2018,
  https://arxiv.org/abs/1709.01604);
- `gain`: the decrease of the loss from the model that the receiver had sent last, which removes the difficulty of an
  example (Watson, Guo, Cormode and Sablayrolles 2021, https://arxiv.org/abs/2111.08440). For a gradient or an update it
  is the loss's derivative in its direction, at the model for which it was computed (the gradient alignment of Nasr,
  Shokri and Houmansadr 2019, https://arxiv.org/abs/1812.00910).

An observer uses messages from the senders nearest to the client on the graph: from the client itself, if they are
neighbors.

The epsilon is a lower bound if members and others have the same distribution, so that a coin might have decided which
of a pair was used. Both examples of a pair have the same label, so clients and test set may have different shares of
labels. A guess which one of a pair is the member is then a guess of a coin, as in an audit with one run (Steinke, Nasr
and Jagielski 2023, `simfl.attacks.statistics`). If the test set differs from the training set (writers, years),
`held_out="coins"` makes the assumption true: half of the clients' own examples, chosen by coins, are not trained on.
"""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np
from numpy.typing import NDArray

from simfl.accounts.network import LINKS, assumptions_of, hops_from, local_epsilons, network, statement_of
from simfl.accounts.refusals import refuse_attackers, refuse_cohorts
from simfl.assembly.assemble import assemble
from simfl.assembly.setup import Setup
from simfl.attacks.listening import Kept, KeptValues, Observer, Wiretap
from simfl.attacks.pairing import Coins, Pairs, pairs_of
from simfl.attacks.results import FALSE_POSITIVE_RATES, Inference, Membership
from simfl.attacks.separation import area, right_pairs, true_positive_rates
from simfl.attacks.statistics import default_guesses, error_at, pair_lower_bound
from simfl.errors import RunError, ScenarioError
from simfl.models import AbstractModel
from simfl.models.base import Array
from simfl.privacy import checks
from simfl.records import Run, RunFolder
from simfl.runs.runner import Simulation
from simfl.scenario import Scenario, load
from simfl.streams import Streams
from simfl.tape.executor import choose_device

HeldOut = Literal["test", "coins"]

#: Number of examples whose losses are computed together.
CHUNK = 250
#: Maximum size of the kept messages, bytes.
MOST_BYTES = 2 * 2**30
#: Delta of the bounds if a scenario has no privacy.
DELTA = 1e-5


class Account(NamedTuple):
    """The epsilon certified for an observer and a client, NaN if none.

    It is certified `by` "local", the ledger's account of all releases of the client, or "pairwise", the account of the
    messages to the observer. `published`, for fixed gradients, is not certified; NaN if not computed.
    """

    epsilon: float = math.nan
    by: str = "local"
    published: float = math.nan


def infer_membership(
    scenario: Scenario | str | Path,
    *,
    observers: Sequence[Observer] | None = None,
    clients: Sequence[int] | None = None,
    models: int = 10,
    held_out: HeldOut = "test",
    confidence: float = 0.95,
    pairwise: bool = False,
    run: Run | None = None,
    device: str | None = None,
) -> Membership:
    """Run a scenario and infer from received messages which examples were trained on.

    Args:
        scenario: a scenario, or the path of one.
        observers: clients by number, "server", "links" for all links; all clients and the server by default.
        clients: the attacked clients; all by default.
        models: maximum number of messages that an observer keeps for each client, evenly spaced over the run.
        held_out: "test": others are examples of the test set; "coins": half of each client's own, on which it does not
            train.
        confidence: 1 - beta of each lower bound and interval.
        pairwise: also compare with the account of each observer's messages (`simfl.accounts.network`), which may take
            longer than the attack.
        run: the run of this scenario, to compare digests.
        device: "cpu" or "gpu"; JAX's default otherwise.

    Raises:
        ScenarioError: there is nothing to attack.
        RunError: the run failed.
    """
    scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
    checks.whole(1, models=models)
    checks.one_of(get_args(HeldOut), held_out=held_out)
    error_at(confidence)
    run_device, count = choose_device(device), scenario.clients.count
    targets = list(range(count)) if clients is None else list(dict.fromkeys(clients))
    for client in targets:
        if not 0 <= client < count:
            raise ScenarioError(f"--client: expected 0 to {count - 1}, found {client}")
    refuse_cohorts(scenario)
    refuse_attackers(scenario, "an observer hears what clients send that follow the algorithm")
    coins = Coins(targets, Streams(scenario.seed)) if held_out == "coins" else None
    setup = assemble(scenario, None if coins is None else coins.split)
    if setup.tasks > 1:
        raise ScenarioError(
            f"algorithm.kind: expected one whose models move as a whole, found {scenario.algorithm.kind}, which moves "
            "the tasks of one_vs_all on their own; use model: {kind: softmax} with another algorithm"
        )
    pairs = pairs_of(setup, targets) if coins is None else coins.pairs
    simulation = Simulation(setup, run_device)
    try:
        listener = _listener(simulation, observers, targets, models)
        server = _server(simulation)
        simulation.world.network.witness = listener
        with tempfile.TemporaryDirectory() as temporary:
            digest = simulation.run(RunFolder.create(Path(temporary), "attack")).manifest.digest
        if simulation.status == "interrupted":
            raise RunError(f"{scenario.name}: the run was interrupted, so there is nothing to attack")
        values = KeptValues(simulation.tape, setup.training.initial)
        accounts, statement, assumed = _accounts(simulation, listener.kept, pairwise)
        hops = listener.hops(targets)
        judge = _Judge(setup, confidence)
        results: list[tuple[Inference, NDArray[np.float64]]] = []
        deaf = []
        for observer, by_client in listener.kept.items():
            name = "server" if observer == server else str(observer)
            for client, kept in by_client.items():
                if not kept.messages:
                    deaf.append((name, client))
                    continue
                scores = _scores(setup.model, pairs[client], *values.read(kept.messages), kept)
                # An eavesdropper on all links is at distance 0.
                distance = hops[client].get(observer, math.inf) if isinstance(observer, int) else 0.0
                results += judge.rows(name, client, distance, kept, scores, accounts[observer, client])
    finally:
        simulation.release()
    if not results:
        raise ScenarioError("--observer: expected one that models or gradients were sent to, found none")
    return Membership(
        subject=scenario.name,
        inferences=[judge.against_account(one, len(results)) for one, _ in results],
        rates=np.stack([rates for _, rates in results]),
        deaf=deaf,
        held_out=held_out,
        delta=judge.delta,
        neighbors=judge.neighbors,
        confidence=confidence,
        ceiling=judge.ceiling,
        reproduced=None if run is None or coins is not None else digest == run.manifest.digest,
        statement=statement,
        assumptions=assumed,
    )


class _Judge:
    """Makes rows of the table from scores."""

    def __init__(self, setup: Setup, confidence: float) -> None:
        ledger = setup.ledger
        self.delta = DELTA if ledger is None else ledger.terms.delta
        self.neighbors = "replace_one" if ledger is None else ledger.terms.neighbors
        self.confidence = confidence
        self.ceiling = 0.0

    def rows(
        self,
        observer: str,
        client: int,
        distance: float,
        kept: Kept,
        scores: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
        account: Account,
    ) -> list[tuple[Inference, NDArray[np.float64]]]:
        """Return an inference and its true positive rates for each score."""
        rows = []
        for score, (members, others) in scores.items():
            count = len(members)
            guesses = default_guesses(count)
            correct = right_pairs(members, others, guesses)
            self.ceiling = max(self.ceiling, self._bound(guesses, guesses, count))
            tpr = float(true_positive_rates(members, others, [0.01])[0])
            one = Inference(
                observer, client, distance, len(kept.messages), kept.rank, score, count,
                *area(members, others, self.confidence), tpr, correct, guesses,
                self._bound(correct, guesses, count), *account,
            )  # fmt: skip
            rows.append((one, true_positive_rates(members, others, FALSE_POSITIVE_RATES)))
        return rows

    def against_account(self, one: Inference, tests: int) -> Inference:
        """Return an inference with `refuted`, as one of several tests (a union bound)."""
        joint = 1.0 - (1.0 - self.confidence) / tests
        refuted = one.lower_bound > one.account and (
            pair_lower_bound(one.correct, one.guesses, one.members, self.delta, self.neighbors, joint) > one.account
        )
        return replace(one, refuted=refuted)

    def _bound(self, correct: int, guesses: int, pairs: int) -> float:
        return pair_lower_bound(correct, guesses, pairs, self.delta, self.neighbors, self.confidence)


def _listener(
    simulation: Simulation, observers: Sequence[Observer] | None, targets: Sequence[int], models: int
) -> Wiretap:
    algorithm, setup = simulation.algorithm, simulation.setup
    count = setup.scenario.clients.count
    server = _server(simulation)
    nodes: list[Observer] = [*range(count), *([] if server is None else [server])]
    listening = nodes if observers is None else [_node(one, count, server) for one in observers]
    need = len(listening) * len(targets) * models * 4 * setup.model.size
    if need > MOST_BYTES:
        raise ScenarioError(
            f"--models: expected what fits into {MOST_BYTES / 2**30:g} GiB, found {models} models for each of "
            f"{len(listening)} observers and {len(targets)} clients, {need / 2**30:.1f} GiB; name fewer with "
            "--observer, --client or --models"
        )
    distances = hops_from(targets, algorithm.pairs())
    named: list[Observer] = list(dict.fromkeys(listening))
    if all(observer == client for observer in named for client in targets):
        raise ScenarioError(
            f"--observer: expected an observer other than the attacked client, found only {named[0]}; name another "
            "observer or another client"
        )
    return Wiretap(named, distances, models, count)


def _node(observer: Observer, count: int, server: int | None) -> Observer:
    if observer == "server" and server is not None:
        return server
    if observer == LINKS:
        return LINKS
    if isinstance(observer, int) and 0 <= observer < count:
        return observer
    expected = f"0 to {count - 1}, {'server, ' if server is not None else ''}or {LINKS}"
    raise ScenarioError(f"--observer: expected {expected}, found {observer}")


def _accounts(
    simulation: Simulation, kept: Mapping[Observer, Mapping[int, Kept]], pairwise: bool
) -> tuple[dict[tuple[Observer, int], Account], str, dict[str, str]]:
    """Return accounts by observer and client, their meaning and assumptions."""
    ledger, scenario, server = simulation.setup.ledger, simulation.setup.scenario, _server(simulation)
    pairs = [(observer, client) for observer in kept for client in kept[observer]]
    if ledger is None:
        return dict.fromkeys(pairs, Account()), "no privacy section: nothing is certified", {}
    releases = simulation.account()
    epsilon, statement = local_epsilons(simulation.setup, releases), statement_of(simulation.setup, releases)
    # Noise that the server adds does not protect the messages to it.
    bare = (server, LINKS) if scenario.noise_of_server else ()
    accounts = {pair: Account() if pair[0] in bare else Account(float(epsilon[pair[1]])) for pair in pairs}
    if pairwise:
        names = {("server" if observer == server else str(observer)): observer for observer in kept}
        for row in network(scenario, observers=list(names)).pairs.to_dict("records"):
            pair = names[row["observer"]], row["client"]
            if pair in accounts:
                accounts[pair] = Account(row["epsilon"], row["account"], row["published"])
    return accounts, statement, assumptions_of(simulation.setup, releases)


def _server(simulation: Simulation) -> int | None:
    number: int | None = getattr(simulation.algorithm, "server", None)
    return number


def _scores(
    model: AbstractModel, pairs: Pairs, contents: NDArray[np.float32], bases: NDArray[np.float32], kept: Kept
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return score -> (of members [m], of others [m])."""
    x = np.concatenate((pairs.members, pairs.others))
    y = np.concatenate((pairs.labels, pairs.other_labels))
    at = len(pairs.members)
    changes = np.array([heard.change for heard in kept.messages])
    total, gain = np.zeros(len(x)), np.zeros(len(x))
    for along in (False, True):
        some = changes == along
        if some.any():
            losses, gains = score(model, contents[some], bases[some], x, y, along=along)
            total, gain = total + losses, gain + gains
    return {"loss": (-total[:at], -total[at:]), "gain": (gain[:at], gain[at:])}


def score(
    model: AbstractModel,
    contents: NDArray[np.float32],
    bases: NDArray[np.float32],
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    along: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sums of losses and of their decreases for each example [n] of x, y.

    Contents f32 [k, d] are models w_j, or changes of models (`along`). Bases f32 [k, d] are the models b_j that they
    are compared with or that they change. Losses of changes are those at b_j, and their gain is minus the derivative
    there.
    """
    count = len(contents)
    filled = np.minimum(np.arange(1 << (count - 1).bit_length()), count - 1)  # few sizes are compiled
    contents, bases = jax.device_put((contents[filled], bases[filled]))
    total, gain = np.zeros(len(x)), np.zeros(len(x))
    for start in range(0, len(x), CHUNK):
        rows = np.minimum(np.arange(start, start + CHUNK), len(x) - 1)
        some = slice(start, min(start + CHUNK, len(x)))
        results = _losses_and_gains(model, along, contents, bases, x[rows], y[rows])
        losses, gains = (np.asarray(part, np.float64) for part in results)
        total[some] = losses[:count].sum(axis=0)[: some.stop - start]
        gain[some] = gains[:count].sum(axis=0)[: some.stop - start]
    return total, gain


@functools.partial(jax.jit, static_argnums=(0, 1))
def _losses_and_gains(model: AbstractModel, along: bool, contents: Array, bases: Array, x: Array, y: Array) -> Any:
    """Return losses and gains of n examples for k contents, [k, n] each."""

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        content, base = pair
        if along:
            losses, slope = jax.jvp(lambda w: model.losses(w, x, y), (base,), (content,))
            return losses, -slope
        losses = model.losses(content, x, y)
        return losses, model.losses(base, x, y) - losses

    return jax.lax.map(one, (contents, bases))
