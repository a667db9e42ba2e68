"""All kinds: options fit constructors, and own algorithms get their options unchanged."""

import functools
import inspect

import pytest

from simfl.algorithms import ALGORITHMS, Algorithm
from simfl.algorithms.staleness import StalenessBound
from simfl.assembly import optimizers
from simfl.assembly.assemble import assemble, build_algorithm
from simfl.assembly.kinds import Kind, check_options, find_kind, options_of
from simfl.assembly.kinds.local_rounds import LocalRoundsKind
from simfl.assembly.kinds.low_communication import HalosKind
from simfl.assembly.kinds.own import OwnKind
from simfl.assembly.world import build_world
from simfl.errors import RunError, ScenarioError
from simfl.scenario import from_mapping
from simfl.scenario.algorithms import AlgorithmConfig
from simfl.scenario.fields import SETTLED, members_of
from simfl.scenario.scenario import Scenario
from simfl.tape import Tape
from tests.assembly.kinds import own
from tests.helpers import NullExecutor

OWN = "tests.assembly.kinds.own"
#: Further sections that a scenario of an algorithm needs.
SECTIONS = {
    "centralized_sgd": {"clients": {"count": 1}},
    "mapa": {"privacy": {"mechanism": "laplace_l2", "neighbors": "replace_one"}},
}
#: Options of a base class that a scenario of an algorithm does not have.
FIXED = {
    "area": {"noise", "server_step", "staleness_exponent"},
    "async_fl": {"staleness"},  # its gate replaces a bound
    "favas": {"concurrency"},
    "fedat": {"deadline", "server_step"},
}
every = pytest.mark.parametrize("kind", ALGORITHMS)


def setup_of(algorithm, **sections):
    content = {"clients": {"count": 4}, "algorithm": algorithm, "stop": {"updates": 20}, **sections}
    return assemble(from_mapping(content))


@functools.cache
def setup_with_defaults(kind):
    return setup_of(kind, **SECTIONS.get(kind, {}))


def algorithm_of(setup):
    tape = Tape(NullExecutor(), **setup.problem.recorded)
    return build_algorithm(setup, build_world(setup), tape, lambda row: None)


@every
def test_options_are_the_arguments_of_the_class(kind):
    """The kind passes exactly the arguments that the class takes, so no name can be misspelled."""
    setup = setup_with_defaults(kind)
    known, others = options_of(setup.algorithm)
    assert set(setup.options) == set(known) - FIXED.get(kind, set())
    assert not others
    algorithm_of(setup)


@every
def test_every_option_of_the_schema_is_passed_on_or_settled(kind):
    """Each settled option is read by the algorithm's kind, a base or `optimizers`, or keeps its default."""
    scenario = setup_with_defaults(kind).scenario
    config, served_by = scenario.algorithm, type(find_kind(scenario))
    settled = [name for name, field in type(config).model_fields.items() if SETTLED in field.metadata]
    assert set(settled).isdisjoint(config.own_options())
    modules = [inspect.getmodule(one) for one in served_by.__mro__ if one.__module__.startswith("simfl.")]
    source = "".join(inspect.getsource(module) for module in [*modules, optimizers])
    schema = "".join(inspect.getsource(one) for one in type(config).__mro__ if issubclass(one, AlgorithmConfig))
    for name in settled:
        read = f".{name}" in source or f'(config, "{name}"' in source or f"self.{name}" in schema
        assert read or name in config.reasons(), f"nobody reads {name}"


def test_the_two_catalogues_have_the_same_algorithms():
    named = {
        str(member.model_fields["kind"].default)
        for member in members_of(Scenario.model_fields["algorithm"].annotation)
        if not member.model_fields["kind"].is_required()
    }
    assert named == set(ALGORITHMS)


def test_a_kind_serves_its_sections_and_those_derived_from_them():
    assert type(find_kind(from_mapping({"algorithm": "fedat"}))) is LocalRoundsKind
    assert type(find_kind(from_mapping({"algorithm": "halos"}))) is HalosKind
    assert type(find_kind(from_mapping({"algorithm": "sgp"}))) is Kind
    assert type(find_kind(from_mapping({"algorithm": f"{OWN}:Named"}))) is OwnKind


