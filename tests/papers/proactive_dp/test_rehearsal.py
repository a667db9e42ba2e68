import dataclasses
import json
import math

import numpy as np
import pytest

from simfl.errors import DataError, ScenarioError
from simfl.papers.proactive_dp.rehearsal import (
    TABLE,
    draw_graph,
    open_base,
    read_graph,
    rescaled,
    steps_of,
    write_graph,
)
from simfl.papers.proactive_dp.utility import UtilityGraph
from simfl.scenario import loads

GRAPH = UtilityGraph(
    clipping_norms=(0.1, 1.0),
    noise_multipliers=(1.5, 1 / 3 + 2),
    noise_factors=(0.01, math.nan),
    accuracies=(0.5, 0.75),
    unclipped_accuracy=0.8,
    ratios=((0.9, math.nan), (0.8, math.nan)),
    lows=((0.85, math.nan), (0.75, math.nan)),
    highs=((0.95, math.nan), (0.85, math.nan)),
    draws=20,
    gradients=1000,
)
SETTINGS = {"scenario": "abc", "epochs": 5.0, "delta": 1e-5, "noise": "all"}
FOUR = ("clients.count=4", "data.partition.sizes={kind: power_law, exponent: 1.0}", "algorithm.batch_size=8")


@pytest.fixture
def digits(tmp_path):
    path = tmp_path / "digits.yaml"
    path.write_text("clients: {count: 1}\nalgorithm: {kind: sync_sgd}\nstop: {epochs: 10}\n")
    return path


def test_the_base_is_the_scenario_with_its_overrides(digits):
    base = open_base(digits, ["seed=3"])
    assert (base.num_clients, base.num_examples, base.epochs, base.scenario.seed) == (1, 1438, 10, 3)
    assert base.delta == 1 / 1438
    assert base.gradients == 14_380
    assert base.content["seed"] == 3


def test_the_plan_is_for_the_client_with_the_fewest_examples(digits):
    base = open_base(digits, FOUR, epochs=2, delta=1e-3)
    sizes = base.setup.training.sizes
    assert base.num_examples == sizes.min() < sizes.max()
    assert base.gradients == 2 * sizes.sum()
    assert base.delta == 1e-3


def test_a_scenario_that_does_not_stop_after_epochs_needs_the_option(digits):
    with pytest.raises(ScenarioError, match="expected --epochs, because the scenario does not stop after epochs"):
        open_base(digits, ["stop={updates: 10}"])


def test_an_algorithm_that_cannot_sample_is_rejected(digits):
    with pytest.raises(ScenarioError, match="found without_replacement_sgd; use for example sync_sgd or adpsgd"):
        open_base(digits, ["algorithm={kind: without_replacement_sgd}", "clients.count=4"])


def test_steps_are_those_of_rounds_of_all_clients(digits):
    base = open_base(digits, [*FOUR, "algorithm.step_size={kind: inverse, initial: 0.5, beta: 0.1, count: updates}"])
    np.testing.assert_allclose(steps_of(base.setup, 3), [0.5, 0.5 / 1.4, 0.5 / 1.8], rtol=1e-14)
    by_examples = open_base(
        digits, [*FOUR, "algorithm.step_size={kind: inverse, initial: 0.5, beta: 0.1, count: examples}"]
    )
    np.testing.assert_allclose(steps_of(by_examples.setup, 2), [0.5, 0.5 / 4.2], rtol=1e-14)
    np.testing.assert_array_equal(steps_of(open_base(digits, None).setup, 2), 0.4)


def test_a_client_may_train_alone(digits):
    base = open_base(digits, FOUR, epochs=1)
    options = {"clipping_norms": [1.0], "noise_multipliers": [2.0], "reading": "figure", "draws": 1}
    together, alone = draw_graph(base, **options), draw_graph(base, client=3, **options)
    assert together.gradients == pytest.approx(1438, abs=32)
    assert alone.gradients == pytest.approx(1438 / 4, abs=8)
    assert alone.accuracies != together.accuracies
    with pytest.raises(ScenarioError, match="--client: expected 0 to 3, found 4"):
        draw_graph(base, client=4, **options)


def test_reading_a_written_graph_gives_the_same_graph(tmp_path):
    write_graph(tmp_path / TABLE, GRAPH, SETTINGS)
    again = read_graph(tmp_path, SETTINGS)
    for field in dataclasses.fields(GRAPH):
        np.testing.assert_allclose(getattr(again, field.name), getattr(GRAPH, field.name), rtol=1e-8)
    assert [row.clipping_norm for row in again.rows()] == [0.1, 0.1, 1.0, 1.0]
    assert read_graph(tmp_path / TABLE, SETTINGS).draws == 20


def test_a_graph_with_other_settings_is_rejected(tmp_path):
    write_graph(tmp_path / TABLE, GRAPH, SETTINGS)
    with pytest.raises(ScenarioError, match=r"with the same scenario, .* found another epochs; draw it again"):
        read_graph(tmp_path, {**SETTINGS, "epochs": 6.0})


@pytest.mark.parametrize("damage", ["missing", "empty", "header", "row", "columns"])
def test_a_damaged_table_is_an_error_of_one_line(tmp_path, damage):
    path = tmp_path / TABLE
    write_graph(path, GRAPH, SETTINGS)
    lines = path.read_text().splitlines()
    if damage == "missing":
        path.unlink()
    else:
        kept = {"empty": [], "header": lines[1:], "row": lines[:-1], "columns": [lines[0], "a,b", *lines[2:]]}[damage]
        path.write_text("\n".join(kept))
    with pytest.raises(DataError, match=r"^--graph: .*draw one with 'simfl privacy utility-graph'$"):
        read_graph(path if damage == "missing" else tmp_path, SETTINGS)


def test_a_table_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScenarioError, match="cannot write the table"):
        write_graph(tmp_path / "file" / TABLE, GRAPH, SETTINGS)


@pytest.mark.parametrize("step", [
    "0.4",
    "{kind: by_epochs, values: [0.4, 0.04], boundaries: [1.5]}",
    "{kind: inverse, initial: 0.4, beta: 0.01, count: updates}",
    "{kind: inverse, initial: 0.4, beta: 0.01, count: examples}",
    "{kind: inverse_sqrt, initial: 0.4, beta: 0.1, count: updates}",
    "{kind: inverse_sqrt, initial: 0.4, beta: 0.1, count: epochs}",
    "{kind: warm_up, initial: 0.1, epochs: 1, then: {kind: inverse, initial: 0.4, beta: 0.01, count: updates}}",
])  # fmt: skip
def test_a_gradient_moves_the_model_equally_far_for_another_batch_size(step):
    old = loads(f"algorithm: {{kind: sync_sgd, step_size: {step}}}")
    resolved = old.resolved()["algorithm"]["step_size"]
    new = loads(f"algorithm: {{kind: sync_sgd, step_size: {json.dumps(rescaled(resolved, 2.5))}}}")
    before, after = (scenario.algorithm.step_size for scenario in (old, new))
    for examples in (0, 500, 2000, 10_000):
        small, large = examples // 20, examples // 50
        epochs = examples / 1000
        assert math.isclose(after(large, examples, epochs), 2.5 * before(small, examples, epochs), rel_tol=1e-5)


def test_an_unknown_schedule_is_rejected():
    with pytest.raises(ScenarioError, match=r"algorithm\.step_size: new: expected constant, by_epochs"):
        rescaled({"kind": "new"}, 2.0)
