"""The schema has exactly the items that other rooms build, under the same names."""

from typing import get_args

import pytest

from simfl import plugins
from simfl.data import DATASETS, PARTITIONS
from simfl.data.partitions import SizesKind
from simfl.errors import ScenarioError
from simfl.models import MODELS, model_options
from simfl.scenario import kinds
from simfl.scenario.fields import kind_of, members_of
from simfl.scenario.models import ModelConfig
from simfl.scenario.partitions import Partition, Sizes
from simfl.scenario.topologies import TopologyConfig
from simfl.world.changing import CHANGING
from simfl.world.topology import MIXING_RULES, TOPOLOGIES


def test_schema_has_all_data_sets_and_partitions() -> None:
    assert set(kinds("data")) == set(DATASETS)
    assert {kind_of(member, "kind") for member in members_of(Partition)} == set(PARTITIONS)
    assert {kind_of(member, "kind") for member in members_of(Sizes)} == set(get_args(SizesKind))


def test_schema_has_all_options_of_models() -> None:
    made = {kind: section for kind, section in ModelConfig.variants.items() if not section.is_own}
    assert made.keys() == MODELS.keys()
    for kind, section in made.items():
        own = set(section.keys()) - {"kind", "l2"}
        assert own == set(model_options(kind)) - {"curvature"}, kind  # a quadratic's curvature comes with its data
        assert section.convolutional == MODELS[kind].convolutional


def test_schema_has_all_topologies_and_mixing_rules() -> None:
    assert set(kinds("topology")) == {*TOPOLOGIES, *CHANGING}
    choices = TopologyConfig.model_json_schema()["properties"]["mixing"]["enum"]
    assert set(choices) == set(MIXING_RULES)


def test_what_no_plugin_brings_is_one_line() -> None:
    with pytest.raises(ScenarioError, match="tensor: expected a plugin whose frameworks have it, found none"):
        plugins.load("frameworks", "tensor")
