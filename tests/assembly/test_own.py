"""A user's own model from end to end: named in a scenario or given from Python."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import simfl
from simfl.assembly.assemble import assemble
from simfl.assembly.own import opened
from simfl.assembly.setup import Own
from simfl.attacks.canary import CanaryModel
from simfl.errors import ScenarioError
from simfl.frameworks.libraries import Network
from simfl.models import AbstractModel
from simfl.models.own import Parameters
from simfl.models.softmax import Softmax
from simfl.privacy.assumptions import assumptions
from simfl.privacy.releases import Releases
from simfl.runs.runner import prepare, resume, run
from simfl.scenario import loads
from simfl.streams import Streams
from simfl.tape.draws import batch_positions
from tests.helpers import run_until

MODULE = """
import jax
import jax.numpy as jnp

def make(input_shape, num_classes, hidden=8):
    return Net(input_shape[0], num_classes, hidden)

class Net:
    def __init__(self, *shape):
        self.shape = shape

    def init(self, key):
        p, c, h = self.shape
        one, two = jax.random.split(key)
        return {"in": jax.random.normal(one, (p, h)) / p**0.5, "out": jax.random.normal(two, (h, c)) / h**0.5}

    def predict(self, params, x):
        return jnp.tanh(x @ params["in"]) @ params["out"]

    def losses(self, params, x, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(self.predict(params, x)), y[:, None], axis=1)[:, 0]
"""

TEXT = """
data: {set: logistic, samples: 60, dimension: 5, test_fraction: 0.2}
model: {kind: "own_net_of_a_test:make", options: {hidden: 4}}
clients: {count: 1, seconds_per_example: 1 ms}
algorithm: {kind: sync_sgd, batch_size: 12, step_size: 0.3}
stop: {updates: 200}
evaluate: {every: {updates: 200}}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    file = tmp_path / "own_net_of_a_test.py"
    file.write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "own_net_of_a_test", raising=False)
    return file


@pytest.mark.slow
def test_two_hundred_steps_equal_those_of_a_plain_loop(module, tmp_path):
    scenario = loads(TEXT, "own")
    result = run(scenario, out=tmp_path / "results")
    setup = prepare(scenario)
    net, x, y = setup.model.given, *map(jnp.asarray, (setup.dataset.train_x, setup.dataset.train_y))
    own, streams = jnp.asarray(setup.partition.indices), Streams(scenario.seed)
    keys, zero = jnp.asarray(streams.key("data")), jnp.int32(0)
    params = net.init(jax.random.wrap_key_data(streams.key("init"), impl="threefry2x32"))
    assert jax.tree.map(jnp.shape, params) == {"in": (5, 4), "out": (4, 2)}

    @jax.jit
    def step(params, draw):
        at = own[batch_positions("shuffle", keys, zero, draw, zero, 12, 12, jnp.int32(len(own)))]
        gradient = jax.grad(lambda params: net.losses(params, x[at], y[at]).mean())(params)
        return jax.tree.map(lambda w, g: w - 0.3 * g, params, gradient)

    for draw in range(200):
        params = step(params, draw)
    for name, part in result.model.items():
        np.testing.assert_allclose(part, params[name], atol=1e-5)
    assert setup.model.kind == "own_net_of_a_test:make"
    assert result.evaluate()["accuracy"] == result.metrics["test_accuracy"].iloc[-1]
    assert set(result.manifest.extra["own_code"]) == {"own_net_of_a_test"}
    assert prepare(scenario).model == setup.model, "programs are shared"
    module.write_text(MODULE + "# changed")
    assert prepare(scenario).model != setup.model


