"""Algorithms in two functions: the world and the models of FedAvg, and what may go wrong."""

import numpy as np
import pytest

import simfl
from simfl.algorithms import RoundAlgorithm
from simfl.errors import RunError
from simfl.runs.runner import prepare
from simfl.scenario.seams import Uses
from simfl.studies import sweep
from tests.helpers import RunOfOperations

HERE = "tests.algorithms.test_two_functions"


class Averaging(RoundAlgorithm):
    """FedAvg."""

    def client_update(self, model, data):
        for _ in range(data.steps):
            model = data.step(model)
        return model


class Plain(RoundAlgorithm):
    """FedAvg, written by its base."""


class Pulled(RoundAlgorithm):
    """FedProx, whose server takes half a step."""

    def client_update(self, model, data):
        start = model
        for _ in range(data.steps):
            pull = 0.5 * data.step_size
            model = self.tape.combine((1.0 - pull, data.step(model)), (pull, start))
        return model

    def aggregate(self, model, updates):
        return self.tape.combine((0.5, model), (0.5, super().aggregate(model, updates)))


class Played(RoundAlgorithm):
    """FedProx, whose steps get smaller within a round."""

    def client_update(self, model, data):
        return data.train(model, proximal=0.5, decay=0.2)


class Written(RoundAlgorithm):
    """The same, step by step."""

    def client_update(self, model, data):
        start = model
        for h in range(data.steps):
            gradient = data.gradient(model)
            rate = data.step_size / (1.0 + 0.2 * h)
            pull = 0.5 * rate
            model = self.tape.combine((1.0 - pull, model), (pull, start), *self.descent.terms(gradient, rate))
        return model


class Corrected(RoundAlgorithm):
    """A difference of models is added to gradients, in one operation and in two."""

    def client_update(self, model, data):
        drift = self.tape.combine((0.1, model))
        return data.train(data.train(model, 1, correction=drift), step_size=0.05)


class CorrectedAtOnce(Corrected):
    """The same, where rounds have corrections."""

    uses = Uses(gradient="corrected")


class Unequal(RoundAlgorithm):
    """Client 1 takes fewer steps, and needs less time."""

    def steps(self, client):
        return 1 if client == 1 else self.local_steps


class Hasty(RoundAlgorithm):
    def client_update(self, model, data):
        return data.step(model)


def scenario(algorithm, **more):
    return simfl.Scenario(
        **{
            "data": "digits",
            "algorithm": {"batch_size": 8, "step_size": 0.1, "sampling": "shuffle", **algorithm},
            "clients": {"count": 4, "seconds_per_example": "1 ms", "speed": {"kind": "list", "values": [1, 2, 3, 1]}},
            "links": {"latency": "3 ms", "bandwidth": "1 Mbit/s", "loss": 0.1},
            "availability": [{"clients": [2], "crash": [{"at": "50 ms", "back": "90 ms"}]}],
            "stop": {"updates": 24},
            **more,
        }
    )


def own(name, local_steps=3, **more):
    return {"kind": f"{HERE}:{name}", "options": {"fraction": 0.5, "local_steps": local_steps}, **more}


def models_agree(one, other):
    for name, value in other.model.items():
        np.testing.assert_allclose(one.model[name], value, atol=1e-6)


OWN = {"kind": f"{HERE}:Averaging", "options": {"fraction": 0.5, "local_steps": 3}}
FEDAVG = {"kind": "fedavg", "fraction": 0.5, "local_steps": 3}


def test_the_mean_of_clients_that_take_steps_is_fedavg(tmp_path):
    own, fedavg = (simfl.run(scenario(one), out=tmp_path) for one in (OWN, FEDAVG))
    columns = ["time_s", "client", "round", "sample_size", "step_size"]
    assert own.updates[columns].equals(fedavg.updates[columns])
    times = ["compute_s", "communicate_s", "wait_s", "bytes"]
    assert own.clients[times].equals(fedavg.clients[times])
    for name, value in fedavg.model.items():
        np.testing.assert_allclose(own.model[name], value, atol=1e-6)


