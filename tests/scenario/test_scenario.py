"""The whole scenario: defaults, short forms, YAML, digest and warnings."""

import inspect
import pickle
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given, settings
from pydantic import ValidationError

from simfl.algorithms import ALGORITHMS
from simfl.errors import ScenarioError
from simfl.scenario import Scenario, from_mapping, kinds, load, loads
from simfl.scenario.algorithms import AdPsgd, ExternalAlgorithm
from simfl.scenario.fields import Config, option
from tests.scenario.strategies import scenarios


def test_default_of_pca_center_leaves_digests_unchanged() -> None:
    text = "algorithm: {kind: adpsgd}\ndata: {set: digits, pca: 5%s}"
    usual, said, other = (loads(text % more, "s") for more in ("", ", pca_center: true", ", pca_center: false"))
    assert usual.digest() == said.digest() != other.digest()
    assert "pca_center" not in usual.resolved()["data"]
    assert other.resolved()["data"]["pca_center"] is False
    assert loads(other.to_yaml(), "again") == other
    with pytest.raises(ScenarioError, match=r"^s:.*data\.pca_center: expected pca beside it, found none; remove it$"):
        loads("algorithm: {kind: adpsgd}\ndata: {pca_center: false}", "s")


DEFAULTS = """\
name: tiny
description: ''
seed: 0
learning_seed: null
data: {set: digits, partition: {kind: iid, sizes: {kind: equal}}, classes: null, normalize: none, pca: null, fit_on:
  null, test_fraction: 0.2}
model: {kind: softmax, l2: 0.0, intercept: true}
init: null
clients: {count: 16, seconds_per_example: 100 us, seconds_per_batch: 0 s, devices: null, speed: {kind: constant,
  value: 1.0}, jitter: {kind: constant, value: 1.0}, trace: null}
slowdowns: []
topology: {kind: ring, mixing: metropolis}
regions: null
links: {latency: {kind: constant, value: 1 ms}, bandwidth: 1 Gbit/s, loss: 0.0, resend_timeout: 100 ms, fifo: false,
  sharing: null, uplink: null, downlink: null, rules: [], startup: {kind: none}, overhead: 0, partitions: []}
underlay: null
server: {uplink: null, downlink: null, seconds_per_update: 0 s, region: null, aggregator_regions: [], offline: []}
availability: []
algorithm: {kind: adpsgd, step_size: {kind: constant, value: 0.4}, optimizer: {kind: sgd, state: {crash: keep,
  average: false, rounds: null, travels: null}, weight_decay: 0.0, clip_norm: null}, batch_size: 32, small_clients:
  refuse, sampling: auto, gradient_noise: 0.0, staleness_bound: null, exchange: messages, pairing: auto}
aggregation: null
attackers: null
privacy: null
compression: null
stop: {time: null, updates: null, epochs: 20.0, accuracy: null, suboptimality: null, metric: null, at_least: null,
  at_most: null}
evaluate: {every: {time: null, updates: null, epochs: 1.0}, clients: false, gradients: 0, metrics: []}
execution: {window: auto, width: auto, precision: float32, devices: auto}
record: {updates: true, messages: false, timeline: false, epsilon: true, client_models: false, play: false}
"""


def test_an_algorithm_is_a_complete_scenario() -> None:
    assert loads("algorithm: {kind: adpsgd}", "tiny").resolved() == yaml.safe_load(DEFAULTS)


def test_scenario_of_many_sections_is_valid() -> None:
    scenario = loads(
        """
name: one-slow-learner
seed: 1
data: {set: mnist, partition: {kind: iid}}
model: {kind: softmax}
clients: {count: 16, seconds_per_example: 1.0e-4, jitter: {kind: lognormal, sigma: 0.1}}
slowdowns: [{clients: [3], factor: 10}]
topology: {kind: ring}
links: {latency: 1 ms, bandwidth: 1 Gbit/s}
algorithm: {kind: adpsgd, step_size: {kind: constant, value: 0.4}, batch_size: 32}
privacy: {mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 2.0, delta: 1.0e-5}
stop: {epochs: 20}
evaluate: {every: {epochs: 0.5}}
"""
    )
    assert scenario.slowdowns[0].clients == (3,)
    assert scenario.slowdowns[0].start == 0.0
    assert scenario.links.bandwidth == 1.25e8
    assert scenario.privacy is not None
    assert scenario.privacy.mechanism == "gaussian"
    assert scenario.warnings() == ()


