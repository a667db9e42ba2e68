"""Find the packages that extend simfl, without importing them by name.

A package attaches itself by an entry point of the group `simfl.plugins` that names a `Plugin`:

    # pyproject.toml of the package
    [project.entry-points."simfl.plugins"]
    mypaper = "simfl_mypaper:PLUGIN"

    # simfl_mypaper/__init__.py
    PLUGIN = Plugin(
        summary="what my paper adds",
        configs=("simfl_mypaper.config",),
        algorithms=("simfl_mypaper.algorithm",),
        commands={"privacy mypaper": "simfl_mypaper.command:command"},
    )

The papers, accounts, attacks, reports, live runs and benchmarks that come with simfl use the same entry points.
The core imports a module of a plugin when its catalogue is read, and not before.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, get_args

from simfl.errors import ScenarioError

GROUP = "simfl.plugins"

Catalogue = Literal[
    "configs",
    "algorithms",
    "kinds",
    "models",
    "data",
    "mechanisms",
    "topologies",
    "selectors",
    "rules",
    "attacks",
    "compressors",
]
Named = Literal["commands", "claims", "studies", "figures", "frameworks"]


@dataclass(frozen=True)
class Plugin:
    """The additions of one package.

    A module is written as "package.module", an object as "package.module:name".

    Attributes:
        summary: one line for `simfl list`.
        configs: modules with sections of a scenario, subclasses of `AlgorithmConfig`, `DataConfig`,
            `MechanismConfig` or `TopologyConfig`.
        algorithms: modules with subclasses of `simfl.algorithms.Algorithm` that have a `kind`.
        kinds: modules with subclasses of `simfl.assembly.kinds.Kind`.
        models: modules with subclasses of `simfl.models.AbstractModel` that have a `kind`.
        data: modules with a `simfl.data.Loader`.
        mechanisms: modules with subclasses of `simfl.privacy.mechanisms.AbstractMechanism`.
        topologies: modules with a `simfl.world.topology.Family`.
        selectors: modules with subclasses of `simfl.selection.base.AbstractSelector` that have a `kind`.
        rules: modules with subclasses of `simfl.robust.base.AbstractRule` that have a `kind`.
        attacks: modules with subclasses of `simfl.robust.base.AbstractAttack` that have a `kind`.
        compressors: modules with subclasses of `simfl.compression.base.AbstractCompressor` that have a `kind`.
        commands: the words after `simfl`, such as "live" or "privacy mapa", and the function or the group.
        claims: a kind of `privacy.claim`, and the function that computes the claims of all clients.
        studies: a name for `simfl reproduce`, and a `simfl.reproduction.papers.Paper`.
        figures: a name, and a function that draws ended runs into a folder and returns the file; `simfl run` calls it.
        frameworks: a `model.kind` for networks of another library, and the function that makes a model of one.
    """

    summary: str
    configs: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    mechanisms: tuple[str, ...] = ()
    topologies: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    compressors: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    studies: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, str] = field(default_factory=dict)
    frameworks: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def plugins() -> dict[str, Plugin]:
    """Return the installed plugins by entry point, in alphabetical order.

    Raises:
        ScenarioError: an entry point cannot be imported, or does not name a `Plugin`.
    """
    return {entry.name: _load(entry) for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}


def _load(entry: EntryPoint) -> Plugin:
    package = entry.dist.name if entry.dist is not None else entry.value
    try:
        plugin = entry.load()
    except Exception as error:
        raise ScenarioError(
            f"plugin {entry.name}: expected {entry.value} of the package {package}, found {type(error).__name__}: "
            f"{error}; repair or uninstall {package}"
        ) from error
    if not isinstance(plugin, Plugin):
        raise ScenarioError(
            f"plugin {entry.name}: expected a simfl.plugins.Plugin at {entry.value}, found {type(plugin).__name__}; "
            f"repair or uninstall {package}"
        )
    return plugin


def modules(catalogue: Catalogue) -> Iterator[Any]:
    """Import and yield the modules that plugins add to a catalogue."""
    for plugin in plugins().values():
        for name in getattr(plugin, catalogue):
            yield importlib.import_module(name)


def names(catalogue: Named) -> dict[str, str]:
    """Return the names that plugins add to a catalogue, and the plugin of each.

    Raises:
        ScenarioError: two plugins add the same name.
    """
    values: dict[str, str] = {}
    for plugin_name, plugin in plugins().items():
        for name in getattr(plugin, catalogue):
            if name in values:
                raise ScenarioError(
                    f"plugin {plugin_name}: {catalogue}: {name!r} is taken by plugin {values[name]}; uninstall one"
                )
            values[name] = plugin_name
    return values


def load(catalogue: Named, name: str) -> Any:
    """Import a plugin's addition of that name.

    Raises:
        ScenarioError: there is none.
    """
    if (plugin := names(catalogue).get(name)) is None:
        raise ScenarioError(f"{name}: expected a plugin whose {catalogue} have it, found none; install its package")
    return pkgutil.resolve_name(getattr(plugins()[plugin], catalogue)[name])


def is_simfls(one: type) -> bool:
    """Return whether a class is simfl's, and not of a user or of another package."""
    return one.__module__.partition(".")[0] == "simfl"


def origin(module: str) -> str:
    """Return the plugin that lists a module, or "simfl" for a module of the core."""
    for name, plugin in plugins().items():
        for catalogue in get_args(Catalogue):
            if module in getattr(plugin, catalogue):
                return name
    return "simfl"
