"""An option has one default: that of the scenario is that of the class which it reaches."""

import inspect
from typing import Any

from simfl.algorithms import ALGORITHMS
from simfl.data import DATASETS
from simfl.data.transforms import transform
from simfl.privacy.mechanisms import MECHANISMS
from simfl.scenario import catalogues
from simfl.scenario.fields import SETTLED, Config, kind_of, members_of
from simfl.scenario.links import Tcp
from simfl.scenario.secure_sums import SecureSum
from simfl.world.link_values import TcpStartup
from simfl.world.secure_sums import Bonawitz, LightSecAgg, SecAggPlus, Work
from simfl.world.topology import _FAMILIES, TOPOLOGIES

PROTOCOLS = {protocol.kind: protocol for protocol in (Bonawitz, SecAggPlus, LightSecAgg)}
NONE = inspect.Parameter.empty
#: Options with another default in the class, and why. A scenario's null is replaced before a class is made.
REPLACED = {
    ("gaussian", "noise_multiplier"): "1 without a budget, or calibrated to it",
    ("gaussian_update", "noise_multiplier"): "1 without a budget, or calibrated to it",
    ("gaussian_cohort", "noise_multiplier"): "1 without a budget, or calibrated to it",
    ("secagg_plus", "neighbors_threshold"): "half of the neighbors, and one more",
    ("lightsecagg", "colluding"): "half of the threshold",
}


def defaults_of(function: Any) -> dict[str, Any]:
    """Return the default of each argument, `NONE` for an argument without one."""
    return {
        name: argument.default
        for name, argument in inspect.signature(function).parameters.items()
        if argument.kind in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY) and name != "self"
    }


def sections(union: Any, key: str = "kind") -> dict[str, type[Config]]:
    """Return the sections of a union by kind, without those of a user's own classes."""
    named = [section for section in members_of(union) if not section.model_fields[key].is_required()]
    return {kind_of(section, key): section for section in named}


def pairs() -> Any:
    """Yield each section with the defaults of what it makes."""
    made = [
        (catalogues.Privacy, "mechanism", MECHANISMS),
        (catalogues.Topology, "kind", {kind: _FAMILIES[kind].build for kind in TOPOLOGIES}),
        (catalogues.Data, "set", {kind: loader.load for kind, loader in DATASETS.items()}),
        (catalogues.Data, "set", dict.fromkeys(DATASETS, transform)),
    ]
    for union, key, classes in made:
        for kind, section in sections(union, key).items():
            if kind in classes:
                yield kind, section, defaults_of(classes[kind])
    for kind, section in sections(SecureSum).items():
        yield kind, section, defaults_of(PROTOCOLS[kind])
        yield kind, section, {f"seconds_per_{name.removesuffix('_s')}": v for name, v in defaults_of(Work).items()}
    yield "tcp", Tcp, {name.removesuffix("_s"): value for name, value in defaults_of(TcpStartup).items()}


def compared() -> Any:
    """Yield each option that a class has, too: its kind, its name and the two defaults."""
    for kind, section, defaults in pairs():
        for name, field in section.model_fields.items():
            if name in defaults and name not in ("kind", "seed") and SETTLED not in field.metadata:
                yield kind, name, NONE if field.is_required() else field.default, defaults[name]


def test_an_algorithm_does_not_repeat_the_defaults_of_its_section() -> None:
    for kind, section in sections(catalogues.Algorithm).items():
        arguments = defaults_of(ALGORITHMS[kind].set_up)
        options = section.defaults_of_class().keys() & arguments.keys()
        assert {name for name in options if arguments[name] is not NONE} == set(), kind


def test_an_option_has_the_same_default_in_a_scenario_and_in_its_class() -> None:
    options = list(compared())
    assert len(options) > 130
    assert {kind for kind, *_ in options} > {"gaussian", "digits"}
    differ = {
        f"{kind}.{name}": (in_scenario, in_class)
        for kind, name, in_scenario, in_class in options
        if (kind, name) not in REPLACED
        and in_class != in_scenario
        and in_class is not NONE  # the class asks for it
        and not (isinstance(in_scenario, Config) and in_class is None)  # a section, of which the class gets an object
    }
    assert differ == {}


def test_a_default_that_is_replaced_is_null() -> None:
    in_scenarios = {(kind, name): in_scenario for kind, name, in_scenario, _ in compared() if (kind, name) in REPLACED}
    assert in_scenarios == dict.fromkeys(REPLACED)
