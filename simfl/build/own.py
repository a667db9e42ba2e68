"""A user's own models and objects in scenarios."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simfl.build.setup import Own
from simfl.data import Dataset
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.models.own import OwnModel, Same, own_model
from simfl.models.trial import EXAMPLES, try_out
from simfl.scenario import Scenario, from_mapping, load
from simfl.scenario.data import ExternalData
from simfl.scenario.fields import Config, hashable
from simfl.scenario.loading import content_of
from simfl.scenario.models import ExternalModel
from simfl.scenario.own_code import digests_of, is_known, make, named_object
from simfl.scenario.own_code import load as load_own
from simfl.scenario.scenario import name_from
from simfl.streams import Streams

#: The key of a section that names what takes its place, and the class of the section then.
EXTERNAL: dict[str, tuple[str, type[Config]]] = {"model": ("kind", ExternalModel), "data": ("set", ExternalData)}


def opened(scenario: Scenario | Mapping[str, Any] | str | Path, own: Own) -> Scenario:
    """Return a scenario in which `object:NAME` replaces the given objects.

    What else its sections say is kept where it is not about what was replaced: the partition, say. The scenario need
    not be valid without the objects: a logistic model wants their two classes, and not the digits' ten.
    """
    if not own.given:
        return scenario if isinstance(scenario, Scenario) else load(scenario)
    if isinstance(scenario, Scenario):
        content, source = scenario.given(), scenario.name
    elif isinstance(scenario, Mapping):
        content, source = dict(scenario), "scenario"
    else:
        content, source = content_of(scenario), str(scenario)
        content.setdefault("name", name_from(Path(scenario).stem))
    for section, value in own.given.items():
        key, external = EXTERNAL[section]
        said = content.get(section)
        keys = {*external.keys()} - {"options"}
        kept = {word: one for word, one in said.items() if word in keys} if isinstance(said, Mapping) else {}
        content[section] = kept | {key: named_object(value)}
    return from_mapping(content, source)


def own_model_of(scenario: Scenario, dataset: Dataset, given: Any = None) -> AbstractModel:
    """Return a user's own model, tested on the first examples of the data.

    Args:
        scenario: whose model is `module:name`, or an object.
        dataset: what it is trained on.
        given: the object.

    Raises:
        ScenarioError: it cannot be loaded, or is not what a model has to be; one line says what.
    """
    config = scenario.model
    assert isinstance(config, ExternalModel)
    identity: Any = Same(given)
    if given is None:
        # What a function that makes a model is told of the data, if it asks for it by these names.
        told = {"input_shape": dataset.input_shape, "num_classes": dataset.num_classes}
        given_model = load_own(config.kind, "model.kind")
        asks = inspect.signature(given_model).parameters if callable(given_model) else {}
        options = {name: value for name, value in told.items() if name in asks} | dict(config.options)
        given = make(config.kind, options, "model.kind")
        digests = digests_of([config.kind.partition(":")[0]])
        known = (config.kind, hashable(config.options), tuple(digests.items()))
        identity = known if is_known(digests) else Same(given)
    x, y = dataset.train_x[:EXAMPLES], dataset.train_y[:EXAMPLES]
    tokens = bool(getattr(given, "tokens", False))
    if tokens and x.dtype.kind == "f":
        raise ScenarioError(f"model: {config.kind}: expected integers, as its `tokens` says, found data of {x.dtype}")
    x = x.astype(np.int32) if tokens else dataset.scaling(x)
    model = own_model(
        given,
        name=config.kind,
        identity=identity,
        x=x,
        y=y,
        num_classes=dataset.num_classes,
        l2=config.l2,
        key=Streams(scenario.seed).key("init"),
    )
    if isinstance(model, OwnModel):
        try_out(model, x, y)
    return model