def test_staleness_bound_and_steps_of_rounds_are_passed_on():
    setup = setup_of({"kind": "fedbuff", "staleness_bound": {"bound": 3, "policy": "drop"}, "local_steps": 2})
    assert setup.options["staleness"] == StalenessBound(3, "drop")
    assert setup.options["steps"] == [2] * 4
    algorithm = algorithm_of(setup)
    assert algorithm.steps == [2] * 4


def test_own_options_may_have_names_of_settled_options():
    given = {"rule": "mine", "radius": 2.0, "period": 3, "step_clip": 4, "proximal": 5, "stages": [6], "options": 7}
    algorithm = algorithm_of(setup_of({"kind": f"{OWN}:Named", "options": given}))
    assert algorithm.given == ("mine", 2.0, 3, 4, 5, (6,), 7)


def test_error_of_an_own_algorithm_is_reported_in_one_line():
    setup = setup_of({"kind": f"{OWN}:Mistaken"})
    with pytest.raises(
        RunError, match=rf"{OWN}:Mistaken: TypeError: object of type 'int' has no len\(\) in \S*own\.py:\d+$"
    ) as caught:
        algorithm_of(setup)
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Named", {"ruel": 1},
         r"^algorithm\.options: expected one of .* rule, .* found 'ruel'; did you mean 'rule'\?$"),
        ("Named", {}, r"^algorithm\.options: expected a value of 'rule', which Named asks for, found nothing; add it$"),
        ("Mistaken", {"width": 1},
         r"^algorithm\.options: expected one of depth, the options of Mistaken, found 'width'; did"),
        ("Further", {"patience": 0}, r"^algorithm\.options\.patience: expected an integer >= 1, found 0; choose"),
        ("Further", {"way": "out"}, r"^algorithm\.options\.way: expected up or down, found 'out'; choose one of them$"),
        ("Further", {"buffer_size": 2.5}, r"^algorithm\.options\.buffer_size: expected an integer >= 1, found 2\.5;"),
        ("Mistaken", {"tape": 1},
         r"^algorithm\.options: expected one of depth, the options of Mistaken, found 'tape'$"),
    ],
)  # fmt: skip
def test_wrong_options_are_one_line_before_the_run(name, options, message):
    with pytest.raises(ScenarioError, match=message):
        setup_of({"kind": f"{OWN}:{name}", "options": options})


def test_class_that_passes_options_on_accepts_any():
    algorithm = algorithm_of(setup_of({"kind": f"{OWN}:Open", "options": {"strength": 2.0, "anything": 1}}))
    assert (algorithm.boost, algorithm.given) == (2.0, {"anything": 1})
    assert algorithm_of(setup_of({"kind": f"{OWN}:Built", "options": {"gamma": 0.25}})).boost == 0.25
    known, others = options_of(own.Further)
    assert {"patience", "buffer_size", "concurrency", "staleness"} <= set(known)
    assert others


def test_a_class_derived_from_an_algorithm_has_its_options_and_their_defaults():
    further = algorithm_of(setup_of({"kind": f"{OWN}:Further", "options": {"server_step": 0.5, "patience": 7}}))
    assert (further.given, further.server_step, further.buffer_size, further.waiting) == ((7, "up"), 0.5, 10, True)
    fixed = algorithm_of(setup_of(f"{OWN}:Fixed"))
    assert (fixed.buffer_size, fixed.server_step, fixed.waiting) == (5, 1.0, False)


def test_message_says_that_an_algorithm_has_no_options():
    class Bare(Algorithm):
        def set_up(self):
            """Nothing."""

        def start(self):
            """Nothing."""

        def models(self):
            return []

    with pytest.raises(ScenarioError, match=r"^algorithm\.options: expected none, the options of Bare, found 'x'$"):
        check_options(Bare, {"x": 1})
