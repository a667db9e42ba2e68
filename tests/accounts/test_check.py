"""Claims against accounts, from a plan and from the records of a run."""

import math

import numpy as np
import pytest

from simfl import run
from simfl.accounts.check import check, check_run, recorded
from simfl.assembly.assemble import assemble
from simfl.errors import ScenarioError
from simfl.papers.adp2sgd.theory import theorem2
from simfl.papers.proactive_dp.theorems import claimed_epsilon
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.shuffled import Passes
from simfl.privacy.terms import Terms
from simfl.records import Manifest, Run, RunFolder
from simfl.scenario import loads

pytestmark = pytest.mark.usefixtures("without_numbers")


def scenario(privacy, *, stop="{epochs: 3}", count=4, batch_size=4, data="digits", **more):
    text = f"""
name: claim
data: {data}
clients: {{count: {count}}}
topology: complete
algorithm: {{kind: adpsgd, exchange: atomic, batch_size: {batch_size}}}
privacy: {privacy}
stop: {stop}
"""
    return loads(text + "".join(f"{key}: {value}\n" for key, value in more.items()))


def checked(privacy, **options):
    return check(assemble(scenario(privacy, **options)))


def test_a_stated_claim_is_compared_with_both_views():
    result = checked("{noise_multiplier: 4, claim: {epsilon: 5.0, source: a report}}")
    assert result.planned
    assert not result.understated
    finding = result.findings[0]
    assert [sorted(f.clients) for f in result.findings] == [[0, 1, 2, 3]], "shares of 359 and 360 examples are alike"
    size = assemble(scenario("{noise_multiplier: 4}")).training.sizes[finding.clients[0]]
    local = epsilon_of([(Release(4.0, 4 / size), finding.releases[1])], 1e-5)
    assert finding.certified["local_transcript", "add_or_remove"] == local == finding.account
    assert finding.ratio == 5.0 / local > 1
    assert finding.certified["global_hidden", "add_or_remove"] < local


def test_a_claim_below_the_account_is_understated():
    result = checked("{noise_multiplier: 1, claim: {epsilon: 0.5, delta: 1.0e-6}}")
    assert result.understated
    assert all(finding.understated for finding in result.findings)
    assert result.delta == 1e-6
    unclipped = checked("{mechanism: gaussian_unclipped, noise_std: 3, claim: {epsilon: 2}}")
    assert unclipped.understated, "without a certificate every claim is too small"
    assert math.isnan(unclipped.findings[0].account)


def test_without_a_claim_only_the_account_is_reported():
    result = checked("{noise_multiplier: 1}")
    assert not result.understated
    assert result.findings[0].claimed is None
    assert math.isnan(result.findings[0].ratio)


def test_the_claim_of_theorem_2_is_inverted():
    """The claimed epsilon is the one for which Theorem 2 requires exactly this noise."""
    setting = {"num_workers": 16, "examples": 3125, "batch_size": 256, "steps": 58594}
    level = theorem2(10.0, 1e-5, **setting).noise_multiplier
    data = "{set: quadratic, samples: 50000}"
    privacy = f"{{noise_multiplier: {level!r}, neighbors: replace_one, claim: adp2sgd}}"
    result = checked(privacy, data=data, count=16, batch_size=256, stop="{updates: 58594}", model="quadratic")
    (finding,) = result.findings
    assert finding.claimed.epsilon == pytest.approx(10.0, rel=1e-3)
    assert finding.claimed.neighbors == "replace_one"
    assert finding.account == finding.certified["local_transcript", "replace_one"] > 11
    assert finding.understated, "neighbors see the sender, and there are many of them"


def test_a_violated_condition_of_theorem_2_is_named():
    result = checked("{noise_multiplier: 0.2, claim: adp2sgd}")
    assert all(math.isnan(finding.claimed.epsilon) for finding in result.findings)
    assert result.findings[0].claimed.objection
    assert not result.understated


def test_proactive_dp_claims_follow_each_clients_rounds():
    result = checked("{noise_multiplier: 12, delta: 1.0e-4, claim: proactive_dp}", batch_size=2)
    for finding in result.findings:
        n = int(assemble(scenario("{noise_multiplier: 12}")).training.sizes[finding.clients[0]])
        expected = claimed_epsilon([(2, finding.releases[1])], n, sigma=12.0, delta=1e-4)
        assert finding.claimed.epsilon == pytest.approx(expected)
        assert finding.ratio > 1
    refused = checked("{noise_multiplier: 12, claim: proactive_dp}", batch_size=200)
    assert "condition (32)" in refused.findings[0].claimed.objection


def test_the_epsilon_of_one_release_is_less_than_that_of_all():
    result = checked("{mechanism: laplace_l2, epsilon_per_release: 0.5, claim: per_release}", batch_size=100)
    assert result.understated
    assert result.findings[0].claimed.epsilon == 0.5
    assert math.isnan(checked("{mechanism: laplace_l2_radius_only, claim: per_release}").findings[0].account)


