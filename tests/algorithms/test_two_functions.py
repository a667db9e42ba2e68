"""Algorithms in two functions: the world and the models of FedAvg, and what may go wrong."""

import numpy as np
import pytest

import simfl
from simfl.algorithms import RoundAlgorithm
from simfl.errors import RunError

HERE = "tests.algorithms.test_two_functions"


class Averaging(RoundAlgorithm):
    """FedAvg."""

    def client_update(self, model, data):
        for _ in range(data.steps):
            model = data.step(model)
        return model


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