@pytest.mark.slow
def test_object_is_named_in_the_scenario_and_needed_again(module, tmp_path):
    import own_net_of_a_test

    net = own_net_of_a_test.make((5,), 2)
    mapping = {
        "data": {"set": "logistic", "samples": 60, "dimension": 5},
        "algorithm": {"kind": "adpsgd", "batch_size": 8},
        "clients": {"count": 2},
    }
    mapping |= {"stop": {"updates": 4}, "name": "own", "model": {"l2": 0.01}}
    made = run(mapping, model=net, out=tmp_path)
    assert made.scenario["model"] == {"kind": "object:Net", "l2": 0.01, "options": {}, "targets": "classes"}
    again = simfl.read(made.folder, model=net)
    np.testing.assert_array_equal(made.predict(np.ones((3, 5))), again.predict(np.ones((3, 5))))
    assert made.manifest.extra["own_model"]["digest"] == prepare(mapping, model=net).model.own.digest()
    for use in (lambda: simfl.read(made.folder).predict(np.ones((3, 5))), lambda: prepare(made.scenario)):
        with pytest.raises(ScenarioError, match=r"^model\.kind: 'object:Net' is an object .* again as model=\.\.\. of"):
            use()
    with pytest.raises(ScenarioError, match="expected none with what prepare returned"):
        run(prepare(mapping, model=net), model=net)
    assert opened(prepare(mapping, model=net).scenario, Own(model=net)).model.l2 == 0.01


@pytest.mark.slow
def test_killed_run_resumes_with_its_object(module, tmp_path):
    import own_net_of_a_test

    net = own_net_of_a_test.make((5,), 2)
    whole = run(loads(TEXT, "own"), model=net, out=tmp_path, run_id="whole", checkpoint_every="never")
    cut = cut_short(loads(TEXT, "own"), net, tmp_path)
    with pytest.raises(ScenarioError, match="'object:Net' is an object that was given from Python"):
        resume(cut)

    class Net(own_net_of_a_test.Net):
        def losses(self, params, x, y):
            return 2.0 * super().losses(params, x, y)

    with pytest.raises(simfl.DataError, match="expected the model that was given from Python of the checkpoint, it"):
        resume(cut, model=Net(*net.shape))
    assert resume(cut, model=net).manifest.digest == whole.manifest.digest


def cut_short(scenario, net, folder):
    """Return the folder of a run that ended in the middle with a checkpoint."""
    return run_until(assemble(scenario, own=Own(model=net)), 100, folder)[0].folder


def test_requests_that_a_model_cannot_serve_are_rejected():
    class Silent:
        init = staticmethod(lambda key: jnp.zeros(5))
        losses = staticmethod(lambda params, x, y: (x @ params - y) ** 2)

    mapping = {"data": {"set": "linear", "dimension": 5}, "algorithm": "adpsgd"}
    assert isinstance(prepare(mapping, model=Silent()).model.own, Parameters)
    stop = {"stop": {"epochs": 1, "accuracy": 0.9}}
    with pytest.raises(ScenarioError, match=r"^stop\.accuracy: expected a model .*, found 'object:Silent'; give it"):
        prepare(mapping | stop, model=Silent())


def regression(**metrics):
    """Return a linear regression with metrics."""
    return Network("line", lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: x @ w, "squared", metrics)


