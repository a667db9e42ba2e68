"""No account is smaller than what the tape has seen: contracts of all algorithms, and algorithms that violate them."""

import math
import re
import warnings

import numpy as np
import pytest

import simfl
from simfl.accounts import check
from simfl.algorithms import ALGORITHMS
from simfl.assembly.assemble import assemble
from simfl.errors import RunError
from simfl.privacy.releases import Releases
from simfl.runs.runner import Simulation
from simfl.scenario import loads
from simfl.world.availability import Outcome
from tests.algorithms.custom import Alone
from tests.helpers import LOCAL, RunWithoutNumbers

pytestmark = pytest.mark.usefixtures("without_numbers")

GAUSSIAN = "{mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 2.0}"
UPDATE = "{mechanism: gaussian_update, clipping_norm: 1.0, noise_multiplier: 2.0}"
LAPLACE = "{mechanism: laplace_l2, neighbors: replace_one, epsilon_per_release: 0.5}"
STEADY = "{count: 4, seconds_per_example: 1 ms}"
ONE_PASS = "{mechanism: one_pass_gaussian, epsilon: 1.0}"


def scenario(algorithm, privacy=GAUSSIAN, *, count=4, **sections):
    """Return a scenario with digits and batches of 16, slow clients, and crashes."""
    sections = {
        "data": "{set: digits, normalize: unit_sphere}",
        "model": "{kind: softmax, l2: 0.001}",
        "clients": f"{{count: {count}, seconds_per_example: 1 ms, jitter: {{kind: lognormal, sigma: 0.4}}}}",
        "topology": "complete",
        "links": "{latency: 2 ms}",
        "stop": "{updates: 60}",
        "evaluate": "{every: {updates: 20}}",
        **sections,
    }
    given = "".join(f"{key}: {value}\n" for key, value in sections.items())
    return loads(f"{given}algorithm: {algorithm}\nprivacy: {privacy}\n", "accounts")


def simulate(asked, folder):
    """Run a scenario; return the simulation at its end, and the run."""
    setup = assemble(asked)
    simulation = Simulation(setup, simfl.tape.executor.choose_device("cpu"))
    made = simulation.run(simfl.records.RunFolder.create(folder, "run"))
    return simulation, made


