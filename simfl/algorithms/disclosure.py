"""What an observer of a network learns beside the messages that are sent."""

from __future__ import annotations

from simfl.compiled import Integer
from simfl.tape.recording import Gradient, Model
from simfl.world import Network


def observed(network: Network) -> bool:
    """Whether a network has an observer."""
    return network.witness is not None


def merged(network: Network, node: Integer, model: Model) -> None:
    """Tell the observer that a node's model contains a round's sum."""
    if network.witness is not None:
        network.witness.merged(node, model)


def shown(network: Network, source: Integer, target: Integer, content: Model | Gradient) -> None:
    """Tell the observer what a node learns of another without a message of its own."""
    if network.witness is not None:
        network.witness.shown(source, target, content)
