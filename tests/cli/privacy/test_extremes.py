"""Extreme arguments of the calculators: a right number or one line that names the condition, never a traceback."""

import json
import math
import re
import time

import pytest

from simfl.papers.adp2sgd.theory import theorem2
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.checks import rounded_down, rounded_up
from tests.conftest import made_up_strategy

USUAL = {
    "account": "-z 1 --steps 100 --sampling-rate 0.01",
    "calibrate": "--epsilon 1 --steps 10",
    "strategies": "--epsilon 1 --releases 10",
    "adp2sgd": "--epsilon 10 --clients 16 --examples 3125 --batch-size 256 --steps 58594 --accountant renyi",
    "without-replacement": "--epsilon 1 --batch-size 1 --examples 100 --dimension 3",
    "proactive-dp": "--examples 10000 --epochs 5 --epsilon 1 --accountant renyi",
    "async-fl": "--examples 10000 --epsilon 1 --noise-multiplier 8 --epochs 2.5 --first-size 16 --accountant renyi",
    "mapa": "",
    "sizes": "7 --rounds 20 --epsilon 1 --examples 100000",
}
EXTREME = {
    "account": (
        "-z 0.1;-z 0.01 --sampling-rate 1;-z 1e-9;-z 1e-200;-z 1e200;-z inf;-z nan;--steps 1000000000;"
        "--steps 10000000 -z 50;"
        "--steps 10000000000000000000000;--steps 0;--sampling-rate 1e-300;--sampling-rate nan;--delta 1e-300;"
        "--delta 0.999999;"
        "--epsilon 1e-7 --steps 1000000000;--epsilon 1 -z 0.05 --steps 1000000000;--epsilon 1e300;--epsilon nan;"
        "-z 0.1 --neighbors replace_one --sampling without_replacement"
    ),
    "calibrate": (
        "--epsilon 1e-7;--epsilon 1e-300;--epsilon 1e300 --sampling-rate 0.1;--epsilon 1e5;--epsilon nan;--epsilon inf;"
        "--epsilon -1;--steps 1000000000;--steps 1000000000 --sampling-rate 0.001 --accountant renyi;"
        "--steps 10000000000000000000000000;--steps 0;--sampling-rate 0;--sampling-rate 1e-300 --accountant renyi;"
        "--sampling-rate nan;"
        "--delta 1e-300;--delta 0.99999;--clipping-norm nan;--clipping-norm 1e308;--sampling one_pass;--epsilon 250"
    ),
    "strategies": (
        "--epsilon 1e-7;--epsilon 1e-300;--epsilon 1e300;--epsilon nan;--epsilon -1;--releases 0;--releases 1;"
        "--releases 100000000;--min-separation 0;--min-separation 1000000000;--at-most 0;--at-most 1000000000;"
        "--fraction 0;--fraction 1;--fraction nan;--fraction 1e-6;--fraction 1e-300;--bands 2;--bands 0;--buffers 9;"
        "--delta 1e-300;--delta nan;--min-separation 3 --releases 2"
    ),
    "adp2sgd": (
        "--epsilon 1e300;--epsilon 1e-300;--epsilon nan;--clients 0;--examples 1 --batch-size 1;--batch-size 0;"
        "--steps 1000000000000000000000000;--steps 0;--delta 1e-300;--delta nan;--dimension 1000000000000;"
        "--dimension 9 --clients 17;--dimension 9 --smoothness 1e-300;--dimension 9 --smoothness 1e300;"
        "--dimension 9 --staleness nan;--dimension 9 --staleness 1e300;--dimension 9 --initial-gap -1;"
        "--gradient-bound 1e-320;--clients 1000000000 --examples 1000000000 --batch-size 1;--sampling-variance inf"
    ),
    "without-replacement": (
        "--epsilon 250 --dimension 2;--epsilon 1e-300;--epsilon 1e300;--epsilon nan;--batch-size 0;--batch-size 1000;"
        "--examples 1;--examples 1000000000000000000000000000000000000000;--delta 1e-300;--visits 1000000000000;"
        "--l2 1e300;--l2 1e-300;--l2 nan;--radius nan;--radius -1;--gradient-bound -1;--gradient-bound nan;"
        "--step-size 1e-320;--global-share nan;--models 1000000000000 --copies 10000000000;--clients 0"
    ),
    "proactive-dp": (
        "--epsilon 1e-300;--epsilon 1e300;--epsilon nan;--epochs 1e300;--epochs nan;--epochs 1e-300;--examples 2;"
        "--examples 1;--examples 1000000000000;--delta 1e-300;--delta 0.99999;--noise-multiplier 1.5;"
        "--noise-multiplier 1.4142135623730951;"
        "--noise-multiplier 1e300;--noise-multiplier nan;--noise-multiplier 15 --done 31x100000000000;"
        "--noise-multiplier 15 --done 31x1612;--noise-multiplier 15 --done 0x0;"
        "--epochs 50000000 --gamma one-shot;--noise-multiplier 15 --done xx"
    ),
    "async-fl": (
        "--r0 1e-9;--r0 nan;--r0 0.5;--r0 x;--power 50;--power 1e-9;--power nan;--power 1e300;--epsilon 1e-300;"
        "--epsilon 1e300;--noise-multiplier 1e-3;--noise-multiplier 1e300;--epochs 1e300;--epochs 1e-300;"
        "--first-size 9999;"
        "--excess 1e300;--delta 1e-300;--gate 1000000;--gate -1;--clients 0 --gate 2"
    ),
    "mapa": (
        "--epsilon 1e-300;--epsilon 1e300;--epsilon 250 --dimension 2;--epsilon nan;--steps 1000000000000000;"
        "--theta 1e-300;--theta 1;--dimension 1000000000000;--sampling-std 1e-300;--sampling-std nan;"
        "--smoothness 1e300;--smoothness 1e-300;--staleness -1;--staleness 1e300;--initial-gap 1e300;--clients 0;"
        "--examples 1;--initial-clip nan;--failure-probability 1e-300;--radius nan;--delta 1e-300"
    ),
    "sizes": (
        "--rounds 0;--rounds -1;--rounds 1000001;--rounds 10 --gradients 10;--epsilon 1e-300;--epsilon 1e300;"
        "--epsilon nan;--epsilon inf;--epsilon -1;--examples 1;--examples 7;--examples 8;--examples 1000000000000000;"
        "--delta 0;--delta 1;--delta 1e-300;--delta nan;--r0 nan;--r0 1e-9;--r0 1e300;--as-printed --epsilon 1e-5"
    ),
}


