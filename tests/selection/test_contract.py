"""Every selector with every algorithm that draws clients: with deadlines and churn, resumed, in sweeps, private."""

import math

import pytest

import simfl
from simfl.algorithms import ALGORITHMS
from simfl.runs.runner import prepare, resume
from simfl.scenario import from_mapping
from simfl.scenario.catalogues import Algorithm
from simfl.scenario.fields import kind_of, members_of
from simfl.selection.selectors import SELECTORS
from simfl.studies import sweep
from tests.helpers import RunOfOperations, run_until

LOSSES = ("oort", "power_of_choice")
SECTIONS = {
    kind_of(one, "kind"): one.model_fields.keys() - one.reasons()
    for one in members_of(Algorithm)
    if getattr(ALGORITHMS.get(kind_of(one, "kind")), "selects", False)
    and {"fraction", "concurrency"} & (one.model_fields.keys() - one.reasons())
}
#: Options that the algorithm needs, or that let few clients train at a time.
OPTIONS = {
    "fraction": 0.4, "concurrency": 3, "buffer_size": 2, "period": "5 ms", "deadline": "30 ms", "local_steps": 2,
}  # fmt: skip
CHURN = {
    "availability": [
        {"all": True, "random": {"up": "60 ms", "down": "20 ms"}},
        {"clients": [1], "crash": [{"at": "30 ms", "back": "50 ms"}]},
    ],
    "links": {"latency": "2 ms", "loss": 0.1, "resend_timeout": "5 ms"},
}


def section(kind):
    return {"kind": kind, "within": "8 ms"} if kind == "deadline" else {"kind": kind}


def content(selector, algorithm, **more):
    fields = SECTIONS[algorithm]
    options = {name: value for name, value in OPTIONS.items() if name in fields}
    return {
        "name": "chosen",
        "data": {"set": "logistic", "samples": 160, "dimension": 4},
        "model": "logistic",
        "clients": {"count": 8, "seconds_per_example": "1 ms", "speed": {"kind": "lognormal", "sigma": 0.5}},
        "algorithm": {"kind": algorithm, "batch_size": 4, **options},
        "stop": {"updates": 40, "time": "2 s"},
        "evaluate": {"every": {"updates": 20}},
        "selection": section(selector),
        **CHURN,
        **more,
    }


@pytest.fixture(autouse=True)
def of_operations(monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)


@pytest.mark.slow(every=5)
@pytest.mark.parametrize("algorithm", SECTIONS)
def test_a_resumed_run_with_any_selector_is_the_whole_run(algorithm, tmp_path):
    for selector in SELECTORS:
        given = from_mapping(content(selector, algorithm))
        whole, events = run_until(prepare(given), math.inf, tmp_path)
        assert whole.clients["updates"].sum() > 0, selector
        cut, _ = run_until(prepare(given), events // 2, tmp_path)
        assert cut.status == "interrupted", selector
        assert resume(cut.folder).manifest.digest == whole.manifest.digest, selector


@pytest.mark.slow(every=5)
@pytest.mark.parametrize("algorithm", SECTIONS)
def test_runs_of_a_sweep_with_any_selector_are_the_runs_alone(algorithm, tmp_path):
    study = {
        "name": "study",
        "base": content("uniform", algorithm),
        "grid": {"selection": [section(kind) for kind in SELECTORS], "algorithm.step_size": [0.1, 0.3]},
        "seeds": [1],
    }
    swept = sweep(study, out=tmp_path / "sweep", jobs=1)
    assert len(swept.finished) == 2 * len(SELECTORS)
    for planned in swept.runs:
        run = swept.open(planned)
        alone = simfl.run(from_mapping(run.scenario), out=tmp_path / "alone")
        assert run.manifest.digest == alone.manifest.digest, planned.label


@pytest.mark.slow(every=5)
@pytest.mark.parametrize("algorithm", SECTIONS)
def test_beside_privacy_a_selector_is_accounted_for_or_refused_in_a_line(algorithm, tmp_path):
    for selector in SELECTORS:
        private = {"privacy": {"unit": "user", "noise_multiplier": 3.0, "clipping_norm": 1.0, "delta": 1e-3}}
        given = content(selector, algorithm, **private)
        given["algorithm"].pop("deadline", None)
        if "weighting" in SECTIONS[algorithm]:
            given["algorithm"]["weighting"] = "uniform"
        refused = ""
        try:
            run = simfl.run(from_mapping(given), out=tmp_path)
        except simfl.ScenarioError as error:
            refused = str(error)
        if refused:
            assert all(line.startswith("scenario: ") for line in refused.splitlines())
            continue
        assert selector not in (*LOSSES, "data_size")
        assert "q = 1: " in run.manifest.extra["privacy"] or "not certified" in run.manifest.extra["privacy"]