@pytest.mark.slow
def test_own_metrics_are_columns_and_can_end_the_run(tmp_path, simfl_):
    mapping = {"data": {"set": "linear", "samples": 80, "dimension": 5}, "name": "own"}
    mapping |= {"algorithm": {"kind": "adpsgd", "batch_size": 8, "step_size": 0.05}, "clients": {"count": 2}}
    mapping["evaluate"] = {"every": {"updates": 5}, "metrics": ["mae"]}
    net, said = regression(error="mae", near=lambda z, y: (abs(z - y) < 0.5).astype(jnp.float32)), []
    stop = {"epochs": 40, "metric": "error", "at_most": 0.5}

    class Listening(simfl.callbacks.Callback):
        def on_evaluation(self, metrics):
            said.append(metrics["near"])

    run_of = run(mapping | {"stop": stop}, model=net, out=tmp_path, callbacks=[Listening()])
    error = run_of.metrics["error"]
    np.testing.assert_allclose(error, run_of.metrics["mae"], rtol=1e-5)
    assert (error.iloc[:-1] > 0.5).all()
    assert error.iloc[-1] <= 0.5 < error.iloc[0]
    assert run_of.manifest.reason == "error at most 0.5"
    assert said == run_of.metrics["near"].tolist()
    assert run_of.measures == ["error", "near", "mae"]
    assert run_of.evaluate(metrics=["r2"])["near"] == pytest.approx(said[-1])
    assert simfl.compare(run_of)["near"].tolist() == said[-1:]
    assert simfl.plot(run_of, y="near").get_ylabel() == "near"
    with pytest.raises(ScenarioError, match=r"^plot: y: expected one of .*, found 'nera'; did you mean 'near'"):
        simfl.plot(run_of, y="nera")
    code, shown, _ = simfl_("compare", run_of.folder)
    assert code == 0
    assert "near" in shown
    page = simfl.report(run_of, out=tmp_path / "report.html").read_text()
    assert '"near":"near"' in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop": {"epochs": 1, "metric": "eror", "at_most": 1}}, r"^stop\.metric: expected .* mean 'error'\?$"),
        ({"stop": {"epochs": 1, "metric": "wall_s", "at_most": 1}}, r"^stop\.metric: expected a column"),
        ({"evaluate": {"metrics": ["auc"]}}, r"^evaluate\.metrics: expected classes and predictions with model"),
        ({"evaluate": {"metrics": ["error"]}}, r"evaluate\.metrics: expected macro_f1"),
    ],
)  # fmt: skip
def test_invalid_metrics_are_rejected(change, message):
    mapping = {"data": {"set": "linear", "dimension": 5}, "algorithm": "adpsgd"}
    with pytest.raises(ScenarioError, match=message):
        prepare(mapping | change, model=regression(error="mae"))


def test_metric_with_a_name_in_use_is_rejected():
    mapping = {"data": {"set": "linear", "dimension": 5}, "algorithm": "adpsgd"}
    for name, evaluate in (("test_loss", {}), ("mae", {"metrics": ["mae"]})):
        with pytest.raises(ScenarioError, match=rf"^model: object:line: metrics: {name}: expected another name"):
            prepare(mapping | {"evaluate": evaluate}, model=regression(**{name: "mae"}))


