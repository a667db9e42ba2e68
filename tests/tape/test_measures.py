"""Measures other than loss and accuracy equal plain counting and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from simfl.scenario.control import METRICS, OF_KNOWN_OPTIMA, OF_REGRESSIONS
from simfl.tape.measures import OF_CLIENTS, OF_SCORES, OF_TARGETS, OwnClasses, mean_of_known, measure, worst_decile

GENERATOR = np.random.default_rng(3)
Y = GENERATOR.integers(0, 4, 60).astype(np.int32)
Y[Y == 2] = 1  # a class that the examples do not have
Z = (GENERATOR.normal(size=(60, 4)) + 1.5 * np.eye(4)[Y]).astype(np.float32)


def ranked_above(scores, positive):
    """Return the share of pairs in which the positive example has the larger score; equal scores count half."""
    ahead = scores[positive][:, None] - scores[~positive][None, :]
    return (np.sum(ahead > 0) + 0.5 * np.sum(ahead == 0)) / ahead.size


def test_the_names_are_those_of_scenarios():
    assert {*OF_SCORES, *OF_CLIENTS, *OF_TARGETS, *OF_KNOWN_OPTIMA} == set(METRICS)
    assert set(OF_TARGETS) == set(OF_REGRESSIONS)


def test_errors_of_a_regression_are_those_of_scikit_learn():
    y, z = GENERATOR.normal(size=50).astype(np.float32), GENERATOR.normal(size=50).astype(np.float32)
    measures = measure(("mae", "rmse", "r2"), y, z)
    wanted = {"mae": mean_absolute_error(y, z), "rmse": mean_squared_error(y, z) ** 0.5, "r2": r2_score(y, z)}
    assert measures == pytest.approx(wanted, rel=1e-5)
    assert measure(("mae",), y, z[:, None]) == pytest.approx({"mae": wanted["mae"]}, rel=1e-5)
    assert np.isnan(measure(("r2",), np.ones(50, np.float32), z)["r2"])


def test_all_classes_count_equally():
    answers = Z.argmax(axis=1)
    recall, f1 = [], []
    for label in (0, 1, 3):
        hits = np.sum((answers == label) & (label == Y))
        recall.append(hits / np.sum(label == Y))
        f1.append(2 * hits / (np.sum(answers == label) + np.sum(label == Y)))
    measures = measure(("macro_f1", "balanced_accuracy"), Y, Z)
    assert measures == pytest.approx({"macro_f1": np.mean(f1), "balanced_accuracy": np.mean(recall)})


def test_the_area_is_the_share_of_pairs_in_order():
    chances = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    expected = np.mean([ranked_above(chances[:, label], label == Y) for label in (0, 1, 3)])
    assert measure(("auc",), Y, Z) == pytest.approx({"auc": expected})
    binary = (Y > 0).astype(np.int32)
    score = Z[:, 1] - Z[:, 0]
    score[:10] = 0.0  # ties
    expected = ranked_above(score, binary == 1)
    assert measure(("auc",), binary, score)["auc"] == pytest.approx(expected)
    assert measure(("auc",), binary, np.stack([-score, score], axis=1))["auc"] == pytest.approx(expected)
    # Huge scores, whose probabilities are all 0 or 1, keep their order.
    assert measure(("auc",), binary, 1e4 * score)["auc"] == pytest.approx(expected)


def test_one_score_is_that_of_class_1():
    measures = measure(("macro_f1", "balanced_accuracy"), np.int32([0, 0, 1, 1]), np.float32([-1, 2, 3, 0.5]))
    assert measures == pytest.approx({"macro_f1": (2 / 3 + 4 / 5) / 2, "balanced_accuracy": 0.75})


def test_what_cannot_be_measured_is_nan():
    assert np.isnan(measure(("auc",), np.zeros(5, np.int32), Z[:5])["auc"])
    broken = Z.copy()
    broken[3, 1] = np.inf
    assert all(np.isnan(value) for value in measure(tuple(OF_SCORES), Y, broken).values())


def test_worst_decile_is_the_mean_of_the_worst_tenth_of_clients():
    assert worst_decile(np.array([0.5, 0.1, 0.9])) == 0.1
    accuracy = GENERATOR.random(47)
    assert worst_decile(accuracy) == pytest.approx(sorted(accuracy)[0:4] @ np.full(4, 0.25))


def test_own_classes_weigh_the_test_set_by_each_clients_mix():
    """Each class counts as often as the client has it; class 9 is not in the test set."""
    y, train_y = np.array([0, 0, 0, 1, 1, 5]), np.array([0, 0, 1, 5, 5, 9, 9, 1])
    right = np.array([1, 0, 0, 1, 1, 0], np.float32)
    indices, offsets = np.array([0, 1, 2, 3, 4, 5, 6, 7]), np.array([0, 3, 6, 7, 8])
    accuracy = OwnClasses(y, train_y, indices, offsets).accuracy(right)
    np.testing.assert_allclose(accuracy, [2 / 3 * 1 / 3 + 1 / 3, 0.0, np.nan, 1.0], rtol=1e-12)
    assert mean_of_known(accuracy) == pytest.approx(np.nanmean(accuracy))
    assert np.isnan(mean_of_known(np.array([np.nan])))
