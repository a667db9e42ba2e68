"""A tape that is executed anew gives the run of the changed scenario, bit for bit."""

import json
import shutil
import zipfile

import numpy as np
import pytest

from simfl.algorithms import ALGORITHMS
from simfl.build.assembly import assemble
from simfl.errors import DataError, RunError, ScenarioError
from simfl.records import RunFolder, read
from simfl.runs.replay import replay
from simfl.runs.runner import Simulation, prepare, resume
from simfl.scenario import from_mapping
from simfl.symbols import ChangedError, Symbols, evaluated
from simfl.tape.executor import choose_device
from tests.fuzz import drawn
from tests.runs.test_checkpoint import scenario
from tests.runs.test_together import OPTIMIZED, alone, changed, same, variants
from tests.test_reproducibility import prepared

#: Algorithms without tapes: they count releases in a way of their own, have code of their own, or look at numbers.
REFUSED = {"async_fl", "deep_q_sgd", "random_walk_sgd", "without_replacement_sgd"}
PLAIN = {"random_walk_sgd", "without_replacement_sgd"}  # without privacy, they have tapes


def taped(given):
    return changed(given, {"record.tape": True})


def said(given, other):
    """Return the changes of one scenario into another, as `--set` takes them."""
    changes = []

    def differ(one, two, path):
        for key in two:
            below = isinstance(one, dict) and isinstance(one.get(key), dict) and isinstance(two[key], dict)
            if below and one[key].get("kind") == two[key].get("kind"):
                differ(one[key], two[key], (*path, key))
            elif not isinstance(one, dict) or one.get(key) != two[key]:
                changes.append(f"{'.'.join((*path, key))}={json.dumps(two[key])}")

    differ(given.resolved(), other.resolved(), ())
    return changes


def check(first, others, out):
    """Record a tape, and compare replays with runs alone."""
    made = alone(taped(first), out / "taped")
    plain = alone(first, out / "plain")
    assert made.manifest.tables == plain.manifest.tables, "a tape changes nothing"
    assert made.manifest.extra["tape_bytes"] == (made.folder / "tape.zip").stat().st_size
    for other in [first, *others]:
        if callable(assemble(other).training.step_size) > callable(assemble(first).training.step_size):
            with pytest.raises(ScenarioError, match=r"step_size: expected a number, as in the run, found a schedule"):
                replay(made.folder, said(first, other), out=out, progress=False)
            continue
        same(replay(made.folder, said(first, other), out=out, progress=False), alone(other, out))
    return made


@pytest.mark.slow(but=["drop"])
@pytest.mark.parametrize("policy", ["wait", "drop", "down_weight"])
def test_a_run_with_a_bound_on_staleness_has_a_tape(policy, tmp_path):
    """The bound is an option of the algorithm, which is copied and compared."""
    bound = f"{{bound: 3, policy: {policy}}}"
    given = scenario(algorithm=f"{{kind: adpsgd, batch_size: 8, step_size: 0.5, staleness_bound: {bound}}}")
    check(given, [changed(given, {"algorithm.step_size": 0.3})], tmp_path)


@pytest.mark.slow(but=["fedbuff-private"])
@pytest.mark.parametrize("private", [True, False], ids=["private", "plain"])
@pytest.mark.parametrize("kind", sorted(ALGORITHMS))
def test_replays_of_every_algorithm_are_the_runs(kind, private, tmp_path):
    setup = prepared(kind, private=private, window="auto")
    if setup is None:
        return
    first, *others = variants(setup.scenario)
    if kind == "mapa":  # the lengths of its stages follow from numbers
        others = []
    if kind in REFUSED and not (kind in PLAIN and not private):
        with pytest.raises((ScenarioError, RunError), match=r"^record\.tape: "):
            alone(taped(first), tmp_path)
        return
    check(first, others, tmp_path)


