"""Use of trained models: predictions, and evaluations on other data."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="use of trained models: evaluations on other data",
    commands={"evaluate": "simfl.trained.evaluate_command:evaluate"},
)
