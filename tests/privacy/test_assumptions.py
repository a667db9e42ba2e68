"""What accounts take for granted."""

import numpy as np
import pytest

from simfl.privacy.adaptive import AdaptiveNorm
from simfl.privacy.assumptions import assumptions, assumptions_of_view
from simfl.privacy.cohorts import CohortLedger, CohortPlan
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.terms import OF_HOLDERS, Terms

NAMES = [
    "unit", "neighbors", "draws", "availability", "numbers", "holders", "trust", "floating point", "generator",
]  # fmt: skip


def assumed(sampling="poisson", made=10, **terms):
    ledger = Ledger(Terms("gaussian", 1e-5, **terms), np.array([20, 30]), 5, sampling, [1.0, 1.0])
    return assumptions(ledger, Releases([made, made]))


def of_users(plan, cohorts=10, **terms):
    ledger = CohortLedger(Terms("gaussian_cohort", 1e-5, **terms), np.array([20, 30]), 5, "shuffle", [1.0, 1.0], plan)
    return assumptions(ledger, Releases([3, 3], cohorts=cohorts))


@pytest.mark.parametrize(("words", "name", "text"), [
    (assumed(), "draws", "each client draws its mini-batches (poisson), and the adversary does not know them"),
    (assumed(amplification=False), "draws", "none is assumed to be secret: the adversary may know the order"),
    (assumed("shuffle", neighbors="replace_one"), "draws", "the adversary may know the order of examples"),
    (assumed("shuffle", neighbors="replace_one"), "neighbors", "one example replaced; all else"),
    (assumed(unit="client"), "draws", "all data of a client are in each of its releases"),
    (assumed(unit="client"), "neighbors", "one client adds nothing"),
    (assumed(uncounted=("this", "that")), "holders", "each example is at one client; not counted: this; nor that"),
    (assumed(uncounted=(OF_HOLDERS,)), "holders", f"not counted: {OF_HOLDERS}"),
    (assumed(unit="client", uncounted=("this",)), "holders", "no other client has the same data; not counted: this"),
    (assumed(), "floating point", "may tell more"),
    (assumed(view="global_hidden"), "trust", "the senders of updates stay hidden"),
    (of_users(CohortPlan(1.0)), "draws", "the adversary may know who is in which sum"),
    (of_users(CohortPlan(1.0)), "trust", "the server sees updates without noise"),
    (of_users(CohortPlan(1.0)), "numbers", "the number of enrolled users, 2,"),
    (of_users(CohortPlan(1.0, adaptive=AdaptiveNorm(0.1, 0.5, 0.2, 2.0, 9.0))), "numbers",
     "are public; so are clipping norms"),
    (of_users(CohortPlan(1.0, 0.5, 10, None)), "draws", "neither from times nor from names"),
    (of_users(CohortPlan(1.0, 0.5, 10, None)), "availability", "all enrolled users are online throughout"),
    (of_users(CohortPlan(1.0, 0.5, 11, None)), "availability", "do not depend on what the data say"),
])  # fmt: skip
def test_an_account_says_what_it_assumes(words, name, text):
    assert list(words) == NAMES
    assert text in words[name]


def test_an_account_names_code_that_it_trusts_and_the_statement_says_so():
    ledger = Ledger(Terms("gaussian", 1e-5, trusts="f clips"), np.array([20]), 5, "poisson", [1.0])
    words = assumptions(ledger, Releases([1]))
    assert words["own code"] == "f clips"
    assert ledger.statement_of(Releases([1])).endswith("; assuming that f clips")
    lost = Releases([1], refusal="it was lost")
    assert assumptions(ledger, lost) == {}
    assert ledger.statement_of(lost) == "not certified: it was lost"
    users = CohortLedger(Terms("g", 1e-5, trusts="f clips"), np.array([9]), 5, "shuffle", [1.0], CohortPlan(1.0))
    assert users.statement_of(Releases([1], cohorts=1)).endswith("; assuming that f clips")


def test_observers_of_shared_data_learn_what_else_is_not_counted():
    terms = Terms("gaussian", 1e-5, uncounted=(OF_HOLDERS, "what a model released"))
    ledger = Ledger(terms, np.array([20, 30]), 5, "poisson", [1.0, 1.0])
    words = assumptions_of_view(ledger, Releases([3, 3]), shared=True)
    assert words["holders"] == "counted: all clients that hold an example; not counted: what a model released"


def test_without_an_epsilon_nothing_is_assumed():
    assert assumed("with_replacement") == {}
    ledger = Ledger(Terms("gaussian", 1e-5), np.array([20]), 5, "poisson", [1.0])
    assert assumptions(ledger, Releases([1], refusal="it was lost")) == {}


def test_an_observer_of_a_network_is_assumed_to_follow_the_algorithm():
    ledger = Ledger(Terms("gaussian", 1e-5), np.array([20, 30]), 5, "poisson", [1.0, 1.0])
    words = assumptions_of_view(ledger, Releases([3, 3]), shared=True, sums=True)
    assert list(words) == [*NAMES, "observer"]
    assert words["observer"].startswith("of messages to the same node it sees the sum alone")
    assert words["holders"] == "counted: all clients that hold an example"
    assert assumptions_of_view(ledger, Releases([1, 1], refusal="it was lost"), shared=False) == {}
