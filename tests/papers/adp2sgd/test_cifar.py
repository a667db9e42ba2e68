"""The study on CIFAR-10: the paper's ratios at a small scale, and how long the full scale takes."""

import pytest

from simfl.papers.adp2sgd import cifar
from simfl.papers.adp2sgd.study import LARGE, METHODS, SIGMA, SLOW
from simfl.scenario import load
from tests.papers.made_up import SCENARIOS

#: Of ResNet-18 in the paper's Table 2: seconds of a batch of 256, and of a message of 42.63 MB at 100 Gbit/s.
BATCH_S, MESSAGE_S = 256 * 5.56 * 3600 / 300 / 50_000, 8 * 42.63e6 / 100e9


def test_noise_and_times_are_the_papers_for_a_batch():
    experiments = cifar.experiments(quick=False)
    assert [own.cell for own in experiments] == [(case, kind) for case in (*SIGMA, *SLOW, LARGE) for kind in METHODS]
    for own in experiments:
        scenario, large = load(SCENARIOS / own.base, own.overrides), own.cell[0] == LARGE
        batch = scenario.algorithm.batch_size
        noise = 0.0 if scenario.privacy is None else scenario.privacy.noise_std
        paper = SIGMA.get(own.cell[0], 1.0 if large else 2.0)
        assert noise / batch == pytest.approx(paper / (512 if large else 256))
        assert scenario.clients.seconds_per_example * batch == pytest.approx((1 + large) * BATCH_S, rel=0.005)
        assert 4 * 19_858 / scenario.links.bandwidth == pytest.approx(MESSAGE_S, rel=0.005)
        assert bool(scenario.slowdowns) == (own.cell[0] in SLOW)


def test_the_full_scale_is_300_epochs_of_50_000_images_at_the_measured_rate(monkeypatch):
    monkeypatch.setattr(
        cifar, "rate_of", lambda kind, options: {"resnet": 100.0, "vgg": 50.0, "mobilenet": 400.0}[kind]
    )
    lines = list(cifar.scale())
    assert [line.partition(":")[0] for line in lines] == ["ResNet-18", "VGG-19", "MobileNet"]
    assert [line.rpartition("takes ")[2] for line in lines] == ["41.7 hours", "83.3 hours", "10.4 hours"]


@pytest.mark.slow
def test_the_rate_is_measured_on_the_network():
    assert cifar.rate_of("resnet", {"channels": (8,)}) > cifar.rate_of("resnet", {"channels": (32,)}) > 0


def test_the_option_selects_the_study(simfl_, tmp_path, monkeypatch):
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    for arguments in (["adp2sgd", "--cifar"], ["--cifar"]):
        code, out, _ = simfl_("reproduce", *arguments, "--quick", "--dry-run")
        assert (code, out) == (0, "adp2sgd-cifar: 4 runs, about 12 minutes on two cores\n")
    err = simfl_.refused("reproduce", "mapa", "--cifar")
    assert "found 'mapa-cifar'" in err