def test_words_and_numbers_are_short_forms_of_sections() -> None:
    short = loads(
        "{algorithm: sync_sgd, topology: star, data: mnist, model: mlp, links: {latency: 2 ms}, privacy: gaussian, "
        "clients: 4, evaluate: {every: 1 s}}"
    )
    full = loads(
        "{algorithm: {kind: sync_sgd}, topology: {kind: star}, data: {set: mnist}, model: {kind: mlp}, "
        "links: {latency: {kind: constant, value: 0.002}}, privacy: {mechanism: gaussian}, clients: {count: 4}, "
        "evaluate: {every: {time: 1 s}}}"
    )
    assert short == full
    assert (short.to_yaml(), short.digest()) == (full.to_yaml(), full.digest())
    assert Scenario(algorithm="sync_sgd", clients=4).replace(clients__count=8).clients.count == 8


@settings(max_examples=40, deadline=None)
@given(scenarios)
def test_resolved_scenarios_load_as_equal_scenarios(mapping: dict[str, Any]) -> None:
    scenario = from_mapping(mapping)
    again = loads(scenario.to_yaml(), "other")
    assert again == scenario
    assert again.resolved() == scenario.resolved()
    assert again.digest() == scenario.digest()
    assert hash(again) == hash(scenario)
    assert from_mapping(scenario.resolved()) == scenario
    assert pickle.loads(pickle.dumps(scenario)) == scenario


def test_digest_changes_with_all_fields_that_change_a_run() -> None:
    base = loads("algorithm: adpsgd")
    assert len(base.digest()) == 64
    assert loads("{algorithm: adpsgd, name: other, description: other}").digest() == base.digest()
    assert loads("algorithm: {kind: adpsgd, batch_size: 32, step_size: 0.4}").digest() == base.digest()
    assert loads("{algorithm: adpsgd, seed: 1}").digest() != base.digest()
    assert loads("{algorithm: adpsgd, links: {latency: 0.0011}}").digest() != base.digest()


def test_scenarios_are_immutable() -> None:
    scenario = loads("algorithm: adpsgd")
    with pytest.raises(ValidationError, match="frozen"):
        scenario.seed = 3
    assert isinstance(loads("{algorithm: adpsgd, slowdowns: [{random: 1, factor: 2}]}").slowdowns, tuple)


def test_csv_is_read_as_table_with_label_for_target() -> None:
    text = "algorithm: {kind: adpsgd}\ndata: {set: csv, path: a.csv, drop: [b]%s}"
    for more, target in (("", "label"), (", label: y", "y"), (", target: y", "y")):
        scenario = loads(text % more, "s")
        assert scenario == loads(
            f"algorithm: adpsgd\ndata: {{set: table, path: a.csv, drop: [b], target: {target}}}", "s"
        )
        assert loads(scenario.to_yaml(), "again").digest() == scenario.digest()
    assert loads(text % "", "s", ["data.label=y"]) == loads(text % ", label: y", "s")
    for more, message in (
        (", label: 5", r"^s: data\.target: expected a text, found 5; "),
        (", label: y, target: y", r"^s: data\.label: expected a key of set table \(.*\), found 'label'"),
        (", labels: y", r"^s: data\.labels: expected a key of set table \(.*\), found 'labels'"),
    ):
        with pytest.raises(ScenarioError, match=message):
            loads(text % more, "s")


