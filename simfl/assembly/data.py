"""The data of a scenario, the partition and the model."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from simfl.assembly.own import own_model_of
from simfl.assembly.setup import Start
from simfl.data import DATASETS, Dataset, Partition, changed, load_dataset, partition
from simfl.data.arrays import from_object
from simfl.data.base import Aside, drawn_of
from simfl.data.partitions import in_the_same_mix, of_owners
from simfl.data.transforms import OPTIONS
from simfl.errors import DataError, ScenarioError
from simfl.models import MODELS, AbstractModel, build_model, model_options
from simfl.records import RunFolder
from simfl.records.folder import digest_of_file
from simfl.records.models import digest_parts, read_models
from simfl.scenario import Scenario
from simfl.scenario.control import Init
from simfl.scenario.data import ClientsValidation, DataConfig, ExternalData, OwnValidation
from simfl.scenario.fields import content_files
from simfl.scenario.models import ModelConfig
from simfl.scenario.own_code import digests_of, in_one_line, is_known, make
from simfl.scenario.own_code import load as load_own
from simfl.streams import Streams, WatchedStreams


def data_root() -> Path | None:
    """The folder of data sets that SIMFL_DATA names."""
    named = os.environ.get("SIMFL_DATA")
    return Path(named) if named else None


def load_data(scenario: Scenario, streams: Streams, given: Any = None) -> Dataset:
    """Return the data set of a scenario, or one that runs share (`shared_data`).

    `given` are data from Python, which a user passed in place of the section.
    """
    config: Any = scenario.data
    options = config.model_dump(exclude={"set", "partition", "augment"}) | {"validation": _set_aside(config)}
    # Some sets depend on the trained model, since their known optimum is that of the model.
    model = scenario.model
    of_model = {"l2": model.l2, "intercept": getattr(model, "intercept", True), "regression": model.regression}
    if config.is_own:
        load = functools.partial(_own_data, config, given, model)
        digests = digests_of([config.set.partition(":")[0]])
        further: tuple[Any, ...] = (of_model, digests)
    else:
        owner = options.pop("owner", None)
        group = config.partition.column if config.partition.kind == "by_column" else owner
        if group is not None:
            options["group"] = group
        options |= {name: value for name, value in of_model.items() if name in DATASETS[config.set].options}
        load = functools.partial(load_dataset, config.set, root=data_root(), **options)
        digests, further = {}, ()
    watched = WatchedStreams(streams.seed)
    if given is not None or not is_known(digests) or _shared is None:
        return _loaded(load, watched)
    key = repr((config.set, sorted(options.items()), *further, data_root()))
    for known in ((key, None), (key, streams.seed)):
        if known in _shared:
            _shared[known] = dataset = _shared.pop(known)  # the last one is the most recently used
            return dataset
    while sum(map(_bytes_of, _shared.values())) > MOST_SHARED_BYTES:
        del _shared[next(iter(_shared))]
    dataset = _loaded(load, watched)
    always_the_same = not (watched.are_used or config.is_own)
    _shared[key, None if always_the_same else streams.seed] = dataset
    return dataset


def _set_aside(config: DataConfig) -> Aside:
    """Return what loading sets aside for validation; clients' own shares are later."""
    aside = config.validation
    return "own" if isinstance(aside, OwnValidation) else aside if isinstance(aside, float) else None


def _loaded(load: Callable[..., Dataset], streams: Streams) -> Dataset:
    try:
        return load(streams=streams)
    except ValueError as error:
        raise DataError(f"data: {error}") from error


def _bytes_of(dataset: Dataset) -> int:
    return sum(part.nbytes for part in dataset.arrays)


def _own_data(config: ExternalData, given: Any, model: ModelConfig, streams: Streams) -> Dataset:
    """Return the data of a user's function, or given from Python."""
    where = "data" if given is not None else f"data.set: {config.set!r}"
    result = make(config.set, config.options, "data.set") if given is None else given
    any_labels = model.is_own and not model.regression
    dataset = from_object(
        result,
        where,
        config.set.partition(":")[2],
        streams,
        regression=None if any_labels else model.regression,
        test_fraction=config.test_fraction,
        scale=config.scale,
        target=config.target,
        owner=config.owner,
        tokens=model.tokens,
    )
    return changed(where, dataset, streams, config.model_dump(include=set(OPTIONS)), _set_aside(config))


#: Data sets by what determines them, and the seed if they were drawn with it; None outside of `shared_data`.
_shared: dict[tuple[str, int | None], Dataset] | None = None
#: Before a set is loaded, the least recently used ones go until the others have at most this many bytes.
MOST_SHARED_BYTES = 3 * 2**27


