"""Measure how often an audit blames correct noise, and whether it blames noise that is broken.

    python docs/check_audit.py                         # 200 seeds of a correct mechanism, 10 of each broken one
    python docs/check_audit.py --seeds 20 --broken 1

Every audit is a run of its own on the digits: one client, four releases of all data, z = 2. Leaves with 1 where more
seeds have a chance below 5 % than the level of the tests allows (at a chance of 1e-3), where one raises an alarm, or
where broken noise passes an audit that is decisive.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import math
import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
from scipy import stats

from simfl.attacks.audit import Audit, AuditReport
from simfl.privacy.noise import SAMPLERS, Sampler, gaussian, laplace
from simfl.scenario import loads
from simfl.tape.problem import Noise

SCENARIO = """
name: audited
seed: {seed}
data: {{set: digits, partition: {{kind: iid}}}}
model: {{kind: softmax}}
clients: {{count: {clients}}}
topology: {{kind: complete}}
algorithm: {{kind: sync_sgd, step_size: 0.1, batch_size: {batch_size}}}
privacy: {{mechanism: gaussian, noise_multiplier: 2, clipping_norm: 0.5}}
stop: {{updates: 4}}
"""
#: Examples of each client, which all are in each batch, by the number of clients.
EXAMPLES = {1: 1438, 2: 719}
CHANCES = ("noise_p_value", "law_p_value", "dependence_p_value")
LEVEL = 0.05


def changed(change: Callable[[jax.Array], jax.Array]) -> Sampler:
    """Return the sampler whose noise is change(normal numbers of a draw)."""
    return lambda keys, client, draw, size: change(gaussian(keys, client, draw, size))


#: How many clients an audit needs to see it, and the sampler in the place of Gaussian noise.
BROKEN: dict[str, tuple[int, Sampler]] = {
    "noise off": (1, changed(lambda n: 0.0 * n)),
    "noise halved": (1, changed(lambda n: 0.5 * n)),
    "noise times 0.7": (1, changed(lambda n: 0.7 * n)),
    "noise of +-1": (1, changed(lambda n: jnp.sign(n))),
    "uniform noise": (1, changed(lambda n: math.sqrt(3.0) * jax.scipy.special.erf(n / math.sqrt(2.0)))),
    "Laplace noise": (1, lambda *words: laplace(*words) / math.sqrt(2.0)),
    "one noise for all draws": (1, lambda k, c, d, n: gaussian(k, c, 0 * d, n)),
    "noise reused every 3rd draw": (1, lambda k, c, d, n: gaussian(k, c, jnp.where(d % 3 == 0, 0, d), n)),
    "one noise with flipped signs": (1, lambda k, c, d, n: gaussian(k, c, 0 * d, n) * jnp.where(d % 2, -1.0, 1.0)),
    "antithetic pairs": (1, lambda k, c, d, n: gaussian(k, c, d // 2, n) * jnp.where(d % 2, -1.0, 1.0)),
    "one noise rolled by the draw": (1, lambda k, c, d, n: jnp.roll(gaussian(k, c, 0 * d, n), d)),
    "noise correlated in time": (
        1,
        lambda k, c, d, n: math.sqrt(0.5) * (gaussian(k, c, d, n) + gaussian(k, c, d + 1, n)),
    ),
    "one number for all coordinates": (1, changed(lambda n: jnp.broadcast_to(n[:1], n.shape))),
    "equal neighbors": (1, changed(lambda n: jnp.repeat(n, 2)[: len(n)])),
    "equal blocks": (1, changed(lambda n: jnp.tile(n[:32], len(n) // 32 + 1)[: len(n)])),
    "noise shared by clients": (2, lambda k, c, d, n: gaussian(k, 0 * c, d, n)),
}


def audited(seed: int, clients: int = 1, noise: str | None = None) -> AuditReport:
    """Audit one run, with noise of another sampler in the place of Gaussian noise."""
    text = SCENARIO.format(seed=seed, clients=clients, batch_size=EXAMPLES[clients])
    audit = Audit(loads(text), canaries=EXAMPLES[clients], in_place=True)
    if noise is not None:
        audit.setup = copy.copy(audit.setup)
        audit.setup.problem = dataclasses.replace(audit.setup.problem, noise=Noise(noise))
    return audit.run()


def correct(seeds: int) -> bool:
    """Audit a correct mechanism with many seeds, print how small the chances are, and return whether that is often."""
    reports = [audited(seed) for seed in range(seeds)]
    alarms = sum(not report.passed and not report.refuted for report in reports)
    allowed = int(stats.binom.isf(1e-3, seeds, LEVEL))
    print(f"{seeds} seeds of a correct mechanism, of which {allowed} may have a chance below {100 * LEVEL:g} %")
    below = 0
    for name in CHANCES:
        chances = [getattr(report, name) for report in reports]
        few = sum(chance < LEVEL for chance in chances)
        below += few
        print(f"  {name}: below {100 * LEVEL:g} % in {few}, the smallest {min(chances):.2g}")
    print(f"  any of the three: below {100 * LEVEL:g} % in {below} at most; alarms: {alarms}")
    refuted = sum(report.refuted for report in reports)
    print(f"  refuted by guesses: {refuted}")
    return below <= allowed and refuted <= allowed and not alarms


def broken(seeds: int) -> bool:
    """Audit every broken noise with some seeds, print what blamed it, and return whether something always did."""
    print(f"{seeds} seeds of each broken noise: audits that are decisive, those of them that pass,")
    print("  and audits that blame guesses, size, law, independence")
    good = True
    for name, (clients, sampler) in BROKEN.items():
        SAMPLERS[name] = sampler
        reports = [audited(seed, clients, name) for seed in range(seeds)]
        decisive = sum(report.decisive for report in reports)
        passed = sum(report.passed and report.decisive for report in reports)
        verdicts = ("refuted", "noise_missing", "noise_of_other_law", "noise_dependent")
        blamed = " ".join(f"{sum(getattr(report, verdict) for report in reports):4d}" for verdict in verdicts)
        print(f"  {name:32} {decisive:4d} {passed:4d} {blamed}", flush=True)
        good &= passed == 0
    return good


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200, help="of the correct mechanism")
    parser.add_argument("--broken", type=int, default=10, help="seeds of each broken one")
    given = parser.parse_args()
    return 0 if all([correct(given.seeds), broken(given.broken)]) else 1


if __name__ == "__main__":
    sys.exit(main())
