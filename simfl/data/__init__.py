"""Data sets, file formats, and partitions over clients.

`load_dataset` gives a `Dataset` of arrays, `partition` says which client holds which of its training examples.
Downloading is separate, in `simfl.data.fetch`. scikit-learn is imported when a set needs it, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simfl import plugins
from simfl.catalogue import Catalogue
from simfl.data import cifar, digits, idx, leaf, libsvm, npz, synthetic, table, text
from simfl.data.base import Dataset, Loader, check_features
from simfl.data.partitions import PARTITIONS, SIZES, Partition, partition
from simfl.data.transforms import OPTIONS, transform
from simfl.errors import ScenarioError, nearest
from simfl.streams import Streams

__all__ = ["DATASETS", "PARTITIONS", "SIZES", "Dataset", "Loader", "Partition", "load_dataset", "partition"]

_CORE = (digits, idx, cifar, libsvm, npz, table, leaf, text, synthetic)

DATASETS: Mapping[str, Loader] = Catalogue(
    lambda: {
        loader.kind: loader
        for module in (*_CORE, *plugins.modules("data"))
        for loader in getattr(module, "LOADERS", None) or (module.LOADER,)
    }
)
"""The data sets by the word that names them in a scenario; `summary` of each is one line about it."""


def load_dataset(kind: str, *, root: Path | None, streams: Streams, **options: Any) -> Dataset:
    """Load or make a data set.

    Args:
        kind: one of `DATASETS`.
        root: the folder of data sets (SIMFL_DATA), for the kinds that read files.
        streams: draws the split ("split") and the synthetic problems ("synthetic").
        options: those of the kind's loader and, but for synthetic sets, of `simfl.data.transforms.transform`; left out,
            they take their defaults. What means nothing to the kind is refused rather than ignored.
    """
    if kind not in DATASETS:
        raise ScenarioError(f"data.set: expected one of {', '.join(DATASETS)}, found {kind!r}{nearest(kind, DATASETS)}")
    loader = DATASETS[kind]
    takes = {name: (*own.options, *(OPTIONS if own.transforms else ())) for name, own in DATASETS.items()}
    for option in options:
        if option not in takes[kind]:
            others = ", ".join(name for name in takes if option in takes[name]) or "none"
            raise ScenarioError(f"data.{option}: has no meaning for set {kind}, only for {others}")
    changes = {name: options.pop(name) for name in OPTIONS if loader.transforms and name in options}
    return changed(f"data.set: {kind}", loader.load(root, streams, **options), streams, changes)


def changed(where: str, dataset: Dataset, streams: Streams, changes: Mapping[str, Any]) -> Dataset:
    """Return a data set after its `transform`, checked."""
    if dataset.tokens and any(value not in (None, "none") for value in changes.values()):
        asked = ", ".join(f"data.{name}" for name, value in changes.items() if value not in (None, "none"))
        raise ScenarioError(f"{asked}: expected features that are numbers, found sequences of tokens; leave it out")
    dataset = transform(dataset, streams=streams, **changes)
    check_features(where, dataset.train_x)  # per-example clipping counts on it
    return dataset
