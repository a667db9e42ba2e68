"""Base classes of compressors and schemes, and the compression plan of a run.

A compressor Q turns a vector into a short message. It is a frozen dataclass that `Tape.map` can call. A scheme decides
what clients compress, how their neighbors use it, and what is kept for later messages.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from simfl.models.lazy import jax, jnp
from simfl.tape import Model, Tape

if TYPE_CHECKING:
    from simfl.tape.maps import Given

#: Bits of a number in a message.
VALUE_BITS = 32


@dataclass(frozen=True)
class AbstractCompressor(ABC):
    """Turns a vector into a message."""

    kind: ClassVar[str]
    summary: ClassVar[str]
    #: Whether it draws random numbers.
    draws: ClassVar[bool] = False

    @abstractmethod
    def compress(self, x: jax.Array, key: jax.Array) -> jax.Array:
        """Return Q(x), f32 [d], as the receiver decodes it.

        Args:
            x: f32 [d].
            key: for `jax.random`; every message has a key of its own.
        """

    @abstractmethod
    def bits(self, size: int) -> int:
        """Return the length in bits of a message about a vector of `size` coordinates."""

    @abstractmethod
    def quality(self, size: int) -> float:
        """Return delta in E |Q(x) - x|² <= (1 - delta) |x|², for all x f32 [size].

        It is not positive if Q(x) may be further from x than 0 is.
        """

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return Q of the first row, f32 [d]."""
        return self.compress(rows[0], given.key)


def made_by(compressor: AbstractCompressor, size: int) -> str:
    """Return type and shape of a message as decoded, such as "float32[10]"."""
    made = jax.eval_shape(compressor.compress, jax.ShapeDtypeStruct((size,), jnp.float32), jax.random.key(0))
    return f"{made.dtype}{list(made.shape)}"


@dataclass(frozen=True)
class CompressionPlan:
    """How the messages of a run are compressed.

    Attributes:
        compressor: Q.
        scheme: name of the scheme.
        gamma: consensus step size in (0, 1], for schemes that have one.
        size: d, the coordinates of a model.
        downlink: whether the models that a server sends are compressed, too.
    """

    compressor: AbstractCompressor
    scheme: str
    gamma: float
    size: int
    downlink: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of a compressed message."""
        return math.ceil(self.compressor.bits(self.size) / 8)


class AbstractScheme(ABC):
    """Base of schemes for rounds of gossip with compressed messages.

    In every round a client i shows its neighbors a vector s_i (`show`), mixes (`base`, `mix`), takes its gradient step,
    and may correct the result (`after`):

        x <- base + gamma sum_{j != i} W_ij (s_j - s_i) - step * gradient

    Args:
        tape: records the functions.
        plan: how messages are compressed.
        models: the initial model of each client, by its number, which all clients know.
    """

    kind: ClassVar[str]
    summary: ClassVar[str]
    #: Whether a message changes an estimate that the receiver keeps; if not, a message is complete by itself.
    remembers: ClassVar[bool] = True

    def __init__(self, tape: Tape, plan: CompressionPlan, models: Mapping[int, Model]) -> None:
        self.plan, self._tape, self._compressor = plan, tape, plan.compressor
        #: s of each client, as its neighbors know it after its last message.
        self.shown = dict(models)
        self._last: dict[tuple[int, int], int] = {}  # sender and receiver -> round of the last message

    @abstractmethod
    def show(self, me: int, model: Model) -> Model:
        """Return s at the start of a round: what receivers hold after the message."""

    def undo(self, me: int, before: Model, sent: Model) -> None:
        """Forget a message `sent` that will not arrive; s was `before`."""
        del sent
        self.shown[me] = before

    def base(self, me: int, model: Model) -> Model:
        """Return the model that mixing starts from, x by default."""
        return model

    def mix(self, me: int, model: Model, messages: Sequence[tuple[float, Model]]) -> Model:
        """Return base + gamma sum_j W_ij (s_j - s_i) over the received messages."""
        gamma, total = self.plan.gamma, sum(weight for weight, _ in messages)
        others = [(gamma * weight, shown) for weight, shown in messages]
        return self._tape.combine((1.0, self.base(me, model)), (-gamma * total, self.shown[me]), *others)

    def after(self, me: int, model: Model, stepped: Model) -> Model:
        """Return the client's next model, given its models before and after the step."""
        return stepped

    def bytes(self, me: int, neighbor: int, round_num: int, first_round: float) -> int:
        """Return the size of a message in bytes, and note that it is sent.

        A receiver that lacks the sender's previous message cannot apply a change. It is sent all of s instead, so that
        its copy stays exact. In the sender's first round every receiver knows s.
        """
        last = self._last.get((me, neighbor), round_num - 1 if round_num == first_round else -1)
        self._last[me, neighbor] = round_num
        follows = not self.remembers or last == round_num - 1
        return self.plan.bytes if follows else 4 * self.plan.size

    def _map(
        self, function: Callable[..., Any], models: Sequence[Model], me: int, scalars: Sequence[float] = ()
    ) -> tuple[Model, ...]:
        """Record a function of models that calls the compressor."""
        client = me if self._compressor.draws else None
        outputs = getattr(function, "outputs", 1)
        return self._tape.map(function, models, scalars=scalars, outputs=outputs, client=client)


class Pairs:
    """The memories of exchanges in pairs, which one of the two starts.

    A client has one exchange under way that it started itself. Estimates are kept for each (initiator, peer): messages
    of other exchanges, which may cross or overtake, never touch them. A scheme that remembers no neighbor needs one
    memory for each client.

    Args:
        scheme: of which `show` and `undo` are used.
        tape, plan, models: as of the scheme.
    """

    def __init__(
        self, scheme: type[AbstractScheme], tape: Tape, plan: CompressionPlan, models: Mapping[int, Model]
    ) -> None:
        self._make: Callable[[Mapping[int, Model]], AbstractScheme] = functools.partial(scheme, tape, plan)
        self._models = models
        self._common = None if scheme.remembers else self._make(models)
        self._of: dict[tuple[int, int], AbstractScheme] = {}

    def of(self, initiator: int, peer: int) -> AbstractScheme:
        """Return the memory of the exchanges that a client starts with a peer."""
        if self._common is not None:
            return self._common
        pair = initiator, peer
        if pair not in self._of:
            self._of[pair] = self._make({client: self._models[client] for client in pair})
        return self._of[pair]


@dataclass(frozen=True)
class Compressing:
    """Base of functions of models that call a compressor."""

    #: Number of rows that it returns.
    outputs: ClassVar[int] = 1

    compressor: AbstractCompressor
