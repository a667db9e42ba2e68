"""What a server and its clients have of each other's vectors after a message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from simfl.algorithms.personal import PersonalParts
from simfl.algorithms.steps import Terms
from simfl.compression.base import AbstractScheme, CompressionPlan
from simfl.compression.schemes import UPLINKS
from simfl.compression.schemes.ef21 import EF21
from simfl.tape import Model, Tape


def _nothing() -> None:
    """Do nothing when a message is refused."""


class Channel:
    """Messages with whole vectors.

    Args:
        up_bytes, down_bytes: of a message with an update, and of one with the model.
    """

    def __init__(self, up_bytes: int, down_bytes: int) -> None:
        self.up_bytes, self.down_bytes = up_bytes, down_bytes

    def up(self, client: int, terms: Terms) -> Model | None:
        """Return what the server decodes of a client's vector; None if it gets all of it."""
        return None

    def down(
        self, client: int, model: Model, refused: Callable[[], None] = _nothing
    ) -> tuple[Model, Callable[[], None]]:
        """Return what a client has after a message with the model.

        Also returns what to call if the message is refused.
        """
        return model, refused


class PersonalChannel(Channel):
    """Messages with the shared parts of models.

    Args:
        tape: records what becomes of models.
        parts: which are shared, and which are personal.
        clients: how many there are.
        model: which all have at first.
        message_bytes: of a message.
    """

    def __init__(self, tape: Tape, parts: PersonalParts, clients: int, model: Model, message_bytes: int) -> None:
        super().__init__(message_bytes, message_bytes)
        self._tape, self._parts = tape, parts
        #: A model of each client whose personal part is the client's.
        self.own = [model] * clients

    def up(self, client: int, terms: Terms) -> Model | None:
        """Return the change that the server gets; the client keeps the rest of it."""
        change = self._tape.combine(*terms)
        self.own[client] = self._parts.grown(self._tape, self.own[client], change)
        return self._parts.shared(self._tape, change)

    def down(
        self, client: int, model: Model, refused: Callable[[], None] = _nothing
    ) -> tuple[Model, Callable[[], None]]:
        """Return the model with the client's personal part."""
        return self._parts.joined(self._tape, model, self.own[client]), refused

    def of_clients(self, models: Sequence[Model]) -> Sequence[Model]:
        """Return each client's model: the server's with the client's personal part."""
        (model,) = models
        return [self._parts.joined(self._tape, model, own) for own in self.own]


class CompressedChannel(Channel):
    """Messages that are compressed, with what both sides remember of them.

    Noise is in an update already, so that its compression is post-processing.

    Args:
        tape: records what is decoded.
        compression: the compressor and the scheme, and whether it holds for models, too.
        clients: those of the server.
        model: which all have at first.
        model_bytes: of a message with a whole model.
        message_bytes: of a compressed one.
    """

    def __init__(
        self,
        tape: Tape,
        compression: CompressionPlan,
        clients: Iterable[int],
        model: Model,
        model_bytes: int,
        message_bytes: int,
    ) -> None:
        super().__init__(message_bytes, message_bytes if compression.downlink else model_bytes)
        self._tape = tape
        #: w, the model of each client as the server knows it, if the models that it sends are compressed.
        self.held: AbstractScheme | None = None
        if compression.downlink:
            self.held = EF21(tape, compression, dict.fromkeys(clients, model))
        zero = tape.combine((0.0, model))
        self._uplink = UPLINKS[compression.scheme](tape, compression, dict.fromkeys(clients, zero))

    def up(self, client: int, terms: Terms) -> Model | None:
        """Return what the server decodes of a client's vector."""
        return self._uplink.show(client, self._tape.combine(*terms))

    def down(
        self, client: int, model: Model, refused: Callable[[], None] = _nothing
    ) -> tuple[Model, Callable[[], None]]:
        """Return what a client has after a message, which a refusal takes back."""
        if self.held is None:
            return model, refused
        memory, before = self.held, self.held.shown[client]
        shown = memory.show(client, model)

        def take_back() -> None:
            memory.undo(client, before, shown)
            refused()

        return shown, take_back
