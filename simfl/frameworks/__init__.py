"""Networks and data sets of other libraries as models and data of simfl."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="networks of PyTorch, Flax, Equinox and Haiku as models, and sets of Hugging Face as data",
    data=("simfl.frameworks.huggingface",),
    frameworks={"torch": "simfl.frameworks.pytorch:from_torch"},
)
