"""Step sizes against their formulas."""

import math
import pickle
from typing import Any

import jax
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.scenario import Schedule, from_mapping

progress = st.tuples(st.integers(0, 10**6), st.integers(0, 10**8), st.floats(0, 1000))


def schedule(step_size: Any) -> Schedule:
    return from_mapping({"algorithm": {"kind": "adpsgd", "step_size": step_size}}).algorithm.step_size


@given(progress, st.floats(0, 10))
def test_constant_step_never_changes(at: tuple[int, int, float], value: float) -> None:
    assert schedule(value)(*at) == schedule({"kind": "constant", "value": value})(*at) == value


def test_by_epochs_takes_the_next_value_at_the_boundary() -> None:
    paper = schedule({"kind": "by_epochs", "values": [0.4, 0.04, 0.004], "boundaries": [160, 240]})
    assert [paper(0, 0, epochs) for epochs in (0.0, 159.99, 160.0, 239.99, 240.0, 1e9)] == [
        0.4, 0.4, 0.04, 0.04, 0.004, 0.004,
    ]  # fmt: skip


@given(progress, st.floats(0, 10), st.floats(0, 10), st.sampled_from(["updates", "examples", "epochs"]))
def test_inverse_steps_follow_their_formulas(
    at: tuple[int, int, float], initial: float, beta: float, count: str
) -> None:
    t = dict(zip(("updates", "examples", "epochs"), at, strict=True))[count]
    options = {"initial": initial, "beta": beta, "count": count}
    assert schedule({"kind": "inverse", **options})(*at) == pytest.approx(initial / (1 + beta * t), rel=1e-12)
    expected = initial / (1 + beta * math.sqrt(t))
    assert schedule({"kind": "inverse_sqrt", **options})(*at) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", ["updates", "examples", "epochs"])
def test_schedules_equal_those_of_optax(count: str) -> None:
    """At each count, also at the peak and after the end; optax joins two schedules for a cosine with warm-up."""
    ours_and_theirs: dict[str, tuple[dict[str, Any], Any]] = {
        "cosine": ({"initial": 0.4, "final": 0.1, "length": 90}, optax.cosine_decay_schedule(0.4, 90, 0.25)),
        "exponential": (
            {"initial": 0.4, "rate": 0.5, "every": 30, "final": 0.02},
            optax.exponential_decay(0.4, 30, 0.5, end_value=0.02),
        ),
        "one_cycle": ({"peak": 0.4, "length": 100}, optax.cosine_onecycle_schedule(100, 0.4)),
    }
    at = np.arange(0, 200)
    for kind, (options, theirs) in ours_and_theirs.items():
        ours = schedule({"kind": kind, "count": count, **options})
        counts = np.zeros((3, len(at)))
        counts[["updates", "examples", "epochs"].index(count)] = at
        steps = [ours(int(u), int(e), p) for u, e, p in counts.T]
        np.testing.assert_allclose(steps, jax.vmap(theirs)(at), atol=1e-6, err_msg=kind)


def test_a_cosine_follows_a_warm_up() -> None:
    cosine = {"kind": "cosine", "initial": 0.4, "length": 50, "count": "epochs"}
    ours = schedule({"kind": "warm_up", "initial": 0.0, "epochs": 10, "then": cosine})
    assert ours(0, 0, 30.0) == schedule(cosine)(0, 0, 30.0)
    assert ours(0, 0, 5.0) == pytest.approx(0.5 * schedule(cosine)(0, 0, 5.0))


def test_warm_up_is_linear_and_has_no_jump() -> None:
    paper = schedule({"kind": "warm_up", "initial": 0.1, "epochs": 10, "then": 1.0})
    assert [paper(0, 0, epochs) for epochs in (0.0, 5.0, 10.0, 50.0)] == pytest.approx([0.1, 0.55, 1.0, 1.0])
    falling = {"kind": "inverse", "initial": 1.0, "beta": 0.5, "count": "epochs"}
    warm = schedule({"kind": "warm_up", "initial": 0.0, "epochs": 4, "then": falling})
    assert warm(0, 0, 4.0) == schedule(falling)(0, 0, 4.0) == pytest.approx(1 / 3)
    assert warm(0, 0, 4.0 - 1e-9) == pytest.approx(1 / 3, abs=1e-8)
    assert warm(0, 0, 2.0) == pytest.approx(0.5 * schedule(falling)(0, 0, 2.0))


@pytest.mark.parametrize("step_size", [
    0.1,
    {"kind": "by_epochs", "values": [0.4, 0.04], "boundaries": [3]},
    {"kind": "inverse", "initial": 0.4, "beta": 0.1},
    {"kind": "warm_up", "initial": 0.1, "epochs": 2, "then": {"kind": "inverse_sqrt", "initial": 1, "beta": 1}},
    {"kind": "one_cycle", "peak": 1, "length": 100},
])  # fmt: skip
def test_schedules_can_be_hashed_compared_and_sent_to_another_process(step_size: Any) -> None:
    one, other = schedule(step_size), schedule(step_size)
    assert one == other == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(other)