@contextlib.contextmanager
def shared_data() -> Iterator[None]:
    """Let runs in this block load equal data once; no run writes into a data set."""
    global _shared
    before, _shared = _shared, {} if _shared is None else _shared
    try:
        yield
    finally:
        _shared = before


def augmentation_of(scenario: Scenario, dataset: Dataset) -> Any:
    """Return the augmentation of the mini-batches; None for none."""
    config: Any = getattr(scenario.data, "augment", None)
    if config is None:
        return None
    shape = dataset.image_shape
    if shape is None:
        changed_by = "" if dataset.loaded_shape is None else ", changed by data.normalize or data.pca"
        raise ScenarioError(
            f"data.augment: expected images, found the examples of {dataset.name}{changed_by}; remove it"
        )
    from simfl.tape.augment import Augmentation, result_of  # imports JAX

    if config.is_own:
        own = load_own(config.kind, "data.augment")
        with in_one_line("data.augment", repr(config.kind)):
            made, expected = result_of(own, shape), f"float32 {list(shape)}"
        if made != expected:
            raise ScenarioError(f"data.augment: {config.kind!r}: expected an image, {expected}, found {made}")
        return Augmentation(shape, own=own)
    if config.crop >= min(shape[:2]):
        expected = f"less than {min(shape[:2])}, the size of the images of {dataset.name}"
        raise ScenarioError(f"data.augment.crop: expected {expected}, found {config.crop}; lower it")
    black = np.broadcast_to(dataset.scaling(np.zeros(shape, np.uint8)), shape).reshape(-1, (*shape, 1)[2])[0]
    padding = black if dataset.loaded_shape is None else np.zeros_like(black)
    return Augmentation(shape, config.crop, config.flip, tuple(padding.tolist()))


def digest_of_data(dataset: Dataset) -> str:
    """Return the SHA-256 of a data set's content."""
    arrays = *dataset.arrays, *dataset.scaling.arrays
    owners = [part.astype(str) for part in (dataset.groups, dataset.test_groups) if part is not None]
    digest = hashlib.sha256()
    for array in (*arrays, *owners):
        digest.update(f"{array.shape};{array.dtype};".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def sources_of(scenario: Scenario, dataset: Dataset) -> dict[str, Any]:
    """Return the digests by which changed data are noticed.

    They are of the user's files, or of the data from the user's code. Built-in sets do not change and have none.
    """
    if scenario.data.is_own:
        return {"digest": digest_of_data(dataset)}
    files = {_portable(path): digest_of_file(path) for path in dataset.files}
    return {"files": files} if files else {}


def _portable(path: Path) -> str:
    """Return a data file's path relative to the folder of data sets, if inside it."""
    root = data_root()
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)


def is_same_data(scenario: Scenario, sources: Any, digest_of: Callable[[Path], str] = digest_of_file) -> bool:
    """Return whether a run's data are still those of the scenario; False if unknown.

    Args:
        scenario: of the run.
        sources: the result of `sources_of` at the time of the run.
        digest_of: returns the digest of a file.

    Raises:
        ScenarioError, DataError: a user's function cannot be called, or does not return data.
    """
    recorded = sources if isinstance(sources, dict) else {}
    if scenario.data.is_own:
        dataset, _ = divided(scenario, Streams(scenario.seed))
        return bool(digest_of_data(dataset) == recorded.get("digest"))
    files, root = recorded.get("files", {}), data_root()
    if not isinstance(files, dict) or (any(content_files(scenario.data)) and not files):
        return False
    places = {name: [Path(name)] if root is None else [root / name, Path(name)] for name in files}
    return all(digest and digest in map(digest_of, places[name]) for name, digest in files.items())


def share_out(scenario: Scenario, dataset: Dataset, streams: Streams) -> Partition:
    """Return the training examples of each client."""
    options = scenario.data.partition.model_dump()
    kind = options.pop("kind")
    if kind in ("by_column", "natural"):
        if dataset.groups is None:
            raise ScenarioError(
                f"data.partition.kind: {kind} needs data that say whose each example is, found none of {dataset.name}; "
                "return owners beside them, or name their column: data.owner"
            )
        options["groups"] = dataset.groups
    if (sizes := options.pop("sizes", None)) is not None:
        options |= {"sizes": sizes.pop("kind")} | sizes
    generator = streams.generator("partition")
    try:
        return partition(kind, dataset.train_y, scenario.clients.count, generator, **options)
    except ValueError as error:
        raise ScenarioError(f"data.partition: {error}") from error


