"""Measure how often an audit of users blames a correct server, and whether it blames broken ones.

    python docs/check_user_audit.py                # 200 seeds of each server
    python docs/check_user_audit.py --seeds 20 --only "noise halved"

Leaves with 1 where guesses refute more correct servers than their level allows (at a chance of 1e-3), where another
verdict blames one, or where a broken server passes. The servers are in tests/attacks/broken_servers.py.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.attacks.broken_servers import CORRECT, SERVERS, report_of

LEVEL = 0.05


def main() -> int:
    """Audit every server, and print what blamed it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", action="append", help="a server, by its name; may be repeated")
    given = parser.parse_args()
    seeds = given.seeds
    allowed = int(stats.binom.isf(1e-3, seeds, LEVEL))
    print(f"{seeds} seeds each; guesses may refute {allowed} of a correct server")
    print("audits that pass, and that blame guesses, size, law, dependence, draws, count, participation")
    good = True
    for name in given.only or SERVERS:
        reports = []
        for seed in range(seeds):
            if seed % 20 == 0:
                gc.collect()  # runs are cycles of objects, which the collector finds late: 4 MB each
            reports.append(report_of(name, seed))
        passed = sum(report.passed for report in reports)
        verdicts = ("refuted", "noise_missing", "noise_of_other_law", "noise_dependent", "draws_wrong")
        blamed = [sum(getattr(report, verdict) for report in reports) for verdict in verdicts]
        blamed += [sum(not one.complete for one in reports), sum(one.participation_broken for one in reports)]
        print(f"  {name:44} {passed:4d} " + " ".join(f"{count:4d}" for count in blamed), flush=True)
        good &= (blamed[0] <= allowed and not any(blamed[1:])) if name in CORRECT else passed == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