def test_a_class_without_functions_plays_the_rounds_of_fedavg_as_operations(tmp_path):
    class_alone = own("Plain")
    assert prepare(scenario(class_alone)).problem.recorded["local"]
    run, fedavg = (simfl.run(scenario(one), out=tmp_path) for one in (class_alone, FEDAVG))
    assert run.updates.drop(columns="wall_s", errors="ignore").equals(
        fedavg.updates.drop(columns="wall_s", errors="ignore")
    )
    models_agree(run, fedavg)


@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_a_round_that_is_one_operation_is_the_round_step_by_step(tmp_path, l2):
    model = {"model": {"kind": "softmax", "l2": l2}}
    models_agree(*(simfl.run(scenario(own(name), **model), out=tmp_path) for name in ("Played", "Written")))


def test_a_correction_is_the_same_in_an_operation_as_in_several(tmp_path):
    models_agree(*(simfl.run(scenario(own(name)), out=tmp_path) for name in ("Corrected", "CorrectedAtOnce")))


@pytest.mark.parametrize("more", [{"sampling": "poisson"}, {"gradient_noise": 0.1}])
def test_steps_with_noise_or_poisson_batches_are_operations_each(tmp_path, more):
    assert not prepare(scenario(own("Plain", **more))).problem.recorded["local"]
    models_agree(*(simfl.run(scenario(own(name, **more)), out=tmp_path) for name in ("Plain", "Averaging")))


@pytest.mark.usefixtures("without_numbers")
def test_clients_may_take_different_numbers_of_steps(tmp_path):
    run = simfl.run(scenario(own("Unequal"), availability=[]), out=tmp_path)
    assert run.updates.groupby("client")["sample_size"].unique().map(list).to_dict() == {
        0: [24],
        1: [8],
        2: [24],
        3: [24],
    }


@pytest.mark.usefixtures("without_numbers")
def test_both_functions_may_record_anything(tmp_path):
    run = simfl.run(scenario({"kind": f"{HERE}:Pulled", "options": {"local_steps": 2}}), out=tmp_path)
    assert run.status == "done"


@pytest.mark.usefixtures("without_numbers")
def test_each_mini_batch_of_a_round_is_a_release_of_its_client(tmp_path):
    private = {"privacy": {"noise_multiplier": 1.0}, "stop": {"updates": 8}, "availability": []}
    run = simfl.run(scenario({**OWN, "sampling": "poisson", "options": {"local_steps": 3}}, **private), out=tmp_path)
    assert run.releases["count"].tolist() == [6] * 4
    assert run.clients["epsilon"].notna().all()


@pytest.mark.usefixtures("without_numbers")
def test_the_time_of_a_round_is_that_of_the_gradients_in_it(tmp_path):
    with pytest.raises(
        RunError, match=r"^Hasty\.client_update: expected a gradient of each of the 2 mini-batches .* 1;"
    ):
        simfl.run(scenario({"kind": f"{HERE}:Hasty", "options": {"local_steps": 2}}), out=tmp_path)
    with pytest.raises(
        simfl.ScenarioError, match=r"algorithm\.options\.local_steps: expected an integer >= 1, found 0"
    ):
        simfl.run(scenario({"kind": f"{HERE}:Hasty", "options": {"local_steps": 0}}), out=tmp_path)


def test_rounds_of_a_group_are_those_of_runs_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)
    study = {"name": "study", "base": scenario(own("Played")).resolved(), "seeds": 1}
    swept = sweep({**study, "grid": {"algorithm.step_size": [0.1, 0.3]}}, out=tmp_path / "sweep", jobs=1)
    for planned in swept.runs:
        run = swept.open(planned)
        alone = simfl.run(run.scenario, out=tmp_path)
        assert run.manifest.digest == alone.manifest.digest, planned.label