#: Words with which the optimizer of strategies gets an extreme task; beside others its coefficients are made up.
OPTIMIZED = re.compile(r"buffers|--releases 1$|--at-most 1000000000")


@pytest.mark.slow(but=["without-replacement"])
@pytest.mark.parametrize("command", EXTREME)
def test_extreme_arguments_give_a_number_or_one_line(simfl_, command, monkeypatch):
    cases = EXTREME[command].split(";")
    assert len(cases) >= 20
    for words in cases:
        begin = time.process_time()
        with monkeypatch.context() as patched:
            if not OPTIMIZED.search(words):
                patched.setattr("simfl.privacy.strategies.optimized", made_up_strategy)
            code, out, err = simfl_("privacy", command, *f"{USUAL[command]} {words}".split(), "--json")
        assert time.process_time() - begin < 60, words  # 5 to 12 s for strategies, as others use the machine
        if code == 0:
            assert err == ""
            assert json.loads(out)["result"], words
        else:
            assert (code, out, err.count("\n")) == (2, "", 1), words
            assert re.search("expected|condition|take|use", err), err


PLAN = "proactive-dp --examples 10000 --noise-multiplier 5 --epochs 5"
#: What commands refuse before they call a theorem; tests of the theorems have all other lines.
REFUSED = {
    "account -z 1 --steps 9 --sampling one_pass": "accounting: sampling one_pass has no epsilon under neighbors:",
    "account -z 1 --steps -1": "privacy account: releases: expected an integer >= 0, found -1",
    "calibrate --epsilon 1 --steps 1 --clipping-norm 0": "privacy calibrate: clipping_norm: expected a finite number",
    "adp2sgd --clients 16 --examples 3125 --epsilon 10 --batch-size 1": "privacy adp2sgd: expected either --steps",
    f"adp2sgd {USUAL['adp2sgd']} --epochs 2": "privacy adp2sgd: expected either --steps or --epochs",
    f"async-fl {USUAL['async-fl']} --r0 e": "privacy async-fl: --r0: expected sigma, 1/e or a number, found 'e'",
    f"async-fl {USUAL['async-fl']} --gate 5000": "privacy async-fl: gate: expected an integer below the 1047 rounds",
    f"async-fl {USUAL['async-fl']} --gate 1 --clients 0": "privacy async-fl: clients: expected an integer >= 1",
    "sizes x --rounds 3": "scenario: algorithm.sizes: expected constant, polynomial",
    "sizes 7": "privacy sizes: expected either --rounds or --gradients",
    "sizes 7 --rounds 3 --epsilon 1": "privacy sizes: expected --epsilon and --examples together",
    "sizes 7 --gradients 1e300": "privacy sizes: gradients: expected at most 7,000,000, those of 1,000,000 rounds",
    "mapa --examples 3": "privacy mapa: examples: expected an integer >= batch = 12, found 3",
    "mapa --initial-clip -1": "privacy mapa: sensitivity: expected a finite number > 0, found -0.166667",
    "proactive-dp --examples 10000 --epsilon 1": "privacy proactive-dp: expected either --epochs or --gradients",
    f"{PLAN} --gradients 5": "privacy proactive-dp: expected either --epochs or --gradients",
    f"{PLAN} --done 3-4": "privacy proactive-dp: --done: expected SIZExROUNDS, for example 31x1612, found '3-4'",
    f"{PLAN} --done 3x0": "privacy proactive-dp: schedule: expected batches of 1 to 9999",
    f"{PLAN} --epsilon 1 --gamma one-shot": "privacy proactive-dp: --gamma one-shot is for a fresh",
    f"without-replacement {USUAL['without-replacement']} --models 0": "privacy without-replacement: models: expected",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_wrong_argument_of_a_command_is_one_line(simfl_, words):
    assert simfl_.refused(f"privacy {words}").startswith(REFUSED[words])


def test_small_rates_need_a_small_mu():
    """A thousand workers with a hundred thousand examples each satisfy Theorem 2 with a mu of 1e-11."""
    theorem = theorem2(2.0, 1e-5, num_workers=1000, examples=100_000, batch_size=10, steps=1000)
    assert theorem.mu < 1e-9
    assert theorem.zeta**2 >= 1.5 * (1 - 1e-9)
    assert theorem.alpha <= theorem.largest_alpha


def test_the_advice_of_an_error_is_accepted(simfl_):
    words = USUAL["adp2sgd"].split()[2:]
    err = simfl_.refused("privacy", "adp2sgd", "--epsilon", "1", *words)
    advised = re.search(r"at least epsilon = (\S+);", err)[1]
    assert simfl_("privacy", "adp2sgd", "--epsilon", advised, *words)[0] == 0


@pytest.mark.parametrize("value", [math.pi, 1e-9 / 3, 2.0, 123456789.0, 1.00000001])
def test_rounding_is_conservative(value):
    assert float(rounded_down(value)) <= value <= float(rounded_up(value))
    assert float(rounded_up(value)) <= value * 1.001
    assert rounded_up(math.inf) == "inf"


def test_a_bound_without_precision_is_replaced_by_the_other(simfl_):
    words = ("privacy", "account", "-z", 1, "--steps", 10**9, "--sampling-rate", 0.01)
    out = simfl_(*words)[1]
    epsilon = epsilon_of([(Release(1.0, 0.01), 10**9)], 1e-5, accountant="renyi")
    assert re.search(rf"epsilon, loss distributions +{epsilon:.6g} +certified: by Renyi divergence", out)
    assert "nothing protects" not in out