@pytest.mark.slow(but=["hinge"])
@pytest.mark.parametrize("name", OPTIMIZED)
def test_replays_with_other_constants_are_the_runs(name, tmp_path):
    first, *others = variants(scenario(algorithm=OPTIMIZED[name], stop="{updates: 48}"))
    if name == "delays":  # each update compares its step with the limit
        made = alone(taped(first), tmp_path / "taped")
        with pytest.raises(ScenarioError, match=r"may reach the world \(whether .* gt .*\); use simfl run$"):
            replay(made.folder, ["algorithm.delay_limit=0.7"], out=tmp_path)
        return
    check(first, others, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("lot", range(4))
def test_drawn_runs_are_replayed(lot, tmp_path):
    replayed = 0
    for seed in range(lot, 80, 4):
        try:
            first = from_mapping(drawn(seed, tmp_path))
            assemble(taped(first))
            others, out = variants(first)[1:3], tmp_path / str(seed)
            made = alone(taped(first), out / "taped")
        except (ScenarioError, DataError, RunError):  # it has no tape, or fails alone, too
            continue
        if made.status != "done" or first.algorithm.kind == "mapa":  # whose stages follow from numbers
            continue
        for other in others:
            expected = alone(other, out)
            if expected.status == "diverged":
                with pytest.raises(RunError, match="diverges"):
                    replay(made.folder, said(first, other), out=out, progress=False)
            else:
                same(replay(made.folder, said(first, other), out=out, progress=False), expected)
                replayed += 1
    assert replayed > 4


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A private run with its tape."""
    first = scenario(privacy="{mechanism: gaussian, noise_multiplier: 0.5}", record="{messages: true, tape: true}")
    return alone(first, tmp_path_factory.mktemp("recorded"))


def test_what_reaches_the_world_is_refused_in_one_line(recorded, tmp_path):
    for change in ("links.latency=4 ms", "algorithm.batch_size=4", "stop.updates=100", "record.messages=false"):
        with pytest.raises(ScenarioError, match=rf"^--set {change}: expected a change that reaches models alone"):
            replay(recorded.folder, ["algorithm.step_size=0.1", change], out=tmp_path)
    with pytest.raises(ScenarioError, match=r"found other releases, batches or shapes"):
        replay(recorded.folder, ["learning_seed=3"], out=tmp_path)  # draws other sizes of Poisson batches
    assert not any(tmp_path.iterdir())


def test_a_run_that_diverges_with_other_numbers_is_refused(recorded, tmp_path):
    with pytest.raises(RunError, match=r"diverges with these numbers, and ends at another event; use simfl run"):
        replay(recorded.folder, ["algorithm.step_size=1e38"], out=tmp_path, progress=False)
    assert read(tmp_path / "run" / "001").status == "failed"


def test_a_tape_that_is_missing_damaged_or_of_another_version_is_refused(recorded, tmp_path):
    copy = shutil.copytree(recorded.folder, tmp_path / "run" / "001")
    with zipfile.ZipFile(recorded.folder / "tape.zip") as archive:
        about = json.loads(archive.read("about.json"))
    for change, message in (
        ({"format": 0}, "expected a tape of format"),
        ({"print": {**about["print"], "version of jax": "0"}}, "expected the version of jax of the tape, 0, found"),
        ({"print": {**about["print"], "data": "0" * 64}}, "expected the data of the tape, found another one"),
    ):
        with zipfile.ZipFile(copy / "tape.zip", "w") as archive:
            archive.writestr("about.json", json.dumps(about | change))
        with pytest.raises(DataError, match=message):
            replay(copy, out=tmp_path)
    (copy / "tape.zip").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match="found a damaged one"):
        replay(copy, out=tmp_path)
    (copy / "tape.zip").unlink()
    with pytest.raises(DataError, match=r"found no tape\.zip; record one: simfl run .*record\.tape=true"):
        replay(copy, out=tmp_path)


@pytest.mark.parametrize(
    "sections",
    [
        {"stop": "{updates: 120, accuracy: 0.5}"},
        {"algorithm": "{kind: 'tests.algorithms.custom:Alone', batch_size: 8}"},
        {"attackers": "{kind: sign_flip, share: 0.2}"},
    ],
)
def test_runs_whose_events_may_depend_on_numbers_keep_no_tape(sections):
    with pytest.raises(ScenarioError, match=r"^record\.tape: expected false in a run like this one"):
        assemble(scenario(record="{tape: true}", **sections))


@pytest.mark.slow
def test_the_tape_of_a_resumed_run_is_whole(recorded, tmp_path):
    given = from_mapping(recorded.scenario)
    simulation = Simulation(prepare(given), choose_device("cpu"), every_s=1e9)
    try:
        cut = simulation.run(RunFolder.create(tmp_path, "run", "cut"), ends_after=150)
    finally:
        simulation.release()
    assert not (cut.folder / "tape.zip").exists()
    whole = resume(cut.folder, progress=False)
    with zipfile.ZipFile(whole.folder / "tape.zip") as one, zipfile.ZipFile(recorded.folder / "tape.zip") as other:
        assert json.loads(one.read("about.json"))["conditions"] == json.loads(other.read("about.json"))["conditions"]
    changes = ["algorithm.step_size=0.1", "privacy.noise_multiplier=0.8"]
    expected = alone(from_mapping(given.resolved(), overrides=[*changes, "record.tape=false"]), tmp_path)
    same(replay(whole.folder, changes, out=tmp_path, progress=False), expected)


def test_the_command_replays_and_says_what_it_refuses(recorded, simfl_, tmp_path):
    (tmp_path / "my.yaml").write_text(from_mapping(recorded.scenario).to_yaml())
    code, out, _ = simfl_("run", "my.yaml", "--set", "stop.updates=20", "--quiet")
    assert (code, "tape: " in out, "other arithmetic: simfl replay results" in out) == (0, True, True)
    changed_step = "algorithm.step_size=0.1"
    code, out, _ = simfl_("replay", recorded.folder, "--set", changed_step, "--out", tmp_path, "--quiet", "--json", "-")
    (result,) = json.loads(out)
    expected = alone(from_mapping(recorded.scenario, overrides=[changed_step, "record.tape=false"]), tmp_path / "run")
    assert (code, result["digest"]) == (0, expected.manifest.digest)
    code, _, err = simfl_("replay", recorded.folder, "--set", "clients.count=9")
    assert (code, err.count("\n")) == (2, 1)
    assert "found one that may change events; use simfl run" in err


def test_expressions_are_computed_again_and_conditions_are_checked():
    symbols = Symbols()
    step, share = symbols.named(("step",), 0.5), symbols.named(("share",), 0.25)
    assert symbols.named(("none",), 0.0) == 0.0
    made = 2.0 - step / 3 * share + step**2 - (-share)
    assert made.values[0] == 2.0 - 0.5 / 3 * 0.25 + 0.5**2 + 0.25
    assert step > share
    assert symbols.fixed == {("none",): 0.0}
    conditions = [(*key, answer) for key, answer in symbols.conditions.items()]

    def values(**numbers):
        return evaluated(symbols.names, symbols.expressions, conditions, lambda name: numbers[name[0]])

    number = made.values[1].number
    assert values(step=0.7, share=0.1)[number] == 2.0 - 0.7 / 3 * 0.1 + 0.7**2 + 0.1
    with pytest.raises(ChangedError, match=r"whether 0\.1 gt 0\.3"):
        values(step=0.1, share=0.3)
    with pytest.raises((TypeError, RunError)):
        step * np.float32(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["shuffle", "without_replacement"])
def test_accounts_of_passes_and_models_of_clients_are_those_of_the_run(sampling, tmp_path):
    first = scenario(
        algorithm=f"{{kind: adpsgd, batch_size: 8, step_size: 0.5, exchange: messages, sampling: {sampling}}}",
        privacy="{mechanism: gaussian, noise_multiplier: 2.0, neighbors: replace_one}",
        record="{client_models: true, messages: true}",
    )
    others = [changed(first, changes) for changes in ({"privacy.noise_multiplier": 3.0}, {"learning_seed": 5})]
    made = check(first, others, tmp_path)
    assert np.isfinite(made.clients["epsilon"]).all()
