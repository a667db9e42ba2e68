"""Equal seeds give equal tables, bit for bit, for every window."""

import contextlib
import functools
import math
import random

import numpy as np
import pandas as pd
import pytest

from simfl.algorithms import ALGORITHMS as AVAILABLE
from simfl.assembly.world import build_world
from simfl.errors import ScenarioError
from simfl.records import read
from simfl.runs.runner import prepare, resume, run
from simfl.scenario import from_mapping, loads
from tests.helpers import RunOfOperations, run_until

ROUGH = """
name: rough
seed: {seed}
data: {{set: digits, partition: {{kind: dirichlet, alpha: 5.0}}}}
model: {{kind: {model}}}
clients:
  count: 8
  seconds_per_example: 1 ms
  speed: {{kind: uniform, low: 0.5, high: 2.0}}
  jitter: {{kind: lognormal, sigma: 0.4}}
slowdowns: [{{random: 1, factor: 2}}, {{clients: [3], factor: 4, from: 20 ms, until: 1 s}}]
topology: {topology}
links:
  latency: {{kind: exponential, mean: 2 ms}}
  bandwidth: 10 Mbit/s
  loss: 0.1
  resend_timeout: 5 ms
  downlink: 5 Mbit/s
availability:
  - {{clients: [1], crash: [{{at: 60 ms, back: 120 ms}}]}}
  - {{clients: [2], offline: [[50 ms, 90 ms]]}}
  - {{clients: [4], join: 40 ms}}
  - {{clients: [5], random: {{up: {{kind: exponential, mean: 80 ms}}, down: 10 ms}}}}
  - {{clients: [6], crash: [{{at: 150 ms, back: never}}]}}
algorithm: {{batch_size: 8, step_size: {{kind: inverse_sqrt, initial: 0.5, beta: 0.1, count: updates}}, {algorithm}}}
{privacy}
stop: {{updates: 160}}
evaluate: {{every: {every}, clients: true}}
execution: {{window: {window}}}
record: {{updates: true, messages: true}}
"""
GAUSSIAN = "privacy: {mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 0.5}"
ALGORITHMS = {
    "sync_sgd": "kind: sync_sgd",
    "decentralized_sgd": "kind: decentralized_sgd",
    "adpsgd-atomic": "kind: adpsgd, exchange: atomic",
    "adpsgd-messages": "kind: adpsgd, exchange: messages",
}
TABLES = ("metrics", "updates", "clients", "messages", "client_metrics")


def rough(
    algorithm,
    *,
    seed=1,
    window="auto",
    privacy=GAUSSIAN,
    topology="{kind: ring}",
    every="{updates: 50}",
    model="softmax",
):
    text = ROUGH.format(
        seed=seed,
        algorithm=ALGORITHMS[algorithm],
        window=window,
        privacy=privacy,
        topology=topology,
        every=every,
        model=model,
    )
    return loads(text, "rough")


@functools.cache  # thousands of settings change it, and reading YAML takes longer than checking what it says
def unchanged(algorithm, window="auto"):
    """Return what a rough scenario says, for `from_mapping` with overrides."""
    return rough(algorithm, window=window).resolved()


def tables(result):
    frames = {name: getattr(result, name) for name in TABLES if name in result.manifest.tables}
    frames["metrics"] = frames["metrics"].drop(columns="wall_s")
    return frames


def check_equal(one, other):
    assert one.manifest.digest == other.manifest.digest
    for name, frame in tables(one).items():
        pd.testing.assert_frame_equal(frame, tables(other)[name], check_exact=True)


#: Privacy sections, of which every algorithm can do with one; and the overrides for those that are on their own.
MECHANISMS = (
    "{mechanism: one_pass_gaussian, epsilon: 300}",
    "{mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 0.5}",
    "{mechanism: gaussian_update, clipping_norm: 1.0, noise_multiplier: 0.5}",
    "{mechanism: laplace_l2, neighbors: replace_one}",
)
ALONE = ("clients.count=1", "slowdowns=[]", "availability=[{clients: [0], crash: [{at: 60 ms, back: 120 ms}]}]")


def prepared(kind, *, private, window):
    """Any algorithm with its defaults, and the first privacy and number of clients that it takes; None if it cannot.

    Private runs also change their examples at random.
    """
    content = unchanged("adpsgd-atomic", window)
    for privacy in MECHANISMS if private else ("null",):
        for further in ((), ALONE):
            augment = f"data.augment={'{crop: 1, flip: true}' if private else 'null'}"
            algorithm = f"algorithm={{kind: {kind}, batch_size: 8}}"
            changes = (algorithm, f"privacy={privacy}", "stop={updates: 100}", augment)
            with contextlib.suppress(ScenarioError, ValueError):
                return prepare(from_mapping(content, "rough", (*changes, *further)))
    return None


#: Algorithms whose runs are computed: one of each family of worlds, and those that decide by numbers.
COMPUTED = {"adpsgd", "async_sgd", "deep_q_sgd", "decentralized_sgd", "ditto", "fedavg", "fedbuff", "halos", "sgp"}