@pytest.mark.parametrize(("privacy", "options", "message"), [
    ("null", {}, "privacy: expected a privacy section to check"),
    ("{noise_multiplier: 1}", {"stop": "{time: 1 s}"}, "stop: expected epochs or updates"),
    ("{noise_multiplier: 1, claim: per_release}", {}, "found per_release, which is the claim of Laplace noise"),
    ("{mechanism: laplace_l2, claim: adp2sgd}", {}, "found adp2sgd, which is about Gaussian noise"),
    ("{mechanism: gaussian_unclipped, claim: proactive_dp}", {}, "found proactive_dp, which is about Gaussian noise"),
])  # fmt: skip
def test_scenarios_that_cannot_be_checked_are_refused(privacy, options, message):
    with pytest.raises(ScenarioError, match=message):
        checked(privacy, **options)


@pytest.mark.slow
def test_a_run_is_checked_by_its_recorded_releases(tmp_path):
    asked = scenario(
        "{noise_multiplier: 2, epsilon: [0.5, 9, 9, 9], claim: {epsilon: 3}}",
        slowdowns="[{clients: [2], factor: 4}]",
        stop="{epochs: 6}",
    )
    made = run(asked, out=tmp_path)
    setup = assemble(asked)
    releases = recorded(setup.ledger, made)
    assert releases == Releases(made.clients["updates"].tolist())
    result = check(setup, made)
    assert not result.planned
    for finding in result.findings:
        spent = made.clients["epsilon"].iloc[list(finding.clients)]
        assert finding.account == spent.max() <= spent.min() / 0.95
    assert len(result.findings) == 3, "one with a small budget, one that is slow, two alike"
    assert setup.kind.planned(setup).counts == [setup.training.allowances[0], 540, 540, 540]
    table = made.client_epsilon
    assert (table["epsilon"] >= 0).all()
    assert table["epsilon"].iloc[-4:].tolist() == made.clients["epsilon"].tolist(), "the last epsilon is the final one"
    assert table.groupby("client")["epsilon"].apply(lambda spent: spent.is_monotonic_increasing).all()
    shown = made.metrics["epsilon"]
    assert shown.is_monotonic_increasing
    assert shown.iloc[-1] == made.clients["epsilon"].max()
    bounds = table.groupby("time_s")["epsilon"].max().clip(upper=shown.iloc[-1])
    assert bounds.tolist() == shown.tolist()
    assert table["releases"].iloc[-4:].tolist() == releases.counts


def test_a_run_without_noise_has_an_infinite_epsilon(tmp_path):
    made = run(scenario("{noise_multiplier: 0}", stop="{updates: 8}"), out=tmp_path)
    found = check_run(made).findings
    assert {one.certified["local_transcript", "add_or_remove"] for one in found} == {math.inf}


def test_releases_of_other_kinds_are_read_back(tmp_path):
    made = run(scenario("{noise_multiplier: 2}"), out=tmp_path)
    ledger = assemble(scenario("{noise_multiplier: 2}")).ledger
    extra = Releases([3, 0, 1, 0], {0: {(8, 2.0): 2}, 1: {(4, 1.0): 5}})
    made.__dict__["releases"] = _frame(ledger.kinds(extra))
    assert recorded(ledger, made) == extra


def _frame(rows):
    import pandas as pd

    return pd.DataFrame(rows, columns=["client", "batch_size", "sampling_rate", "level", "count"])


def test_uses_of_shuffled_examples_are_read_back(tmp_path):
    """Lost batches and rounds larger than the data: the run's table has the uses; without it nothing is certified."""
    passes = [Passes(20), Passes(20)]
    for draw in range(0, 20, 2):
        passes[0].add(10 * draw, 10)
    for start in (0, 50):
        passes[1].add(start, 50)
    made = Releases([10, 0], {1: {(50, 4.0): 2}}, passes=passes)
    terms = Terms("gaussian", 1e-5, neighbors="replace_one")
    ledger = Ledger(terms, np.array([20, 20]), 10, "shuffle", [4.0, 4.0])
    folder = RunFolder(tmp_path)
    for name, rows in (("releases", ledger.kinds(made)), ("uses", ledger.copies(made))):
        with folder.table(name) as table:
            table.extend(rows)
    folder.write_manifest(Manifest("done", 1, "cpu", extra={"privacy": ledger.statement}))
    opened = Run(tmp_path)
    read_releases = recorded(ledger, opened)
    assert (read_releases.counts, read_releases.others) == (made.counts, made.others)
    assert [uses.cost for uses in read_releases.passes] == [10, 3**2 + 2**2]
    assert ledger.final_epsilon(read_releases).tolist() == ledger.final_epsilon(made).tolist()
    folder.table_path("uses").unlink()
    assert np.isnan(ledger.final_epsilon(recorded(ledger, opened))).all()
