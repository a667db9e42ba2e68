"""Every fault of the noise is detected with enough releases, and the report says if there are too few."""

import numpy as np
import pytest

from simfl.attacks.faults import FAULTS, SHARED, shown
from simfl.attacks.noise import FALSE_ALARMS, NoiseCheck, NoiseLaw
from simfl.privacy.noise import unit_std

#: Faults of draws, which one draw of each client cannot have.
OF_DRAWS = {
    "one noise for all draws",
    "noise reused every 4th draw",
    "one noise with flipped signs",
    "antithetic pairs",
    "one noise rolled by the draw",
    "noise correlated in time",
}
#: Independent Laplace variables have tails much like those of "heavy-tailed noise".
CASES = [
    (sampler, name)
    for sampler in ("gaussian", "laplace_l2", "laplace")
    for name in FAULTS
    if (sampler, name) != ("laplace", "heavy-tailed noise")
]


def judged(law, blank, own, other):
    check = NoiseCheck(law, blank)
    check.hear(0, own)
    check.hear(1, other)
    verdict = check.verdict()
    return verdict.too_small, verdict.other_law, verdict.dependent


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "name"), CASES)
def test_every_fault_is_detected_with_data(sampler, name):
    """Six draws of 300 coordinates, of which examples add much to 100."""
    law, unit = NoiseLaw(sampler, 400), unit_std(sampler, 400)
    for seed in range(3):
        generator = np.random.default_rng(seed)
        broken = unit * FAULTS[name](law.draw(generator, 6, 400) / unit, generator)
        broken[:, :100] += 10 * unit
        assert min(judged(law, 300, broken, law.draw(generator, 2, 400))) < FALSE_ALARMS


def test_noise_of_another_client_is_detected_with_data():
    law, generator = NoiseLaw("gaussian", 400), np.random.default_rng(0)
    own, other = law.draw(generator, 4, 400), law.draw(generator, 4, 400)
    other[2] = own[1]
    own[:, :100] += 10.0
    assert judged(law, 300, own, other)[2] < FALSE_ALARMS


def test_detectable_faults_depend_on_the_heard_releases():
    law = NoiseLaw("gaussian", 1674)
    many = shown(law, 1024, 12, 8)
    assert all(many.values())
    assert len(many) == 16
    one = shown(law, 1024, 1, 0)
    assert {name for name, seen in one.items() if not seen} == {*OF_DRAWS, SHARED}
    assert not shown(law, 1024, 2, 2)["noise reused every 4th draw"]
    few = shown(law, 16, 2, 2)
    assert not few["heavy-tailed noise"]
    assert few["noise off"]
    assert not any(shown(law, 0, 12, 8).values()), "no coordinates without data"
    assert not any(shown(law, 1024, 0, 0).values())
