"""Networks and data sets of other libraries as models and data of simfl."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="networks of PyTorch, Flax, Equinox and Haiku as models, and sets of items as data",
    frameworks={"torch": "simfl.frameworks.pytorch:from_torch"},
)