def divided(scenario: Scenario, streams: Streams, given: Any = None) -> tuple[Dataset, Partition]:
    """Return the data set, and each client's training examples (`share_out`).

    With `data.validation: {clients: 0.1}` clients have kept a share of theirs out. `given` are data from Python.
    """
    dataset = load_data(scenario, streams, given)
    partition, aside = share_out(scenario, dataset, streams), scenario.data.validation
    if not isinstance(aside, ClientsValidation):
        return dataset, partition
    indices, sizes = partition.indices, partition.sizes
    if len(np.unique(indices)) < len(indices):
        raise ScenarioError(
            "data.validation.clients: expected examples that one client holds, found some that several do "
            f"(data.partition.kind: {scenario.data.partition.kind}); use a share of all examples, such as 0.1"
        )
    holders = np.repeat(np.arange(len(sizes)), sizes)
    drawn = drawn_of(aside.clients, holders, dataset.keys(streams)[indices])
    mask = np.zeros(len(dataset.train_x), bool)
    mask[indices[drawn]] = True
    offsets = np.concatenate([[0], np.cumsum(sizes - np.bincount(holders[drawn], minlength=len(sizes)))])
    kept = Partition((np.cumsum(~mask, dtype=np.int32) - 1)[indices[~drawn]], offsets)
    key = np.packbits(mask).tobytes()
    known, part = _kept.get(dataset, (b"", dataset))
    if known != key:  # runs of one world share it, as they share the whole set
        _kept[dataset] = key, (part := dataset.without(mask))
    return part, kept


#: The part of a data set that clients train on, by the set, beside the mask of what it leaves out.
_kept: WeakKeyDictionary[Dataset, tuple[bytes, Dataset]] = WeakKeyDictionary()


def own_tests(scenario: Scenario, dataset: Dataset, partition: Partition, streams: Streams) -> Partition | None:
    """Return the test examples of each client; None if no evaluation looks at them.

    Clients that are owners have those of their owner. By any other partition, test examples are dealt so that a client
    has its mix of labels.

    Raises:
        ScenarioError: clients are owners, and no owner of a test example is known, or is a client.
    """
    if scenario.evaluate.clients != "own":
        return None
    kind = scenario.data.partition.kind
    if kind not in ("by_column", "natural") or dataset.groups is None:
        return in_the_same_mix(partition, dataset.train_y, dataset.test_y, streams.generator("own-tests"))
    named = f"none of {dataset.name}"
    if dataset.test_groups is not None:
        tests = of_owners(partition, dataset.groups, dataset.test_groups)
        if len(tests.indices):
            return tests
        named = f"only owners that are not clients, such as {dataset.test_groups[0]}"
    raise ScenarioError(
        f"evaluate.clients: own needs the owner of each test example, beside data.partition.kind: {kind}, found "
        f"{named}; name them, leave the test part out, so that it is drawn, or use evaluate.clients: true"
    )


def start_file(init: Init) -> Path:
    """Return the file of the initial model."""
    path = Path(init.source).expanduser()
    return RunFolder(path).models_path("model") if path.is_dir() else path


def start_of(scenario: Scenario, model: AbstractModel) -> Start | None:
    """Return the initial model from a file or run; None for a random one.

    Raises:
        ScenarioError: the file is missing, or does not fit the scenario's model and data.
    """
    if scenario.init is None:
        return None
    file = start_file(scenario.init)
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
    model = _float32_model_of(scenario, dataset, given)
    if scenario.execution.precision == "float32":
        return model
    method = model.clipped_by or model.own_method("gradient_sum", "gradient_norms")
    if method is not None:
        raise ScenarioError(
            f"execution.precision: expected float32 for model '{model.kind}', whose {method} computes gradients in its "
            f"own way, found {scenario.execution.precision}; leave {method} out, and simfl makes them from the losses"
        )
    return model.with_precision(scenario.execution.precision)


def _float32_model_of(scenario: Scenario, dataset: Dataset, given: Any) -> AbstractModel:
    if scenario.model.is_own:
        return own_model_of(scenario, dataset, given)
    sequences = MODELS[scenario.model.kind].tokens
    if dataset.tokens != sequences:
        kinds = [kind for kind, model in MODELS.items() if model.tokens == dataset.tokens]
        held = "sequences of tokens" if dataset.tokens else "examples that are not sequences of tokens"
        raise ScenarioError(
            f"model.kind: expected one of {', '.join(kinds)} for data set '{dataset.name}', which holds {held}, found "
            f"'{scenario.model.kind}'"
        )
    options = scenario.model.arguments()
    if "curvature" in model_options(scenario.model.kind):
        h = dataset.curvature
        options["curvature"] = None if h is None else tuple(float(c) for c in h)
    options |= {"input_shape": dataset.input_shape, "num_classes": dataset.num_classes, "l2": scenario.model.l2}
    try:
        return build_model(scenario.model.kind, **options)
    except ValueError as error:
        raise ScenarioError(str(error)) from error
