"""Personal parts of the model, from the section `personal`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.personal import PERSONAL, PersonalParts
from simfl.assembly.setup import Setup
from simfl.errors import ScenarioError, nearest
from simfl.tape.fragments import Fragments


def personal_of(setup: Setup) -> PersonalParts | None:
    """Return which parts of the model stay at clients; None if all are shared.

    Raises:
        ScenarioError: the model has no such part, no other one, or a client trains it in all steps of a round.
    """
    config, layout = setup.scenario.personal, setup.moved.layout
    if config is None:
        return None
    names = [name for name, _ in layout]
    layer_of = {name: name.replace("/", ".").rpartition(".")[0] for name in names}
    chosen: set[str] = set()
    for part in config.parts:
        tensors = [name for name in names if name == part or layer_of[name] == part.replace("/", ".")]
        if part == "head":
            tensors = [name for name in names if layer_of[name] == layer_of[names[-1]]]
        if not tensors:
            known = [*filter(None, dict.fromkeys(layer_of.values())), *names]
            raise ScenarioError(
                f"personal.parts: expected head or parts of model '{setup.moved.kind}' ({', '.join(known[:12])}), "
                f"found {part!r}{nearest(part, known)}"
            )
        chosen |= {*tensors}
    if len(chosen) == len(names) or sum(math.prod(shape) for _, shape in layout) != setup.moved.size:
        whole = "all of it" if len(chosen) == len(names) else "parts that are not trained"
        raise ScenarioError(
            f"personal.parts: expected parts of model '{setup.moved.kind}' that leave others to share, found {whole}; "
            "use a model of several layers, all of them trained, such as mlp"
        )
    tensors_of = tuple((math.prod(shape), PERSONAL * (name in chosen)) for name, shape in layout)
    shared = sum(length for length, fragment in tensors_of if fragment != PERSONAL)
    steps = setup.kind.round_steps(setup.sizes.tolist())
    if config.steps and steps is not None and min(steps) <= config.steps:
        client = int(np.argmin(steps))
        raise ScenarioError(
            f"personal.steps: expected less than {steps[client]}, the mini-batches of a round of client {client}, "
            f"found {config.steps}: the shared parts would not be trained; lower it, or raise algorithm.local_steps"
        )
    return PersonalParts(Fragments((shared, setup.moved.size), None, tensors_of))


def mask_of(parts: PersonalParts) -> NDArray[np.float32]:
    """Return 1 for personal parameters and 0 for shared ones, f32 [d]."""
    mask: NDArray[np.float32] = (parts.cut.of() == PERSONAL).astype(np.float32)
    return mask