@pytest.mark.slow(but=["adpsgd-private", "fedbuff-private"])
@pytest.mark.parametrize("private", [True, False], ids=["private", "plain"])
@pytest.mark.parametrize("kind", sorted(AVAILABLE))
def test_every_algorithm_repeats_itself_for_any_window_and_interruptions(kind, private, tmp_path, monkeypatch):
    if kind not in COMPUTED:
        monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)
    setup = prepared(kind, private=private, window="auto")
    if setup is None:
        personal = {(one, True) for one in ("ditto", "apfl", "pfedme")}
        assert (kind, private) in {("mapa", False), *personal}, "MAPA needs noise, personal models take none"
        return
    first, events = run_until(setup, math.inf, tmp_path)
    # Noise is what a window could get wrong most easily; without it, the run that is resumed has the other window.
    other = 7 if private else 1
    runs = [run(prepared(kind, private=private, window=other), out=tmp_path)] if private else []
    cut, _ = run_until(setup, random.Random(f"{kind} {private}").randint(1, events), tmp_path)
    assert cut.status == "interrupted"
    narrow = loads(cut.folder.joinpath("scenario.yaml").read_text().replace("window: auto", f"window: {other}"))
    runs.append(resume(cut.folder, scenario=None if private else narrow))
    assert not (cut.folder / "checkpoint.npz").exists(), "what is done needs it no more"
    for result in runs:
        check_equal(first, result)
        assert result.manifest.extra["models"] == first.manifest.extra["models"]
    assert {first.manifest.window, other} == {result.manifest.window for result in (first, *runs)}
    assert runs[-1].manifest.extra["resumed"] == 1
    assert first.manifest.updates >= 100
    assert first.metrics["epsilon"].notna().any() or kind in ("deep_q_sgd", "privsgp_vr") or not private
    assert np.isfinite(first.metrics["train_loss"]).all()
    assert first.clients["offline_s"].max() > 0


def test_a_run_is_the_same_from_its_own_resolved_scenario(tmp_path):
    first = run(rough("adpsgd-messages"), out=tmp_path)
    again = run(first.folder / "scenario.yaml", out=tmp_path)
    check_equal(first, again)
    check_equal(read(first.folder), read(again.folder))


def test_noise_or_another_algorithm_or_model_leave_the_world_unchanged():
    """Common random numbers of a scenario: links, speeds, data and the initial model."""
    graph = {"topology": "{kind: regular, degree: 3}"}
    base = prepare(rough("adpsgd-atomic", **graph))
    others = [
        prepare(rough("sync_sgd", **graph)),
        prepare(rough("adpsgd-messages", **graph, privacy="")),
        prepare(rough("decentralized_sgd", **graph, model="mlp")),
    ]

    def durations(setup):
        world = build_world(setup)
        return [[world.compute.duration(k, 8, 2.0) for _ in range(40)] for k in range(8)]

    expected = durations(base)
    for other in others:
        assert other.topology.edges == base.topology.edges
        assert other.partition.indices.tolist() == base.partition.indices.tolist()
        assert durations(other) == expected
        assert (other.problem.keys.data == base.problem.keys.data).all()
        assert (other.problem.keys.noise == base.problem.keys.noise).all()
    assert base.problem.keys.data.tolist() != base.problem.keys.noise.tolist()
    assert others[2].model.kind == "mlp"
    for other in others[:2]:
        assert (other.training.initial == base.training.initial).all()
    another = prepare(rough("adpsgd-atomic", **graph, seed=2))
    assert durations(another) != expected
    assert another.partition.indices.tolist() != base.partition.indices.tolist()


def of_seeds(seed, learning_seed, out):
    scenario = loads(
        ROUGH.format(
            seed=seed,
            model="mlp, hidden: [4]",
            topology="complete",
            algorithm="kind: adpsgd, exchange: messages",
            privacy=GAUSSIAN,
            every="{updates: 40}",
            window=64,
        )
    )
    return run(scenario.replace(learning_seed=learning_seed), out=out)


def test_world_and_learning_have_seeds_of_their_own(tmp_path):
    """Times and partners follow from one seed, numbers from the other; one seed for both is what a plain seed is."""
    plain = of_seeds(3, None, tmp_path)
    assert of_seeds(3, 3, tmp_path).manifest.digest == plain.manifest.digest
    other, world = of_seeds(3, 4, tmp_path), of_seeds(4, 3, tmp_path)
    assert (plain.seeds, other.seeds, tuple(world.seeds)) == (3, (3, 4), (4, 3))
    assert not np.allclose(plain.metrics["test_loss"], other.metrics["test_loss"])
    events = ["time_s", "client", "peer", "staleness"]
    pd.testing.assert_frame_equal(plain.updates[events], other.updates[events])
    pd.testing.assert_frame_equal(plain.messages, other.messages)
    assert not plain.updates[events].equals(world.updates[events])
    sizes = [each.updates["sample_size"].tolist() for each in (plain, other, world)]
    assert sizes[0] != sizes[1], "Poisson sampling is the sampling of learning"
    setups = [prepare(each.scenario) for each in (plain, other, world)]
    initial = [setup.training.initial for setup in setups]
    keys = [setup.problem.keys.noise for setup in setups]
    assert not np.array_equal(initial[0], initial[1])
    assert not np.array_equal(keys[0], keys[1])
    assert np.array_equal(initial[0], initial[2])
    assert np.array_equal(keys[0], keys[2])
