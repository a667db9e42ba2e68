import math

import pytest

import simfl
from simfl.accounts.check import check
from simfl.accounts.figures import plot_claims
from simfl.assembly.assemble import assemble
from simfl.plots import plot_client_epsilon, save
from simfl.scenario import loads

pytestmark = pytest.mark.usefixtures("without_numbers")

TEXT = """
name: figure
data: digits
clients: {{count: {count}}}
topology: complete
algorithm: {{kind: adpsgd, batch_size: 16}}
privacy: {privacy}
stop: {{epochs: 2}}
"""


def scenario(count=4, privacy="{noise_multiplier: 2, epsilon: 3}"):
    return loads(TEXT.format(count=count, privacy=privacy))


def test_each_client_has_one_line_of_spent_epsilon(tmp_path):
    run = simfl.run(scenario(), out=tmp_path)
    ax = plot_client_epsilon(run.folder)
    curves = [line for line in ax.lines if len(line.get_xdata()) > 2]
    assert len(curves) == 4
    assert [line.get_ydata()[-1] for line in curves] == run.client_epsilon["epsilon"].iloc[-4:].tolist()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [f"client {k}" for k in range(4)] + ["budget"]
    assert "δ = 1e-05, one more or less" in ax.get_ylabel()
    assert save(ax, tmp_path / "e.png").stat().st_size > 10_000


def test_many_clients_share_one_color_and_label(tmp_path):
    ax = plot_client_epsilon(simfl.run(scenario(12), out=tmp_path))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["each of 12 clients", "budget"]


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "bars"), [("", 2), (", claim: {epsilon: 1}", 3), (", claim: adp2sgd", 5)])
def test_claimed_and_certified_epsilons_are_bars_side_by_side(claim, bars, tmp_path):
    report = check(assemble(scenario(privacy=f"{{noise_multiplier: 2{claim}}}")))
    ax = plot_claims(report)
    assert len(ax.containers) == bars
    widths = [[bar.get_width() for bar in container] for container in ax.containers]
    own = [list(f.certified.values()) for f in report.findings]
    assert widths[-len(own[0]) :] == [list(column) for column in zip(*own, strict=True)]
    if claim:
        assert math.isnan(widths[0][0]) == math.isnan(report.findings[0].claimed.epsilon)
    assert save(ax, tmp_path / "c.pdf").exists()