@pytest.mark.parametrize(("stem", "name"), [
    ("case-2", "case-2"), ("my scenario (1)", "my-scenario-1-"), (".hidden", "hidden"), ("…", "scenario"),
    ("größe", "größe"),
])  # fmt: skip
def test_the_default_name_comes_from_the_file(stem: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{stem}.yaml"
    file.write_text("algorithm: adpsgd\n", encoding="utf-8")
    assert load(file).name == name
    assert load(str(file), ["name=chosen"]).name == "chosen"


def test_own_algorithm_keeps_its_options() -> None:
    scenario = loads("algorithm: {kind: 'my_module:Mine', options: {depth: 3, sizes: [1, {a: 2}]}, batch_size: 8}")
    algorithm = scenario.algorithm
    assert isinstance(algorithm, ExternalAlgorithm)
    assert (algorithm.kind, algorithm.batch_size) == ("my_module:Mine", 8)
    assert algorithm.options == {"depth": 3, "sizes": (1, {"a": 2})}
    assert hash(scenario) == hash(loads(scenario.to_yaml()))


def test_privacy_warnings_name_their_fields() -> None:
    def warned(privacy: str, sampling: str = "auto") -> tuple[str, ...]:
        return loads(f"{{algorithm: {{kind: adpsgd, sampling: {sampling}}}, privacy: {privacy}}}").warnings()

    assert warned("gaussian") == warned("gaussian", "poisson") == warned("null", "shuffle") == ()
    for sampling in ("shuffle", "without_replacement"):
        (line,) = warned("gaussian", sampling)
        assert line.startswith(f"algorithm.sampling: {sampling} has batches of a fixed size")
        assert warned("{neighbors: replace_one}", sampling) == warned("gaussian_update", sampling) == ()
    assert "no certified epsilon" in warned("gaussian", "with_replacement")[0]
    assert "use laplace_l2" in warned("laplace_l2_radius_only")[0]
    assert "holds only if the senders of updates stay hidden" in warned("{view: global_hidden}")[0]
    assert "never certified" in warned("gaussian_unclipped")[0]
    assert "epsilon is infinite" in warned("{noise_multiplier: 0}")[0]


def test_only_sync_sgd_accepts_a_single_client() -> None:
    assert loads("{algorithm: sync_sgd, clients: {count: 1}}").clients.count == 1
    with pytest.raises(ScenarioError, match=r"clients\.count: expected at least 2 clients"):
        loads("{algorithm: decentralized_sgd, clients: {count: 1}}")


@pytest.mark.parametrize(("topology", "count", "bipartite"), [
    ("ring", 2, True), ("ring", 6, True), ("ring", 7, False), ("complete", 2, True), ("complete", 3, False),
    ("star", 5, True), ("tree", 7, True), ("torus", 12, False), ("torus", 8, True),
    ("{kind: torus, rows: 2}", 12, True), ("exponential", 8, None),
])  # fmt: skip
def test_bipartite_agrees_with_the_built_graph(topology: str, count: int, bipartite: bool | None) -> None:
    text = f"{{algorithm: {{kind: adpsgd, pairing: PAIRING}}, topology: {topology}, clients: {{count: {count}}}}}"
    assert loads(text.replace("PAIRING", "everyone")).topology.bipartite(count) is bipartite
    if bipartite is False:
        with pytest.raises(ScenarioError, match="not bipartite"):
            loads(text.replace("PAIRING", "senders"))
    else:
        algorithm = loads(text.replace("PAIRING", "senders")).algorithm
        assert isinstance(algorithm, AdPsgd)
        assert algorithm.pairing == "senders"


def _sections(cls: type[Config]) -> list[type[Config]]:
    return [inner for sub in cls.__subclasses__() for inner in (sub, *_sections(sub))]


def test_plain_values_are_loaded_like_a_file() -> None:
    plain = {"algorithm": "adpsgd", "clients": {"count": 4}}
    scenario = load(plain, ["clients.count=8", "name=mine"])
    assert (scenario.name, scenario.clients.count) == ("mine", 8)
    assert plain == {"algorithm": "adpsgd", "clients": {"count": 4}}
    assert load(plain) == loads("algorithm: adpsgd\nclients: {count: 4}\n")
    with pytest.raises(ScenarioError, match=r"^scenario: clients\.count: expected an integer >= 1, found 0"):
        load({"algorithm": "adpsgd", "clients": {"count": 0}})


def test_every_section_and_every_field_is_described() -> None:
    # `Uniform[Seconds]` and the like are bases of sections; others are made of the options of a user's class.
    sections = {section for section in _sections(Config) if not section.__pydantic_generic_metadata__["args"]}
    sections = {one for one in sections if vars(sys.modules[one.__module__]).get(one.__name__) is one}
    assert Scenario in sections
    assert len(sections) > 60
    for section in sections:
        assert section.__doc__, section
        assert len(section.__doc__.splitlines()[0]) <= 80, section
        for name, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{name}"


def test_the_schema_can_be_written_as_json_schema() -> None:
    schema = Scenario.model_json_schema()
    assert schema["properties"]["seed"]["minimum"] == 0
    assert schema["$defs"]["Slowdown"]["properties"]["from"]["description"]
    assert {"Ring", "AdPsgd", "Gaussian", "WarmUpStep"} <= set(schema["$defs"])


def test_kinds_have_one_line_summaries() -> None:
    assert set(kinds("algorithm")) == set(ALGORITHMS)
    for section in ("algorithm", "data", "model", "topology", "privacy"):
        assert all(line.endswith(".") and "\n" not in line for line in kinds(section).values())


def test_keywords_are_the_sections_of_a_file() -> None:
    scenario = Scenario(algorithm="adpsgd", clients={"count": 8}, seed=3)
    assert scenario == loads("{algorithm: adpsgd, clients: {count: 8}, seed: 3}")
    assert repr(scenario) == "<Scenario scenario: adpsgd, softmax on digits, 8 clients on ring, seed 3>"
    assert scenario._repr_html_() == "<pre>seed: 3\nclients: {count: 8}\nalgorithm: {kind: adpsgd}\n</pre>"
    assert next(iter(inspect.signature(Scenario).parameters)) == "algorithm"
    assert set(inspect.signature(Scenario).parameters) == set(Scenario.model_fields)


def test_invalid_keywords_have_the_message_of_a_file() -> None:
    with pytest.raises(ScenarioError, match=r"^scenario: clints: expected a key of a scenario, .*'clients'\?$"):
        Scenario(algorithm="adpsgd", clints={"count": 8})
    with pytest.raises(ScenarioError, match=r"^scenario: algorithm: expected a value"):
        Scenario()


@given(scenarios)
@settings(max_examples=25)
def test_given_fields_determine_a_scenario(mapping: dict[str, Any]) -> None:
    scenario = from_mapping(mapping)
    assert from_mapping(scenario.given()).digest() == scenario.digest()
    assert scenario.replace(seed=scenario.seed) == scenario


def test_replace_changes_named_fields_and_takes_new_defaults() -> None:
    scenario = loads("{algorithm: {kind: adpsgd, step_size: 0.3}, slowdowns: [{clients: [1], factor: 2}]}", "mine")
    other = scenario.replace({"slowdowns.0.factor": 5}, algorithm__step_size=0.1, seed=4, privacy="gaussian")
    assert (other.name, other.seed, other.slowdowns[0].factor) == ("mine", 4, 5.0)
    assert other.algorithm.step_size.value == 0.1  # type: ignore[union-attr]
    assert (other.privacy is None, scenario.privacy is None) == (False, True)
    # adpsgd's own fields were never set, so the algorithm can be replaced
    assert (
        scenario.replace(algorithm__kind="fedavg").algorithm
        == loads("algorithm: {kind: fedavg, step_size: 0.3}").algorithm
    )


@pytest.mark.parametrize(("changes", "line"), [
    ({"seed": -1}, "replace: seed: expected an integer >= 0 and < 18446744073709551616, found -1; "),
    ({"seed.a": 1}, "replace: seed.a: expected a mapping or list at seed, found 0; "),
    ({"clients..count": 1}, "replace: expected a key path, found 'clients..count'; "),
])  # fmt: skip
def test_invalid_replacement_is_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads("{algorithm: adpsgd, seed: 0}").replace(changes)
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("section", ["privacy: {quantize: false}", "record: {tape: false}"])
def test_a_removed_key_that_earlier_versions_wrote_and_that_was_off_is_dropped(section: str) -> None:
    plain = re.sub(r"\w+: false", "", section)
    assert loads(f"algorithm: adpsgd\n{section}").digest() == loads(f"algorithm: adpsgd\n{plain}").digest()


def test_the_form_of_a_file_changes_neither_its_content_nor_its_digest() -> None:
    plain, marked = loads("algorithm: adpsgd"), loads("simfl: 1\nalgorithm: adpsgd")
    assert (marked.resolved(), marked.digest()) == (plain.resolved(), plain.digest())
    assert "simfl:" not in marked.to_yaml()


class Renamed(Config):
    """A section with a key of an earlier version."""

    renamed: ClassVar[Mapping[str, str]] = {"speed": "factor"}
    factor: float = option(1.0, "how fast")


def test_a_renamed_key_works_and_a_line_says_what_to_write() -> None:
    with pytest.warns(FutureWarning, match=r"^speed: this key is called factor now; write factor: 2$"):
        section = Renamed.model_validate({"speed": 2})
    assert section == Renamed.model_validate({"factor": 2})
    with pytest.raises(ValidationError, match="expected one of 'speed' and 'factor', found both; delete 'speed'"):
        Renamed.model_validate({"speed": 2, "factor": 2})
