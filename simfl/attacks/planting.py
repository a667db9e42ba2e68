"""Plant an auditor's canaries among the examples of one client of a scenario.

A fair coin decides whether a canary is in or out. "Out" under add_or_remove means that an example without gradient
takes its place, which for Poisson sampling is equivalent to being absent at the same rate q. Under replace_one a canary
with the opposite gradient takes its place. So the number of examples, q and the epsilon do not depend on the coins.

The model also has coordinates without gradients at its end, for the tests of the noise (`simfl.attacks.noise`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.refusals import refuse_attackers
from simfl.assembly.assemble import assemble
from simfl.assembly.setup import Setup
from simfl.attacks.adversary import Circumstances, positions_in
from simfl.attacks.canary import EXCESS, ORDINARY, OWN_EXCESS, SILENT, CanaryModel, with_codes
from simfl.attacks.noise import BLANK
from simfl.data import Dataset, Partition
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.privacy.ledger import Ledger
from simfl.privacy.mechanisms import MECHANISMS
from simfl.scenario import Scenario, load
from simfl.streams import Streams
from simfl.tape import Gradient

Kind = Literal["gradient", "input"]

#: Maximum number of a client's own examples from which the auditor predicts their mean contribution to a release.
OWN_EXAMPLES = 2000


class PlantedScenario:
    """A scenario with canaries. See `Audit` for the arguments.

    Attributes:
        setup: the run with canaries. A test breaks the mechanism here.
        included: the coins, bool [m].
        replaces: whether neighboring data sets replace an example.
        ordinary: (x, y, count) of the ordinary examples of each client that the auditor hears: at most `OWN_EXAMPLES`
            of them, and the number of all.
        inputs: (x, y) of the canaries.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path,
        canaries: int,
        client: int,
        kind: Kind,
        in_place: bool,
        seed: int | None,
        observed: bool,
    ) -> None:
        self.scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
        self.canaries, self.client, self.kind, self.in_place = canaries, client, kind, in_place
        self._observed = observed  # whether the adversary is one observer of the network
        for problem in _problems(self.scenario, client):
            raise ScenarioError(problem)
        assert self.scenario.privacy is not None, "checked above"
        self.privacy = self.scenario.privacy
        usual = "replace_one" if self.privacy.counts_uses else "add_or_remove"
        self.replaces = getattr(self.privacy, "neighbors", usual) == "replace_one"
        streams = Streams(self.scenario.seed if seed is None else seed)
        self.included: NDArray[np.bool_] = streams.generator("canary-coins").random(canaries) < 0.5
        self._generator = streams.generator("canaries")
        self.trials = streams.generator("canary-trials")
        self.ordinary: dict[int, tuple[NDArray[np.float32], NDArray[Any], int]] = {}
        refuse_attackers(self.scenario, "an audit is about clients that follow the algorithm")
        self.setup: Setup = assemble(self.scenario, self._plant)
        if self.setup.problem.rounds is not None:
            raise ScenarioError(
                "algorithm.kind: expected an algorithm whose clients send gradients, found "
                f"{self.scenario.algorithm.kind}, whose clients train locally; an audit does not know what a canary "
                "does to the result"
            )
        if self.setup.problem.blocks > 1:
            raise ScenarioError(
                f"algorithm.mask: expected 1, found {self.setup.problem.blocks}; an audit listens to all entries of an "
                "update, and masking them changes nothing about the account"
            )

    @property
    def model(self) -> CanaryModel:
        """The model of the run."""
        assert isinstance(self.setup.model, CanaryModel), "an audit runs on the model with canaries"
        return self.setup.model

    @property
    def ledger(self) -> Ledger:
        """The ledger of the run."""
        assert self.setup.ledger is not None, "a scenario with privacy has a ledger"
        return self.setup.ledger

    def _plant(
        self, dataset: Dataset, partition: Partition, model: AbstractModel
    ) -> tuple[Dataset, Partition, AbstractModel]:
        """Add the canaries to the client's examples, before anything is derived."""
        dataset = dataset.floats()  # for the codes
        count, own = self.canaries, partition.of(self.client)
        gradient = self.scenario.algorithm.uses.gradient
        if self.in_place and count > len(own):
            raise ScenarioError(
                f"canaries: expected at most {len(own)} in place, the examples of client {self.client}, found {count}; "
                "ask for fewer, or add them to its data"
            )
        if len(model.task_models) > 1 and gradient == "of_task":
            raise ScenarioError(
                "model.kind: expected a model that moves as a whole, found one_vs_all, whose tasks move on their own; "
                "use model: {kind: logistic} on data with two classes"
            )
        if model.tokens and self.kind == "input":
            raise ScenarioError(
                f"canary: expected gradient with model '{model.kind}', found input: examples of random signs are not "
                "text; use --canary gradient"
            )
        # Without clipping there is no norm for canaries to exceed: they exceed the noise instead.
        named = [getattr(self.privacy, name, None) for name in ("clipping_norm", "lipschitz", "noise_std")]
        unit = max(float(value) for value in (*named, 0.0) if value is not None) or 1.0
        excess = OWN_EXCESS if gradient == "own_norm" else EXCESS
        wrapped = CanaryModel.around(model, count if self.kind == "gradient" else 1, excess * unit)
        wrapped = replace(wrapped, blank=self._blank(wrapped.touched))
        x = np.zeros((count, model.num_features), dtype=np.float32)
        y: NDArray[Any] = np.zeros(count, dtype=dataset.train_y.dtype)
        if self.kind == "gradient":
            number = np.arange(1, count + 1, dtype=np.float32)
            codes = np.where(self.included, number, -number if self.replaces else np.float32(SILENT))
        else:
            self._draw_inputs(x, y, dataset)
            codes = np.where(self.included, np.float32(ORDINARY), np.float32(SILENT))
        self.inputs = x.reshape(count, *model.input_shape), y
        kept = np.sort(self._generator.choice(own, len(own) - count, replace=False)) if self.in_place else own
        parts = [partition.of(k) for k in range(partition.num_clients)]
        others = (self.client + 1) % len(parts), *(range(len(parts)) if self._observed else ())
        for client in dict.fromkeys((self.client, *others)):
            rows = kept if client == self.client else parts[client]
            some = rows if len(rows) <= OWN_EXAMPLES else self._generator.choice(rows, OWN_EXAMPLES, replace=False)
            self.ordinary[client] = np.array(dataset.train_x[some]), np.array(dataset.train_y[some]), len(rows)
        rows = np.concatenate((kept, len(dataset.train_x) + np.arange(count)))
        parts[self.client] = rows.astype(partition.indices.dtype)
        offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(partition.offsets.dtype)
        labels: Any = np.concatenate((dataset.train_y, y))
        ordinary = dataset.mapped(lambda part: with_codes(part, ORDINARY))
        planted = replace(
            ordinary,
            train_x=np.concatenate((ordinary.train_x, with_codes(x, codes))),
            train_y=labels,
            groups=None,  # the partition is final
        )
        return planted, Partition(np.concatenate(parts), offsets), wrapped

    def _blank(self, touched: int) -> int:
        """Return the number of coordinates to add that contain only noise."""
        if self._observed or self.privacy.partial:
            return 0  # an observer receives sums of releases; with partial noise the last coordinates carry none
        make = MECHANISMS.get(self.privacy.mechanism)  # None for noise of one pass, which is Gaussian
        gaussian = make is None or make.sampler == "gaussian"
        return BLANK if gaussian else min(BLANK, touched)  # Laplace noise grows with the number of coordinates

    def _draw_inputs(self, x: NDArray[np.float32], y: NDArray[Any], dataset: Dataset) -> None:
        """Fill in inputs of random signs, as large as the largest feature, random labels."""
        largest = float(np.abs(dataset.train_x).max()) or 1.0
        x[:] = (1.0 if dataset.num_classes else EXCESS) * largest * self._generator.choice((-1.0, 1.0), x.shape)
        if dataset.num_classes:
            y[:] = self._generator.integers(0, dataset.num_classes, len(y))
        else:
            spread = EXCESS * max(1.0, float(np.abs(dataset.train_y).max(initial=0.0)))
            y[:] = spread * self._generator.choice((-1.0, 1.0), len(y))

    def std_per_scale(self, client: int) -> float:
        """Return the standard deviation per coordinate of a client's noise of scale 1."""
        protection = self.setup.protection
        return protection.stds[client] / protection.scales[client] if protection.scales[client] else 1.0

    def batch(self, promise: Gradient) -> NDArray[np.int64]:
        """Return how often each of a client's examples is in a batch; canaries come last."""
        examples = int(self.setup.problem.data.sizes[promise.client])
        return np.bincount(positions_in(self.setup.problem, promise), minlength=examples)

    def circumstances(self, promise: Gradient) -> Circumstances:
        """Return the adversary's knowledge of a release."""
        client, setup, clipping_norm = promise.client, self.setup, self.setup.problem.clipping.norm
        training, ledger = setup.training, self.ledger
        scales = training.each_noise_std() if training.noise_scale is None else training.noise_scale
        usual, unit = float(scales[client]), self.std_per_scale(client)
        # The account has the mechanism's noise, in proportion if promises have their own scales.
        share = promise.noise_scale / usual if usual else 1.0
        norm = clipping_norm if promise.own_norm is None else promise.own_norm
        copies = None
        if client == self.client and (not ledger.terms.amplification or ledger.sampling == "shuffle"):
            copies = self.batch(promise)[-self.canaries :]
        return Circumstances(
            rate=min(1.0, (promise.expected or promise.examples) / int(training.sizes[client])),
            norm=math.inf if norm is None else norm,
            std=promise.noise_scale * unit,
            declared=share * setup.protection.scales[client] * unit,
            copies=copies,
        )


def _problems(scenario: Scenario, client: int) -> Iterator[str]:
    privacy = scenario.privacy
    if privacy is None:
        yield "privacy: expected a mechanism to audit, found none; add a section privacy"
        return
    if scenario.noise_of_server:
        at, found = (
            ("algorithm.noise", "noise: server") if scenario.algorithm.noise_of_server else ("privacy.unit", "user")
        )
        yield (
            f"{at}: expected noise that clients add to what they send, found {found}; an audit hears "
            "what clients send, which that noise does not cover; audit clients that add their own"
        )
    if privacy.protects != "example":
        yield (
            f"privacy.mechanism: expected a mechanism that protects examples, found {privacy.mechanism}, which clips "
            "the whole update: canaries among one client's examples do not test it; audit mechanism: gaussian"
        )
    if privacy.correlated is not None:
        yield (
            f"privacy.noise: expected null, found {privacy.correlated}; an audit knows the law of noise that is drawn "
            "afresh for every release: audit the same scenario without noise"
        )
    if not 0 <= client < scenario.clients.count:
        yield f"client: expected 0 to {scenario.clients.count - 1}, found {client}"