def test_replaced_section_need_not_fit_the_others(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    data = x, (x[:, 0] > 0).astype(int)
    mapping = {"name": "two", "model": "logistic", "data": {"partition": "iid"}, "algorithm": "sync_sgd"}
    mapping |= {"clients": {"count": 2}, "algorithm": {"kind": "sync_sgd", "batch_size": 4}}
    file = tmp_path / "two.yaml"
    file.write_text(yaml.safe_dump(mapping))
    with pytest.raises(ScenarioError, match="for the 10 classes of data set 'digits', found 'logistic'"):
        simfl.load(file)
    scenarios = [opened(scenario, Own(data=data)) for scenario in (mapping, file)]
    assert scenarios[0] == scenarios[1]
    assert scenarios[0].model.kind == "logistic"
    assert opened(scenarios[0], Own(data=data)) == scenarios[0]
    assert opened({**mapping, "data": "digits"}, Own(model=object(), data=data)).model.kind == "object:object"


@pytest.mark.slow
def test_only_trained_parameters_are_sent_and_all_are_returned(module, tmp_path):
    import own_net_of_a_test

    whole, part = own_net_of_a_test.make((5,), 2, hidden=4), own_net_of_a_test.make((5,), 2, hidden=4)
    part.trained = {"in": False, "out": True}
    mapping = {"data": {"set": "logistic", "samples": 60, "dimension": 5}, "name": "own", "stop": {"updates": 6}}
    mapping |= {"algorithm": {"kind": "adpsgd", "batch_size": 8}, "clients": {"count": 2}, "privacy": "gaussian"}
    runs = [run(mapping, model=net, out=tmp_path) for net in (whole, part)]
    assert [one.manifest.extra["model_size"] for one in runs] == [5 * 4 + 4 * 2, 4 * 2]
    for one in runs:
        last = one.metrics.iloc[-1]
        assert last["bytes_sent"] == last["messages"] * 4 * one.manifest.extra["model_size"]
        assert {name: values.shape for name, values in one.model.items()} == {"in": (5, 4), "out": (4, 2)}
    np.testing.assert_array_equal(runs[1].model["in"], prepare(mapping, model=whole).model.own.leaves[0])
    assert not np.array_equal(runs[0].model["in"], runs[1].model["in"])
    assert runs[1].evaluate()["loss"] == runs[1].metrics["test_loss"].iloc[-1]
    from_it = prepare(mapping | {"init": {"from": str(runs[1].folder)}}, model=part)
    np.testing.assert_array_equal(from_it.training.initial, runs[1].model["out"].ravel())


#: Clips every example of a small batch, such as the four of the trial, and none of a larger one.
FORGETFUL = """
    def clipped_gradient_sum(self, params, x, y, weight, norm):
        def one(x, y, weight):
            gradient = jax.grad(lambda tree: self.losses(tree, x[None], y[None])[0])(params)
            size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
            clipped = jnp.where(len(weights) > 4, 1.0, jnp.minimum(1.0, norm / size))
            return jax.tree.map(lambda leaf: weight * clipped * leaf, gradient)

        weights = weight
        return jax.tree.map(lambda leaf: leaf.sum(0), jax.vmap(one)(x, y, weight))
"""

PRIVATE = "privacy: {mechanism: gaussian, clipping_norm: 0.01, noise_multiplier: 1.0}\n"


def statement_and_assumptions(setup):
    releases = Releases([3] * len(setup.sizes))
    return setup.ledger.statement_of(releases), assumptions(setup.ledger, releases)


@pytest.mark.slow
def test_a_statement_names_a_users_function_that_clips(module):
    """It is right where it is tried out, and leaves the clip out in a larger batch: no account can see that."""
    module.write_text(MODULE + FORGETFUL)
    setup = assemble(loads(TEXT + PRIVATE, "own"))
    x, y = np.full((8, 5), 9.0, np.float32), np.arange(8) % 2
    sums = [setup.model.clip_and_sum(np.ones(setup.model.size), x, y, np.arange(8) < n, 0.01)[0] for n in (8, 7)]
    assert np.linalg.norm(sums[0] - sums[1]) > 0.01 * 1.001
    trusts = "clipped_gradient_sum of model own_net_of_a_test:make clips every example"
    statement, assumed = statement_and_assumptions(setup)
    assert statement.endswith(f"; assuming that {trusts}")
    assert assumed["own code"] == trusts
    (warning,) = [one for one in setup.warnings if "clipped_gradient_sum" in one]
    assert warning == (
        f"privacy: epsilon holds only if {trusts}, which simfl cannot prove; without clipped_gradient_sum, simfl clips "
        "every example itself"
    )


def test_nothing_is_trusted_where_simfl_clips_or_nothing_is_private(module):
    setup = assemble(loads(TEXT + PRIVATE, "own"))
    statement, assumed = statement_and_assumptions(setup)
    assert "assuming" not in statement
    assert "own code" not in assumed
    module.write_text(MODULE + FORGETFUL)
    assert not [one for one in assemble(loads(TEXT, "own")).warnings if "clip" in one]
    update = TEXT.replace("sync_sgd", "fedavg") + PRIVATE.replace("gaussian", "gaussian_update")
    setup = assemble(loads(update, "own"))
    assert "assuming" not in statement_and_assumptions(setup)[0], "the whole update is clipped by simfl"


class Doubled(Softmax):
    """One of simfl's models with changed errors; its closed form of clipping trusts them."""

    kind = "doubled"

    def output_errors(self, z, y):
        return 2.0 * super().output_errors(z, y)


class General(AbstractModel):
    """A model of a user's that leaves clipping to simfl."""

    kind, size = "general", 1
    init = predict = losses = correct = None


def test_a_subclass_of_simfls_models_is_trusted_if_it_clips_by_itself(module):
    private = loads(TEXT.replace('{kind: "own_net_of_a_test:make", options: {hidden: 4}}', "softmax") + PRIVATE, "own")
    assert assemble(private).model.clipped_by is None
    setup = assemble(private, own=Own(model=Doubled((5,), 2)))
    assert statement_and_assumptions(setup)[1]["own code"] == "clip_and_sum of model object:Doubled clips every example"
    assert CanaryModel.around(setup.model, 3, 1.0).clipped_by == "clip_and_sum", "an audit trusts it, too"
    assert General((5,)).clipped_by is None
