"""From a scenario to its data, the shares of it that clients hold, and the model that is trained on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simfl.data import DATASETS, Dataset, Partition, load_dataset, partition
from simfl.errors import DataError, ScenarioError
from simfl.models import AbstractModel, build_model, model_options
from simfl.records import RunFolder
from simfl.records.models import digest_parts, read_models
from simfl.scenario import Scenario
from simfl.scenario.models import ExternalModel
from simfl.scenario.partitions import ByColumn
from simfl.simulation.own import own_model_of
from simfl.simulation.setup import Start
from simfl.streams import Streams


def data_root() -> Path | None:
    """The folder of data sets that SIMFL_DATA names."""
    named = os.environ.get("SIMFL_DATA")
    return Path(named) if named else None


def load_data(scenario: Scenario, streams: Streams) -> Dataset:
    """Return the data set that a scenario names; see `shared_data` for when it is loaded once for several runs."""
    config = scenario.data
    options = config.model_dump(exclude={"set", "partition"})
    # Some sets depend on the model that is trained: the optimum that is known, say, is its optimum.
    model = scenario.model
    told = {"l2": model.l2, "intercept": getattr(model, "intercept", True), "regression": model.regression}
    if isinstance(config.partition, ByColumn):
        options["group"] = config.partition.column
    wanted = DATASETS[config.set].options
    options.update((name, value) for name, value in told.items() if name in wanted)
    root = data_root()
    key = repr((config.set, sorted(options.items()), root, streams.seed))
    if _shared is not None and key in _shared:
        return _shared[key]
    if _shared is not None:
        _shared.clear()  # one at a time: large ones need not fit side by side
    try:
        dataset = load_dataset(config.set, root=root, streams=streams, **options)
    except ValueError as error:
        raise DataError(f"data: {error}") from error
    if _shared is not None:
        _shared[key] = dataset
    return dataset


_shared: dict[str, Dataset] | None = None


@contextlib.contextmanager
def shared_data() -> Iterator[None]:
    """Let runs with the same data load them once, within a block in which no file changes.

    What is shared is the data set as loaded; no run writes into it.
    """
    global _shared
    before, _shared = _shared, {} if _shared is None else _shared
    try:
        yield
    finally:
        _shared = before


def share_out(scenario: Scenario, dataset: Dataset, streams: Streams) -> Partition:
    """Return which client holds which training examples."""
    options = scenario.data.partition.model_dump()
    kind = options.pop("kind")
    sizes = options.pop("sizes", None)
    if sizes is not None:
        options["sizes"] = sizes.pop("kind")
        options.update(sizes)
    if dataset.groups is not None:
        options["groups"] = dataset.groups
    generator = streams.generator("partition")
    try:
        return partition(kind, dataset.train_y, scenario.clients.count, generator, **options)
    except ValueError as error:
        raise ScenarioError(f"data.partition: {error}") from error


def start_of(scenario: Scenario, model: AbstractModel) -> Start | None:
    """Return the model that a scenario goes on from, None where it begins with one that is drawn.

    Raises:
        ScenarioError: there is none, or not one for this scenario's model and data.
    """
    if scenario.init is None:
        return None
    path = Path(scenario.init.source).expanduser()
    file = RunFolder(path).models_path("model") if path.is_dir() else path
    try:
        parts = read_models(file)
        params = model.joined(parts)
    except DataError as error:
        raise ScenarioError(f"init.from: {error}; name the folder of a run, or a .npz file") from None
    except ValueError as error:
        raise ScenarioError(f"init.from: {file}: {error}; use the model and data that it was made with") from None
    if not np.isfinite(params).all():
        raise ScenarioError(f"init.from: {file}: expected finite numbers, found a model that has diverged; use another")
    return Start(file, params, digest_parts(parts))


def model_of(scenario: Scenario, dataset: Dataset, given: Any = None) -> AbstractModel:
    """Return the model that fits the data set's shapes; `given` is one from Python."""
    if isinstance(scenario.model, ExternalModel):
        return own_model_of(scenario, dataset, given)
    options = scenario.model.model_dump(exclude={"kind", "l2"})
    if dataset.curvature is not None and "curvature" in model_options(scenario.model.kind):
        options["curvature"] = tuple(float(c) for c in dataset.curvature)
    try:
        return build_model(
            scenario.model.kind,
            input_shape=dataset.input_shape,
            num_classes=dataset.num_classes,
            l2=scenario.model.l2,
            **options,
        )
    except ValueError as error:
        raise ScenarioError(str(error)) from error
