"""Data sets, file formats, and partitions over clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simfl import plugins
from simfl.catalogue import Catalogue
from simfl.data import cifar, digits, idx, leaf, libsvm, npz, svhn, synthetic, table, text
from simfl.data.base import Aside, Dataset, Loader, check_features
from simfl.data.partitions import PARTITIONS, Partition, partition
from simfl.data.transforms import OPTIONS, transform
from simfl.errors import ScenarioError, nearest
from simfl.streams import Streams
from simfl.threads import one_thread

__all__ = ["DATASETS", "PARTITIONS", "Dataset", "Loader", "Partition", "load_dataset", "partition"]

_CORE = (digits, idx, cifar, svhn, libsvm, npz, table, leaf, text, synthetic)

DATASETS: Mapping[str, Loader] = Catalogue(
    lambda: {
        loader.kind: loader
        for module in (*_CORE, *plugins.modules("data"))
        for loader in getattr(module, "LOADERS", None) or (module.LOADER,)
    }
)
"""The kinds of data sets by their name in a scenario."""


@one_thread()
def load_dataset(
    kind: str, *, root: Path | None, streams: Streams, validation: Aside = None, **options: Any
) -> Dataset:
    """Load or generate a data set of a kind in `DATASETS`.

    `root` is the folder of data sets (SIMFL_DATA), if the kind reads files; `streams` draw the split ("split"), the
    synthetic problems ("synthetic") and `validation`, if it is a share. `options` are those of the kind's loader and,
    except for synthetic sets, of `simfl.data.transforms.transform`; others are refused.
    """
    if kind not in DATASETS:
        raise ScenarioError(f"data.set: expected one of {', '.join(DATASETS)}, found {kind!r}{nearest(kind, DATASETS)}")
    loader = DATASETS[kind]
    options_of = {name: (*one.options, *(OPTIONS if one.transforms else ())) for name, one in DATASETS.items()}
    for option in options:
        if option not in options_of[kind]:
            others = ", ".join(name for name in options_of if option in options_of[name]) or "none"
            raise ScenarioError(f"data.{option}: has no meaning for set {kind}, only for {others}")
    if validation == "own" and "own_validation" in loader.options:
        options["own_validation"] = True
    changes = {name: options.pop(name) for name in OPTIONS if loader.transforms and name in options}
    return changed(f"data.set: {kind}", loader.load(root, streams, **options), streams, changes, validation)


def changed(
    where: str, dataset: Dataset, streams: Streams, changes: Mapping[str, Any], validation: Aside = None
) -> Dataset:
    """Return a set as used for training: changed by `transform`, and checked."""
    active = ", ".join(f"data.{name}" for name, value in changes.items() if value not in (None, "none"))
    if dataset.tokens and active:
        raise ScenarioError(f"{active}: expected features that are numbers, found sequences of tokens; leave it out")
    dataset = transform(dataset, streams=streams, validation=validation, **changes)
    check_features(where, dataset.train_x)  # per-example clipping needs finite features
    return dataset
