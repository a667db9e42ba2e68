"""A user's own models and objects in scenarios."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simfl import plugins
from simfl.assembly.setup import Own
from simfl.data import Dataset
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.models.own import OwnModel, Same, own_model
from simfl.models.trial import EXAMPLES, try_out
from simfl.scenario import Scenario, from_mapping, load
from simfl.scenario.data import ExternalData
from simfl.scenario.fields import Config, hashable
from simfl.scenario.loading import content_of
from simfl.scenario.models import ExternalModel, Torch
from simfl.scenario.own_code import digests_of, is_known, make, named_object
from simfl.scenario.own_code import load as load_own
from simfl.scenario.scenario import name_from
from simfl.streams import Streams

#: The key of a section that names a user's object, and the class of such a section.
EXTERNAL: dict[str, tuple[str, type[Config]]] = {"model": ("kind", ExternalModel), "data": ("set", ExternalData)}


def opened(scenario: Scenario | Mapping[str, Any] | str | Path, own: Own) -> Scenario:
    """Return a scenario in which `object:NAME` replaces the given objects.

    Fields that do not describe the replaced object are kept, such as the partition. The scenario need not be valid
    without the objects: a logistic model may be meant for their two classes, not for the ten of the digits.
    """
    if not own.given:
        return scenario if isinstance(scenario, Scenario) else load(scenario)
    match scenario:
        case Scenario():
            content, source = scenario.given(), scenario.name
        case Mapping():
            content, source = dict(scenario), "scenario"
        case _:
            content, source = content_of(scenario), str(scenario)
            content.setdefault("name", name_from(Path(scenario).stem))
    for section, value in own.given.items():
        key, external = EXTERNAL[section]
        fields = content.get(section)
        keys = {*external.keys()} - {"options"}
        kept = {k: field for k, field in fields.items() if k in keys} if isinstance(fields, Mapping) else {}
        content[section] = kept | {key: named_object(value)}
    return from_mapping(content, source)


def own_model_of(scenario: Scenario, dataset: Dataset, given: Any = None) -> AbstractModel:
    """Return a user's own model, tested on the first examples of the data.

    Args:
        scenario: its model is `module:name`, or an object.
        dataset: the training data.
        given: the object.

    Raises:
        ScenarioError: it cannot be loaded, or is not a valid model.
    """
    config = scenario.model
    assert isinstance(config, ExternalModel)
    name, where = (config.module, "model.module") if isinstance(config, Torch) else (config.kind, "model.kind")
    identity: Any = Same(given)
    if given is None:
        # A function that makes a model may have parameters of these names.
        shapes = {"input_shape": dataset.input_shape, "num_classes": dataset.num_classes}
        maker = load_own(name, where)
        parameters = inspect.signature(maker).parameters if callable(maker) else {}
        options = {name: value for name, value in shapes.items() if name in parameters} | dict(config.options)

        def made() -> Any:
            return make(name, options, where)

        made.__name__ = name
        network = config.network() if isinstance(config, Torch) else None
        given = made() if network is None else plugins.load("frameworks", "torch")(made, **network)
        digests = digests_of([name.partition(":")[0]])
        source = (hashable(config.model_dump()), tuple(digests.items()))
        identity = source if is_known(digests) else Same(given)
    x, y = dataset.train_x[:EXAMPLES], dataset.train_y[:EXAMPLES]
    tokens = bool(getattr(given, "tokens", False))
    if tokens and x.dtype.kind == "f":
        raise ScenarioError(f"model: {name}: expected integers, as its `tokens` says, found data of {x.dtype}")
    x = x.astype(np.int32) if tokens else dataset.scaling(x)
    model = own_model(
        given,
        name=name,
        identity=identity,
        x=x,
        y=y,
        num_classes=dataset.num_classes,
        l2=config.l2,
        key=Streams(scenario.seed_of_learning).key("init"),
    )
    if isinstance(model, OwnModel):
        try_out(model, x, y)
    return model
