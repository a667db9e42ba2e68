"""Scenarios of users drawn from the schema: secure sums, noise of a server, participation, several clients of a user.

World and algorithm are those of `tests.fuzz`. Most scenarios are valid. Some break a rule of the schema, to see that a
line says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simfl.algorithms import ALGORITHMS
from tests.fuzz import Drawer

#: Algorithms whose servers sum updates.
SUMMING = ("fedavg", "fedprox", "fedbuff", "fedasync")
#: Share of scenarios in which rules of the schema may be broken.
BROKEN = 0.25


class UserDrawer(Drawer):
    """Draws a scenario of users."""

    def scenario(self, kind: str | None = None) -> dict[str, Any]:
        """Draw a whole scenario."""
        self._random = np.random.default_rng([self._seed, 2])
        broken = self.chance(BROKEN)
        content = super().scenario(kind or self.one(*(ALGORITHMS if broken and self.chance(0.3) else SUMMING)))
        self._random = np.random.default_rng([self._seed, 3])
        algorithm, clients = content["algorithm"], content["clients"]
        count = clients["count"]
        if algorithm["kind"] in ("fedavg", "fedprox"):
            algorithm["weighting"] = "data" if broken and self.chance(0.2) else "uniform"
        algorithm |= self.maybe(0.35, secure_sum=lambda: self.secure_sum(count))
        if self.chance(0.9):
            content["privacy"] = self.privacy(count)
        if self.chance(0.3):
            owners = [self.one(*range(max(1, count // 2))) for _ in range(count)]
            clients["users"] = self.one(max(1, count // 2), count, owners)
        if not broken:
            self.mend(content)
        return content

    def secure_sum(self, count: int) -> dict[str, Any]:
        """Draw a protocol."""
        return {
            **self.one(
                {"kind": "bonawitz"}, {"kind": "secagg_plus", "neighbors": self.one(2, 4)}, {"kind": "lightsecagg"}
            ),
            "threshold": self.one(None, 1, 2, max(1, count // 2)),
            "bits": self.one(12, 16, 20, 32),
            "dropout": self.one(0.0, 0.05, 0.3),
            **self.maybe(0.3, timeout=lambda: self.between(0.01, 0.5), mask_rate="1 MB/s"),
        }  # fmt: skip

    def privacy(self, count: int) -> dict[str, Any]:
        """Draw who is protected, by which noise, and how often a user may take part."""
        rule = {
            "min_separation": self.one(1, 1, 2, 3),
            **self.maybe(0.3, at_most=lambda: self.one(1, 4, 30)),
            "early": self.one("wait", "send_away"),
        }
        noises = (
            {"correlated": "tree"},
            {"correlated": "tree", "estimate": "nodes", "restart_every": self.one(1, 3)},
            {"correlated": "square_root", "bands": self.one(1, 2)},
        )
        return {
            "unit": "user", "clipping_norm": 0.5, "delta": 1e-3, "noise_multiplier": self.one(0.0, 0.5, 2.0, 2.0, 8.0),
            **self.maybe(
                0.25, epsilon=lambda: self.one(0.5, 8.0), neighbors="replace_one", amplification=False,
                cohorts="poisson",
            ),
            **self.maybe(0.35, where="secure_sum", releases=lambda: self.one(1, 5, 40)),
            **self.maybe(0.15, mechanism="discrete_gaussian", colluding=lambda: self.one(1, 2)),
            **self.maybe(0.55, participation=rule),
            **self.maybe(0.35, noise=lambda: self.one(*noises)),
        }  # fmt: skip

    def mend(self, content: dict[str, Any]) -> None:
        """Remove what the schema rejects in most of the products."""
        algorithm, clients, privacy = content["algorithm"], content["clients"], content.get("privacy")
        secure, kind = algorithm.get("secure_sum"), algorithm["kind"]
        if secure is not None:
            clients.pop("users", None)
            if kind == "fedasync":
                algorithm.pop("secure_sum")
            if kind == "fedbuff":
                secure["kind"] = "lightsecagg"
                secure.pop("neighbors", None)
                algorithm |= {"after_update": "wait", "staleness_exponent": 0, "buffer_size": 1}
                secure["threshold"] = 1
                algorithm.pop("staleness_bound", None)
        if privacy is None:
            clients.pop("users", None)
            return
        if privacy.get("where") == "secure_sum" or privacy.get("mechanism") == "discrete_gaussian":
            privacy.pop("noise", None)
            if algorithm.get("secure_sum") is None:
                privacy.pop("where", None)
                privacy.pop("mechanism", None)
        if privacy.get("mechanism") == "discrete_gaussian":
            privacy["where"], privacy["noise_multiplier"] = "secure_sum", 2.0
            algorithm["secure_sum"]["bits"] = 16
        if privacy.get("where") != "secure_sum" or algorithm["secure_sum"]["threshold"] in (None, 1, 2):
            privacy.pop("colluding", None)
        if kind not in ("fedavg", "fedprox") or algorithm.get("fraction", 1.0) == 1.0 or "noise" in privacy:
            privacy.pop("cohorts", None)
        if "cohorts" in privacy:
            privacy.pop("epsilon", None)
        if "noise" in privacy:
            clients.pop("users", None)
            privacy.setdefault("releases", 40)
            privacy.setdefault("participation", {"min_separation": 1})
            privacy["noise_multiplier"] = 2.0
            if "bands" in privacy["noise"]:
                privacy["noise"]["bands"] = 1
        if "participation" in privacy:
            privacy["participation"]["min_separation"] = 1
            clients.pop("users", None)
            if algorithm.get("buffer_size", 1) > clients["count"]:
                algorithm["buffer_size"] = 1


def drawn(seed: int, folder: Path) -> dict[str, Any]:
    """Return the scenario of a seed, as a mapping; see `tests.fuzz.drawn`."""
    return UserDrawer(seed, folder).scenario()
