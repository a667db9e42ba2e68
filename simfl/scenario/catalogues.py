"""The variants of each section: the core's and those of plugins.

Only `simfl.scenario.scenario` and code that runs after it may import this module: it imports the sections of all
plugins, and those import their base classes from the modules beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from simfl.catalogue import attached, classes_in
from simfl.scenario import algorithms, data, privacy, topologies
from simfl.scenario.algorithms import AlgorithmConfig, ExternalAlgorithm
from simfl.scenario.data import DataConfig, ExternalData
from simfl.scenario.fields import ByKind, Config, members_of
from simfl.scenario.privacy import MechanismConfig
from simfl.scenario.topologies import TopologyConfig


def _union(core: Any, base: type[Config], choice: ByKind) -> Any:
    """Return the union of the variants of the core, of plugins and of users' code."""
    members = members_of(core)
    external = [choice.external] if choice.external else []
    added = [section for section in attached(base, "configs") if choice.key in vars(section).get("__annotations__", {})]
    return Annotated[Union[(*members, *added, *external)], choice]


if TYPE_CHECKING:
    Algorithm = AlgorithmConfig
    Data = DataConfig
    Privacy = MechanismConfig
    Topology = TopologyConfig
else:
    _sections = classes_in(algorithms.__name__, AlgorithmConfig, "configs")
    _named = [section for section in _sections if section.named()]
    Algorithm = Annotated[
        Union[(*_named, ExternalAlgorithm)], ByKind(external=ExternalAlgorithm, listed_by="simfl list algorithms")
    ]
    Data = _union(data.CORE, DataConfig, ByKind("set", default="digits", external=ExternalData, renew=data.renewed))
    Privacy = _union(privacy.CORE, MechanismConfig, ByKind("mechanism", default="gaussian", renew=privacy.renewed))
    Topology = _union(topologies.CORE, TopologyConfig, ByKind(default="ring"))
