"""The arithmetic of a run in plain values: data, batches, clipping and noise.

A `LearningProblem` needs a model, data, batches and keys. Everything else is an optional part (clipping, noise, tasks,
local rounds, blocks, a ball) with a neutral default, so that an algorithm adds only the parts that it needs:

    dataclasses.replace(problem, rounds=LocalRounds(proximal=0.1))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.data.base import AS_IS, Scaling
from simfl.models import AbstractModel
from simfl.privacy.correlated import Correlation, Form
from simfl.tape.optimizers import StateRows, Transformation, constants_of

Clip = Literal["example", "update"]
#: (examples, keys) -> changed examples: `simfl.tape.augment.Augmentation`.
Augment = Callable[[Any, Any], Any]
Sampling = Literal["poisson", "without_replacement", "shuffle", "with_replacement"]
#: `same_order` is `shuffle` with the same order in every pass, for accounts that need it; scenarios cannot name it.
Drawing = Literal[Sampling, "same_order"]


@dataclass(frozen=True)
class ClientData:
    """The examples, and which client holds which.

    Attributes:
        train_x: f32 or integers [n, ...]; train_y: int32 [n] or f32 [n].
        test_x: [m, ...], as train_x; test_y: as train_y.
        indices: int32 [total], examples of client 0, then of client 1, ...
        offsets: int [K + 1], where each client's part of `indices` begins.
        scaling: how integers are converted for a model that does not take tokens.
    """

    train_x: NDArray[Any]
    train_y: NDArray[Any]
    test_x: NDArray[Any]
    test_y: NDArray[Any]
    indices: NDArray[np.int32]
    offsets: NDArray[np.int64]
    scaling: Scaling = AS_IS

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Examples per client, int64 [K]."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Keys:
    """Keys of the device streams, uint32 [2] each.

    Attributes:
        data: the key of mini-batches.
        noise: the key of noise and blocks.
        maps: the key of functions of models.
        augment: the key of augmentation.
        dropout: the key of random draws of the model in training.
    """

    data: NDArray[np.uint32]
    noise: NDArray[np.uint32]
    maps: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(2, dtype=np.uint32))
    augment: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(2, dtype=np.uint32))
    dropout: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(2, dtype=np.uint32))


@dataclass(frozen=True)
class Batches:
    """How a mini-batch is drawn: see `simfl.tape.draws`.

    `size` is the nominal B; the batches of a client with n examples have min(B, n).
    """

    sampling: Drawing
    size: int


@dataclass(frozen=True)
class Clipping:
    """The clipping in L2 norm.

    Attributes:
        norm: C > 0; None for no clipping.
        what: each example's gradient, or the mean over a mini-batch (of local rounds: their change).
        own: whether every gradient has its own norm; `norm` then only says that gradients are clipped.
    """

    norm: float | None = None
    what: Clip = "example"
    own: bool = False

    @property
    def clip(self) -> Clip | None:
        """The clipped quantity; None without clipping."""
        return None if self.norm is None else self.what


@dataclass(frozen=True)
class Noise:
    """The noise that operations carry.

    Attributes:
        sampler: its name in `simfl.privacy.noise`.
        first: the number of leading parameters that get noise; None: all.
        form: how it is correlated, see `simfl.privacy.correlated`; None: every release has independent noise.
    """

    sampler: str
    first: int | None = None
    form: Form | None = None


@dataclass(frozen=True)
class Tasks:
    """Binary models, one for each of c classes, trained separately.

    The problem's `model` is that of one task. The number that the tape calls a client is node * c + task. Indices and
    offsets are those of the nodes.

    Attributes:
        count: c > 1.
        whole: the model that is evaluated, made of one row of each task.
    """

    count: int
    whole: AbstractModel


@dataclass(frozen=True)
class LocalRounds:
    """Local training in rounds of many steps.

    Attributes:
        power: p of the decay of the steps within rounds, see `simfl.tape.recording.Round`.
        proximal: mu of the pull towards the model a round began with (FedProx).
        corrected: whether a constant row is added to every gradient of a round (SCAFFOLD).
        own_pull: whether each round states its own mu, and its own factor of the penalty, with its steps.
        personal: f32 [d], 1 for parameters that only the first `personal_steps` steps of a round train, while the
            others train the rest; None: all steps train all.
    """

    power: float = 1.0
    proximal: float = 0.0
    corrected: bool = False
    own_pull: bool = False
    personal: NDArray[np.float32] | None = None
    personal_steps: int = 0


@dataclass(frozen=True)
class Optimizing:
    """The optimizers of the executor; hashable.

    Attributes:
        local: the rule of the steps within a round; None: plain SGD.
        kept: the state of that rule, if a client keeps it between rounds; None: each round has a new one.
        applied: the step of an optimizer with a state; None if there is none.
        serial: whether steps are serial operations, after the gradients of a depth.
        pauses: whether steps without a gradient are frequent, because each step waits for the result of the last one.
        beside: whether functions of models run beside gradients rather than serially.
    """

    local: Transformation | None = None
    kept: StateRows | None = None
    applied: StateRows | None = None
    serial: bool = False
    pauses: bool = False
    beside: bool = False

    def on(self, platform: str) -> Optimizing:
        """Return the variant for a platform: a CPU writes rows one by one."""
        if platform != "cpu":
            return dataclasses.replace(self, beside=not self.serial)
        return dataclasses.replace(self, serial=True, pauses=False) if self.pauses else self


@dataclass(frozen=True)
class LocalSteps:
    """Local training before a client's own test, which changes no model of the run.

    Attributes:
        count: mini-batches, those of the client in passes under their own key: the same ones for every evaluation.
        step_size: eta.
        key: uint32 [2].
        parts: f32 [d], 1 for the parameters that are trained and 0 for others; None: all.
    """

    count: int
    step_size: float
    key: NDArray[np.uint32]
    parts: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class OwnTests:
    """The test examples of each client.

    Attributes:
        indices: int32, into the test part; client k has `indices[offsets[k]:offsets[k + 1]]`.
        offsets: int64 [K + 1].
        clients: int [k], the clients that count; None: all.
        local: steps of each client before its test; None for none.
    """

    indices: NDArray[np.int32]
    offsets: NDArray[np.int64]
    clients: NDArray[np.int64] | None = None
    local: LocalSteps | None = None

    def summary(self, evaluation: Any, seen: NDArray[np.bool_]) -> dict[str, float]:
        """Return the columns `simfl.records.tables.OWN` of an evaluation.

        Means are over honest clients with test examples: of all; weighted by their test examples; of the tenth with the
        lowest accuracy, or highest loss; of those that had taken part in training (`seen` [K]), and of those that had
        not. NaN if there are none.
        """
        accuracy, loss = np.asarray(evaluation.client_accuracy), np.asarray(evaluation.client_loss)
        sizes = np.diff(self.offsets)
        counts = sizes > 0
        if self.clients is not None:
            counts &= np.isin(np.arange(len(sizes)), self.clients)
        accuracy, loss, sizes, seen = accuracy[counts], loss[counts], sizes[counts], seen[counts]
        tenth = max(1, len(sizes) // 10)

        def mean(values: NDArray[np.float64]) -> float:
            return float(values.mean()) if len(values) else float("nan")

        weighted = float(sizes @ accuracy / sizes.sum()) if len(sizes) else float("nan")
        return {
            "own_accuracy": mean(accuracy),
            "own_accuracy_weighted": weighted,
            "own_accuracy_worst": mean(np.sort(accuracy)[:tenth]),
            "own_accuracy_seen": mean(accuracy[seen]),
            "own_accuracy_unseen": mean(accuracy[~seen]),
            "own_loss": mean(loss),
            "own_loss_worst": mean(np.sort(loss)[::-1][:tenth]),
        }


@dataclass(frozen=True)
class Measured:
    """What evaluations measure beside the test set.

    Attributes:
        loss_examples: int [k], training examples that measure the training loss.
        gradient_examples: number of leading training examples whose gradients are measured; 0: none.
        further: names of `simfl.tape.measures`.
        clients: int [k], the clients among which the worst are measured; None: all.
        optimum: the minimizer w* of the training loss f, f64 [d], for `distance`; None if neither that nor
            `suboptimality` is measured.
        suboptimality: returns f(w) - f(w*) for parameters, f64 [d]; None as `optimum`.
        leading: int [k], the training examples among which the first `gradient_examples` count; None: all.
        validation: x and y of the validation part, if there is one.
        own: the test examples of each client, if they are measured.
    """

    loss_examples: NDArray[np.int64]
    gradient_examples: int = 0
    further: tuple[str, ...] = ()
    clients: NDArray[np.int64] | None = None
    optimum: NDArray[np.float64] | None = None
    suboptimality: Callable[[NDArray[np.float64]], float] | None = None
    leading: NDArray[np.int64] | None = None
    validation: tuple[tuple[NDArray[Any], NDArray[Any]], ...] = ()
    own: OwnTests | None = None


@dataclass(frozen=True)
class Operation:
    """An operation with a gradient, as programs are compiled for it; hashable.

    Runs that differ in values alone (norms, noise scales, radius, p and mu of rounds, constants of optimizers) share
    their programs.

    Attributes:
        model: the model whose loss is differentiated.
        batches: how its mini-batch is drawn.
        lanes: examples that it can process.
        clip: each example's gradient, or the mean over the mini-batch, or nothing.
        own_norms: whether each operation has its own clipping norm.
        noise: None for none.
        tasks: with more than one, `client` is node * tasks + task and y is whether the label is the task's.
        blocks: with D > 1, one of D blocks of the entries is kept.
        local: whether a round of local steps replaces the gradient.
        projects: whether its result is projected onto a ball.
        optimizing: the optimizers that are not linear.
        corrected: whether a constant row is added to every gradient of a round.
        augment: the random change of each example; None for none.
        own_pull: whether each round states its own pull and penalty.
        alternates: whether the first steps of a round train some parameters, and the others the rest.
    """

    model: AbstractModel
    batches: Batches
    lanes: int
    clip: Clip | None = None
    own_norms: bool = False
    noise: Noise | None = None
    tasks: int = 1
    blocks: int = 1
    local: bool = False
    projects: bool = False
    optimizing: Optimizing = Optimizing()
    corrected: bool = False
    augment: Augment | None = None
    own_pull: bool = False
    alternates: bool = False

    @property
    def extra(self) -> int:
        """The numbers of an operation after its factor and its noise scale."""
        return (4 + 2 * self.own_pull) * self.local + self.corrected + self.own_norms

    @property
    def noised(self) -> int:
        """The number of leading parameters that get noise, if there is any."""
        first = None if self.local or self.noise is None else self.noise.first
        return self.model.size if first is None else first


@dataclass(frozen=True)
class LearningProblem:
    """The problem that the executor computes.

    Attributes:
        model: pure functions of a flat vector of d parameters.
        data: examples of all clients.
        batches: how mini-batches are drawn.
        keys: the keys of the device streams.
        measured: what evaluations measure.
        clipping: the clipping of gradients.
        noise: the noise on them; None for none.
        tasks: None if one model is trained.
        rounds: None if clients send gradients.
        blocks: D > 1 keeps a random 1/D of the entries of every gradient, the penalty's included, D times as large.
        radius: every gradient step ends with a projection onto the ball of this radius; None: no projection.
        optimizing: the steps of optimizers that sums on the tape cannot express.
        correlation: how the noise of a release is made, if it is not only the client's own noise; `noise.form` names
            it.
        augment: the random change of each example of a mini-batch; None for none.
    """

    model: AbstractModel
    data: ClientData
    batches: Batches
    keys: Keys
    measured: Measured
    clipping: Clipping = Clipping()
    noise: Noise | None = None
    tasks: Tasks | None = None
    rounds: LocalRounds | None = None
    blocks: int = 1
    radius: float | None = None
    optimizing: Optimizing = Optimizing()
    correlation: Correlation | None = None
    augment: Augment | None = None

    @property
    def num_tasks(self) -> int:
        """Number of models that are trained on the same data."""
        return 1 if self.tasks is None else self.tasks.count

    @property
    def evaluated(self) -> AbstractModel:
        """The model that is evaluated."""
        return self.model if self.tasks is None else self.tasks.whole

    @property
    def operation(self) -> Operation:
        """The operation that programs are compiled for."""
        return Operation(
            self.model,
            self.batches,
            self.max_batch,
            self.clipping.clip,
            self.clipping.own,
            self.noise,
            self.num_tasks,
            self.blocks,
            self.rounds is not None,
            self.radius is not None,
            self.optimizing,
            self.rounds is not None and self.rounds.corrected,
            self.augment,
            self.rounds is not None and self.rounds.own_pull,
            self.rounds is not None and self.rounds.personal is not None,
        )

    @property
    def recorded(self) -> dict[str, Any]:
        """The keyword arguments of `Tape`."""
        return {
            "max_batch": self.max_batch,
            "local": self.rounds is not None,
            "corrected": self.rounds is not None and self.rounds.corrected,
            "own_pull": self.rounds is not None and self.rounds.own_pull,
            "state_rows": 0 if self.optimizing.kept is None else self.optimizing.kept.rows,
            "own_clipping": self.clipping.own,
            "optimizer": self.optimizing.applied,
            "serial_steps": self.optimizing.serial,
            "maps_beside": self.optimizing.beside,
        }

    def arrays(self) -> dict[str, Any]:
        """Return the `data` of the programs of `simfl.tape.kernels`, on the host."""
        from simfl.tape.inputs import inputs_of  # imports JAX, which a problem that is only checked does not need

        data, rounds, applied = self.data, self.rounds or LocalRounds(), self.optimizing.applied
        alternating = {"personal": rounds.personal, "personal_steps": np.int32(rounds.personal_steps)}
        return {
            "x": inputs_of(data.train_x, data.scaling, self.model),
            "y": data.train_y,
            "table": data.indices.astype(np.int32),
            "offsets": data.offsets[:-1].astype(np.int32),
            "sizes": data.sizes.astype(np.int32),
            "data_key": self.keys.data,
            "noise_key": self.keys.noise,
            "map_key": self.keys.maps,
            "clipping_norm": np.float32(self.clipping.norm or 0.0),
            "radius": np.float32(self.radius or 0.0),
            "power": np.float32(rounds.power),
            "proximal": np.float32(rounds.proximal),
            "local_constants": constants_of(self.optimizing.local),
            "applied_constants": constants_of(None if applied is None else applied.rule),
            **({} if self.correlation is None else self.correlation.arrays()),
            **({} if rounds.personal is None else alternating),
            **({} if self.augment is None else {"augment_key": self.keys.augment}),
            **({"dropout_key": self.keys.dropout} if self.model.draws else {}),
        }

    @property
    def max_batch(self) -> int:
        """Examples that one operation processes (lanes of the batch).

        A Poisson batch has B examples on average; about one in a hundred exceeds this width and
        takes a second operation.
        """
        size, most = self.batches.size, int(max(self.data.sizes.max(), 1))
        if self.batches.sampling != "poisson":
            return min(size, most)
        widest = int(np.ceil(size + 2.4 * np.sqrt(size)))
        return min(-(-widest // 8) * 8, most)