def run(asked, folder):
    """Run a scenario that must not be certified; return the run and the reason."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = simfl.run(asked, out=folder)
    stated = made.manifest.extra["privacy"]
    assert stated.startswith("not certified: ")
    reason = stated.removeprefix("not certified: ")
    assert [str(one.message) for one in told if "privacy" in str(one.message)] == [
        f"privacy: epsilon is not certified: {reason}"
    ]
    assert made.manifest.extra["warnings"][-1].endswith(reason)
    assert made.clients["epsilon"].isna().all()
    assert math.isnan(made.metrics["epsilon"].iloc[-1])
    return made, reason


# -- the algorithms of simfl -----------------------------------------------------------------------


def cases():
    """Yield every algorithm with every mechanism that it takes: (algorithm, privacy, further sections)."""
    passed = {"without_replacement_sgd": {}, "random_walk_sgd": {}, "deep_q_sgd": {}}
    for kind in ALGORITHMS:
        count = {"count": 1} if kind == "centralized_sgd" else {}
        own = f"{{kind: {kind}, batch_size: 16, step_size: {'null' if kind in ('mapa', *passed) else 0.2}}}"
        if kind in ("ditto", "apfl", "pfedme"):
            continue  # their scenarios have no privacy
        if kind == "mapa":
            yield own, LAPLACE, count
        elif kind in passed:
            yield own, ONE_PASS, {"model": "{kind: one_vs_all, l2: 0.01}", "stop": "{updates: 300}"}
        elif kind in LOCAL:
            yield own, UPDATE, count
        elif kind == "privsgp_vr":
            yield own, GAUSSIAN, count
        else:
            for privacy in (GAUSSIAN, LAPLACE) if kind == "async_fl" else (GAUSSIAN, LAPLACE, UPDATE):
                yield own, privacy, count
    yield "{kind: fedbuff, batch_size: 16, step_size: 0.2, buffer_size: 3, noise: server}", UPDATE, {}
    yield "{kind: async_sgd, batch_size: 16, step_size: 0.2, staleness_bound: {bound: 2, policy: drop}}", GAUSSIAN, {}
    yield "{kind: fedavg, batch_size: 16, step_size: 0.2, deadline: 17 ms}", UPDATE, {}
    yield (
        (
            "{kind: async_fl, batch_size: 16, step_size: 0.01, sampling: poisson, "
            "sizes: {kind: polynomial, a: 8.0, power: 1.0, b: 20.0}}"
        ),
        GAUSSIAN,
        {},
    )
    yield (
        (
            "{kind: async_fl, batch_size: 16, step_size: 0.01, sampling: shuffle, "
            "sizes: {kind: polynomial, a: 8.0, power: 1.0, b: 20.0}}"
        ),
        LAPLACE,
        {},
    )


@pytest.mark.slow(every=6)
@pytest.mark.parametrize(("algorithm", "privacy", "sections"), list(cases()), ids=lambda case: str(case)[:50])
def test_every_release_that_the_executor_computes_is_counted(algorithm, privacy, sections, tmp_path, monkeypatch):
    """The releases in the account are at least those for which the device drew noise, which are counted separately."""
    computed = {}

    def listen(self, window):
        reads = window.combines.ints.shape[1] - 1
        clients, draws = window.gradients.rest[:, :2].T
        for client, draw, scale in zip(clients, draws, window.gradients.floats[:, reads + 1], strict=True):
            if scale > 0:
                assert (client, draw) not in computed, "noise is drawn once"
                computed[int(client), int(draw)] = float(scale)

    monkeypatch.setattr(RunWithoutNumbers, "submit", listen)
    if sections.get("count") != 1:
        sections = {"availability": "[{clients: [2], crash: [{at: 40 ms, back: 90 ms}]}]", **sections}
    simulation, made = simulate(scenario(algorithm, privacy, **sections), tmp_path)
    account, tasks = simulation.account(), simulation.algorithm.training.tasks
    assert account is simulation.algorithm.releases is simulation.tape.releases
    assert account.refusal is None
    assert computed
    heard = np.bincount([client // tasks for client, _ in computed], minlength=len(account.counts))
    counted = np.array([account.total(client) for client in range(len(heard))])
    if "server" in algorithm:  # one noise for a buffer with updates of several clients
        assert heard.sum() < counted.sum()
    elif "deep_q" in algorithm:  # a step is computed when a node begins it, and released when it is done
        assert ((heard >= counted) & (heard - counted <= tasks)).all()
    else:
        sent = counted - heard
        assert ((sent >= 0) & (sent <= np.array(simulation.algorithm.client_dropped) + 1)).all(), (
            "the rest is in flight"
        )
    assert (counted > 0).all()
    assert made.manifest.extra["privacy"] == simulation.setup.ledger.statement_of(account)


# -- algorithms of a user's own --------------------------------------------------------------------


class Own(Alone):
    """Clients that train alone; subclasses define the terms of an update."""

    def worker(self, me):
        yield self.world.joined(me)
        while True:
            terms = self.terms(me)
            if (yield self.compute(me)) is Outcome.GONE:
                return
            self.model[me] = self.tape.combine((1.0, self.model[me]), *terms)
            self.updated(me, 0, self.training.batch_size, self.step_size())

    def terms(self, me):
        """Return the terms of one step."""
        return self.descent.terms(self.batches.gradient(self.model[me], me), self.step_size())


class Twice(Own):
    """Two gradients for every update."""

    def terms(self, me):
        return *super().terms(me), *super().terms(me)


class Bare(Own):
    """Every fifth update of client 1 has no noise."""

    def terms(self, me):
        draw = self.batches.draws[me]
        self.batches.draws[me] += 1
        scale = 0.0 if me == 1 and draw % 5 == 4 else self.batches.noise_scale[me]
        return ((-0.01, self.tape.gradient(self.model[me], me, draw, 16, scale)),)


class Quiet(Own):
    """Noise of half the scale."""

    def set_up(self, boost=1.0):
        super().set_up(boost)
        self.batches.noise_scale = [0.5 * scale for scale in self.batches.noise_scale]


class Rated(Own):
    """Mini-batches of 32 examples on average, regardless of the scenario."""

    def terms(self, me):
        draw = self.batches.draws[me]
        self.batches.draws[me] += 1
        return ((-0.01, self.tape.gradient(self.model[me], me, draw, 32, self.batches.noise_scale[me])),)


class Again(Own):
    """The noise of one mini-batch is added to another gradient."""

    def terms(self, me):
        return ((-0.01, self.tape.gradient(self.model[me], me, 0, 16, self.batches.noise_scale[me])),)


class Pieces(Own):
    """Takes the parts of a mini-batch one by one."""

    def terms(self, me):
        draw = self.batches.draws[me]
        self.batches.draws[me] += 1
        whole = self.tape.gradient_in_pieces(self.model[me], me, draw, 80, self.batches.noise_scale[me])
        return [(-0.01, piece) for piece in whole.pieces]


class Asks(Own):
    """Promises a gradient with the arguments of its options."""

    def set_up(self, boost=1.0, way="gradient", **words):
        super().set_up(boost)
        self.way, self.words = way, words

    def terms(self, me):
        draw = self.batches.draws[me]
        self.batches.draws[me] += 1
        told = {"client": me, "draw": draw, "size": 16, "noise_scale": self.batches.noise_scale[me], **self.words}
        told["noise_scale"] = float(told["noise_scale"])  # YAML has no plain nan
        return ((-0.01, getattr(self.tape, self.way)(self.model[me], **told)),)


class Nosy(Own):
    """Looks at losses on private data."""

    def terms(self, me):
        if self.updates == 10:
            self.tape.probe([self.model[me]], [me], [[0]], lambda models, losses: losses)
        return super().terms(me)


class Keeps(Own):
    """Declares that it keeps results of its gradients until later."""

    def terms(self, me):
        gradient = self.batches.gradient(self.model[me], me)
        self.tape.hold(gradient)
        return self.descent.terms(gradient, self.step_size())


class Modest(Twice):
    """Keeps its own account: one release for every update."""

    def set_up(self, boost=1.0):
        super().set_up(boost)
        self.releases = Releases(self.client_updates)


class Generous(Own):
    """Keeps its own account: two releases for every update."""

    def set_up(self, boost=1.0):
        super().set_up(boost)
        self.releases = Releases([0] * self.num_clients)

    def updated(self, client, *rest):
        self.releases.counts[client] += 2
        super().updated(client, *rest)


class Central(Own):
    """A server adds noise to gradients that clients send without noise."""

    def set_up(self, boost=1.0):
        super().set_up(boost)
        self._bare, self.batches.noise_scale = self.batches.noise_scale, [0.0] * self.num_clients

    def worker(self, me):
        yield self.world.joined(me)
        while True:
            gradient = self.batches.gradient(self.model[me], me)
            yield self.compute(me)
            ((c, noised),) = self.tape.with_noise([(1.0, gradient)], self._bare[me])
            self.model[me] = self.tape.apply((1.0, self.model[me]), (-0.01 * c, noised))
            self.updated(me, 0, 16, 0.01)


class Drops(Own):
    """Sends every update, and applies every other."""

    def worker(self, me):
        yield self.world.joined(me)
        while True:
            gradient = self.batches.gradient(self.model[me], me)
            yield self.compute(me)
            self.tape.release(gradient)
            if gradient.draw % 2:
                self.model[me] = self.tape.combine((1.0, self.model[me]), *self.descent.terms(gradient, 0.1))
                self.updated(me, 0, gradient.draw, 0.1)


def own(name, **options):
    return f'{{kind: "tests.algorithms.test_accounts:{name}", batch_size: 16, step_size: 0.1, options: {options}}}'


def certified(name, folder, **sections):
    """Run an algorithm whose releases can be certified; return (run, releases by client, batch size and level)."""
    made = simfl.run(
        scenario(own(name), **{"clients": "{count: 4, seconds_per_example: 1 ms}", **sections}), out=folder
    )
    assert not made.manifest.extra["privacy"].startswith("not certified")
    table = made.releases
    return made, {
        tuple(row[:3]): row[3] for row in table[["client", "batch_size", "level", "count"]].itertuples(index=False)
    }


@pytest.mark.slow
def test_two_gradients_for_an_update_are_two_releases(tmp_path):
    one, single = certified("Own", tmp_path)
    two, double = certified("Twice", tmp_path)
    assert single == {(k, 16, 2.0): 15 for k in range(4)}
    assert double == {(k, 16, 2.0): 30 for k in range(4)}
    ledger = assemble(scenario(own("Twice"))).ledger
    np.testing.assert_allclose(two.clients["epsilon"], ledger.final_epsilon(Releases([30] * 4)))
    assert (two.clients["epsilon"] > 1.2 * one.clients["epsilon"]).all()


@pytest.mark.slow
def test_less_noise_is_another_kind_of_release_for_every_mechanism(tmp_path):
    _, half = certified("Quiet", tmp_path)
    assert half == {(k, 16, 1.0): 15 for k in range(4)}
    made = simfl.run(scenario(own("Quiet"), LAPLACE), out=tmp_path)
    assert set(made.releases["level"]) == {1.0}, "half the noise, twice the epsilon"


@pytest.mark.slow
def test_batches_of_another_size_are_drawn_and_accounted_at_their_own_rate(tmp_path):
    made, kinds = certified("Rated", tmp_path)
    assert kinds == {(k, 32, 2.0): 15 for k in range(4)}
    np.testing.assert_allclose(made.releases["sampling_rate"], 32 / made.clients["samples"])


@pytest.mark.parametrize("size", [16, 32])
def test_the_tape_draws_the_sizes_of_poisson_batches(size, tmp_path):
    """For any requested size, each example is in a batch with the probability that is accounted for."""
    drawn, count = {}, 400
    simulation, _ = simulate(scenario(own("Asks", size=size), GAUSSIAN, stop="{updates: 4}"), tmp_path)
    promise = simulation.tape.gradient
    model = simulation.algorithm.model[0]
    for client, n in enumerate(simulation.setup.sizes.tolist()):
        drawn[client] = [promise(model, client, 10**6 + draw, size, 2.0).size for draw in range(count)]
        assert abs(np.mean(drawn[client]) - size) < 5 * math.sqrt(size * (1 - size / n) / count)
        assert np.std(drawn[client]) > 0.8 * math.sqrt(size * (1 - size / n))
    assert drawn[0] != drawn[1], "each client draws its own"


def test_sent_gradients_count_as_releases_even_if_unused(tmp_path):
    made, kinds = certified("Drops", tmp_path)
    assert made.clients["updates"].sum() == 60
    assert sum(kinds.values()) == 2 * 60 or sum(kinds.values()) == 2 * 60 - 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Bare", r"client 1 releases mini-batch 4 without noise (at 0.08 s of virtual time)"),
        ("Pieces", "client 0 releases mini-batch 0 of 32 examples, whose sampling rate is unknown"),
        ("Again", "client 0 draws the noise of mini-batch 0 after that of mini-batch 0, so the same noise may be"),
        ("Nosy", "the algorithm reads losses of client"),
        ("Keeps", "client 0 keeps the result of a gradient until later"),
        ("Central", "the server adds the noise, and receives the updates of clients before it does"),
        (
            "Modest",
            "the algorithm's own account says too little: expected 10 releases of client 0 with batch size 16 and "
            "level 2, as its gradients show, found 5",
        ),
    ],
)
def test_uncertified_runs_state_their_reason(name, reason, tmp_path):
    asked = scenario(own(name), clients=STEADY)
    made, refusal = run(asked, tmp_path)
    assert reason in refusal
    checked = check.check(assemble(asked), made)
    assert checked.statement == f"not certified: {refusal}"
    assert all(math.isnan(finding.account) for finding in checked.findings)


def test_an_account_of_more_releases_than_the_tapes_is_accepted(tmp_path):
    _, kinds = certified("Generous", tmp_path)
    assert kinds == {(k, 16, 2.0): 30 for k in range(4)}


@pytest.mark.slow
def test_budgets_hold_for_clients_with_several_releases_at_a_time(tmp_path):
    private = "{mechanism: gaussian, noise_multiplier: 2.0, epsilon: 1.0}"
    made = simfl.run(scenario(own("Twice"), private, stop="{updates: 100000}"), out=tmp_path)
    assert made.clients["epsilon"].max() <= 1.0
    assert made.manifest.reason.endswith("every client has spent its privacy budget")
    made = simfl.run(scenario(own("Quiet"), private, stop="{updates: 100000}"), out=tmp_path)
    assert made.clients["updates"].tolist() == [0] * 4, "what it may release was planned for more noise"


WRONG = [
    ({"expected": 1}, "unexpected keyword argument 'expected'"),
    ({"size": 0}, "client 0: size: expected 1 to 360, its number of examples, as the mean of Poisson sampling"),
    ({"size": 361}, "client 0: size: expected 1 to 360, its number of examples"),
    ({"size": -3}, "client 0: size: expected an integer >= 0, found -3"),
    ({"draw": -1}, "client 0: draw: expected an integer >= 0, found -1"),
    ({"draw": 0.5}, "client 0: draw: expected an integer >= 0, found 0.5"),
    ({"client": -1}, "client: expected an integer >= 0, found -1"),
    ({"noise_scale": -2.0}, "client 0: noise_scale: expected a finite number >= 0, found -2.0"),
    ({"noise_scale": float("nan")}, "client 0: noise_scale: expected a finite number >= 0, found nan"),
    ({"way": "gradient_in_pieces", "start": [0, 0]}, "client 0: start: expected None with sampling poisson"),
    ({"way": "gradient_in_pieces", "size": 361}, "client 0: size: expected 1 to 360, its number of examples"),
    ({"way": "train", "steps": 2, "step": [0.1, 0.0, 0.0, 0.0]}, "a tape of gradients: expected gradient, found train"),
]


@pytest.mark.slow(but=["-3"])
@pytest.mark.parametrize(("options", "reason"), WRONG, ids=[str(options)[:60] for options, _ in WRONG])
def test_a_wrong_statement_of_an_algorithm_ends_the_run_with_one_line_that_names_it(options, reason, tmp_path):
    asked = scenario(own("Asks", **options), clients=STEADY)
    with pytest.raises(RunError) as caught:
        simfl.run(asked, out=tmp_path)
    line = str(caught.value)
    assert reason in line
    assert re.search(r" in \S*test_accounts\.py:\d+$", line)
    assert "\n" not in line


def test_a_fixed_batch_larger_than_the_data_is_not_certified(tmp_path):
    """Its last example would be in the batch several times."""
    private = "{mechanism: gaussian, noise_multiplier: 2.0, neighbors: replace_one}"
    algorithm = own("Asks", size=361)[:-1] + ", sampling: without_replacement}"
    _, refusal = run(scenario(algorithm, private, clients=STEADY), tmp_path)
    assert "client 0 releases mini-batch 0 of 361 examples, and has 360" in refusal


def test_the_statement_lists_what_the_account_assumes_of_an_own_algorithm(tmp_path):
    made, _ = certified("Own", tmp_path)
    assert made.manifest.extra["privacy"].endswith(
        "not counting what the code of tests.algorithms.test_accounts:Own makes of data beside the gradients of the "
        "tape, nor that it may drop gradients for their sizes"
    )
