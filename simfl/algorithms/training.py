"""The plain values of local training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.aggregation import Hostility
from simfl.algorithms.personal import PersonalParts
from simfl.compiled import Number
from simfl.compression.base import CompressionPlan
from simfl.each import number
from simfl.privacy.cohorts import CohortPlan
from simfl.robust.base import AbstractRule
from simfl.selection.base import AbstractSelector
from simfl.streams import Streams
from simfl.world.secure_sums import SumProtocol


def _numbers(values: Sequence[Number]) -> list[Number]:
    """Return numbers of Python, or of a group; a list has these."""
    return values if isinstance(values, list) else [number(value) for value in values]


@dataclass(frozen=True)
class OptimizerPlan:
    """An optimizer in plain values.

    Attributes:
        momentum: beta >= 0.
        nesterov: whether momentum is Nesterov's.
        weight_decay: lambda >= 0; for linear optimizers (SGD and momentum) only.
        initial: f32 [s, d], the initial state of a transformation on the tape, or its rows; None for linear optimizers.
        averaged: number of leading rows of that state that hold real numbers and may be averaged.
        loses: whether a client that crashes loses its state.
        averages: whether states are averaged with the models.
        travels: whether messages with a model contain the state.
        shared: whether there is one state, that of the one model of all clients.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    initial: NDArray[np.float32] | Sequence[Any] | None = None
    averaged: int = 1
    loses: bool = False
    averages: bool = False
    travels: bool = False
    shared: bool = False

    @property
    def rows(self) -> int:
        """Rows of a state, each as large as a model."""
        return int(self.momentum > 0.0) if self.initial is None else len(self.initial)


@dataclass(frozen=True)
class Training:
    """The plain values of local training, the same for every algorithm.

    Attributes:
        initial: f32 [d], the initial model of all clients.
        sizes: number of examples of each client, int [K].
        batch_size: B, nominal examples of a mini-batch; a client that has fewer takes all of them.
        sampling: "poisson", "shuffle" or "with_replacement".
        step_size: step on the mean gradient: a number, or (updates, examples, epochs) -> number.
        l2: lambda of lambda/2 ||w||^2; its gradient does not depend on data and is added without clipping or noise.
        noise_std: standard deviation of the noise on each coordinate of the sum of a mini-batch's gradients: one number
            for all clients, or one per client, [K].
        noise_scale: factor by which noise of unit scale is multiplied, per client, [K]; the default is noise_std, which
            is right for Gaussian noise.
        allowances: releases that each client may make before its privacy budget is spent; None for no budget.
        tasks: number of models that are trained independently on the same data.
        tasks_initial: f32 [tasks, d], the initial model of each task; None: all start with `initial`.
        update_examples: average number of examples of an update, if an update is a round of several mini-batches; 0
            means B.
        clipping_norm: C, the bound on each example's gradient, or on each update if updates are clipped; inf for no
            clipping.
        optimizer: the optimizer of steps on single gradients, or the state of that of local steps, if clients keep it
            between rounds; None: plain SGD, or a new state in each round.
        server_optimizer: the optimizer of a server's steps; None: plain SGD.
        rule: makes one model of several; None: the algorithm's weighted mean.
        hostility: the hostile clients; None: all are honest.
        planned_updates: number of updates of all clients until the end of the run; inf if it is not known.
        compression: how messages are compressed; None: they are not.
        cohorts: how the server adds noise to sums of updates; None: it does not.
        streams: of learning, from which the sizes of Poisson batches are drawn; None: those of the world.
        secure_sum: the protocol by which a server learns sums of updates only; None if it sees the updates.
        selector: chooses the clients that take part; None: all have equal chances.
        personal: the parts of models that clients share, and those that they keep; None: all are shared.
    """

    initial: NDArray[np.float32]
    sizes: NDArray[np.int64]
    batch_size: int
    sampling: str
    step_size: Number | Callable[[int, int, float], float]
    l2: Number = 0.0
    noise_std: Number | Sequence[Number] = 0.0
    noise_scale: Sequence[Number] | None = None
    allowances: Sequence[int] | None = None
    tasks: int = 1
    tasks_initial: NDArray[np.float32] | None = None
    update_examples: Number = 0.0
    clipping_norm: Number = math.inf
    optimizer: OptimizerPlan | None = None
    server_optimizer: OptimizerPlan | None = None
    rule: AbstractRule | None = None
    hostility: Hostility | None = None
    planned_updates: Number = math.inf
    compression: CompressionPlan | None = None
    cohorts: CohortPlan | None = None
    streams: Streams | None = None
    secure_sum: SumProtocol | None = None
    selector: AbstractSelector | None = None
    personal: PersonalParts | None = None

    @property
    def batch_sizes(self) -> list[int]:
        """The nominal examples of each client's mini-batch, min(B, n), [K]."""
        return [min(self.batch_size, n) for n in self.sizes.tolist()]

    @property
    def num_examples(self) -> int:
        """Number of examples of all clients."""
        return int(self.sizes.sum())

    @property
    def examples_per_update(self) -> Number:
        """Average number of examples of an update."""
        return self.update_examples or self.batch_size

    def epochs(self, updates: int) -> Number:
        """Return passes over all clients' examples, by nominal sizes; the mean over tasks."""
        return self.examples_per_update * updates / (self.num_examples * self.tasks)

    def updates_in(self, epochs: Number) -> Number:
        """Return the number of updates in `epochs` passes."""
        return epochs * self.num_examples * self.tasks / self.examples_per_update

    def each_noise_std(self) -> list[Number]:
        """Return the standard deviation of each client's noise, [K]."""
        std = self.noise_std
        return [float(std)] * len(self.sizes) if isinstance(std, float | int) else _numbers(std)

    def each_noise_scale(self) -> list[Number]:
        """Return the factor of each client's noise of unit scale, [K]."""
        return self.each_noise_std() if self.noise_scale is None else _numbers(self.noise_scale)

    @property
    def model_bytes(self) -> int:
        """Bytes of a model's shared parts in a message, with an optimizer's state if sent."""
        optimizer = self.optimizer
        rows = optimizer.rows if optimizer is not None and optimizer.travels else 0
        size = len(self.initial) if self.personal is None else self.personal.shared_size
        return 4 * size * (1 + rows)

    @property
    def message_bytes(self) -> int:
        """Bytes of what takes a model's place in a message: compressed, or the model."""
        return self.model_bytes if self.compression is None else self.compression.bytes
