"""Scenarios of users drawn from the schema: secure sums, noise of a server, participation, several clients of a user.

World and algorithm are those of `tests.fuzz`. Most scenarios are valid. Some break a rule of the schema, to see that a
line says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

    def scenario(self, kind: str | None = None, counts: Sequence[int] = (4, 6, 9, 14)) -> dict[str, Any]:
        """Draw a whole scenario."""
        self._random = np.random.default_rng([self._seed, 2])
        broken = self.chance(BROKEN)
        content = super().scenario(kind or self.one(*(ALGORITHMS if broken and self.chance(0.3) else SUMMING)), counts)
        self._random = np.random.default_rng([self._seed, 3])
        algorithm, clients = content["algorithm"], content["clients"]
        count = clients["count"]
        if algorithm["kind"] in ("fedavg", "fedprox"):
            algorithm["weighting"] = "data" if broken and self.chance(0.2) else "uniform"
            algorithm["fraction"] = self.one(0.3, 0.5, 1.0)
        if algorithm["kind"] == "fedbuff":
            algorithm["buffer_size"] = self.one(1, 2, max(1, count // 2))
        if broken or algorithm["kind"] != "fedasync":
            algorithm |= self.maybe(0.5, secure_sum=lambda: self.secure_sum(count))
        if self.chance(0.9):
            content["privacy"] = self.privacy(algorithm.get("secure_sum") is not None)
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
            "threshold": self.one(None, 2, max(1, count // 4)),
            "bits": self.one(12, 16, 20, 32),
            "dropout": self.one(0.0, 0.05, 0.3),
            **self.maybe(0.3, timeout=lambda: self.between(0.01, 0.5), mask_rate="1 MB/s"),
        }  # fmt: skip

    def privacy(self, secure: bool) -> dict[str, Any]:
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
        section: dict[str, Any] = {
            "unit": "user", "clipping_norm": 0.5, "delta": 1e-3, "noise_multiplier": self.one(0.0, 0.5, 2.0, 2.0, 8.0),
            **self.maybe(0.2, epsilon=lambda: self.one(0.5, 8.0), neighbors="replace_one", amplification=False),
            **self.maybe(0.35, releases=lambda: self.one(1, 5, 40), cohorts="poisson"),
            **self.maybe(0.55, participation=rule),
            **self.maybe(0.1 if secure else 0.4, noise=lambda: self.one(*noises)),
        }  # fmt: skip
        if self.chance(0.7 if secure else 0.05):
            section["where"] = "secure_sum"
            section |= self.maybe(0.4, mechanism="discrete_gaussian", colluding=1)
        return section

    def mend(self, content: dict[str, Any]) -> None:
        """Remove what the schema rejects in most of the products."""
        algorithm, clients, privacy = content["algorithm"], content["clients"], content.get("privacy")
        secure, kind = algorithm.get("secure_sum"), algorithm["kind"]
        if secure is not None:
            clients.pop("users", None)
            size = algorithm.get("buffer_size") or math.ceil(algorithm["fraction"] * clients["count"])
            if secure["threshold"] is not None:
                secure["threshold"] = max(1, min(secure["threshold"], size))
        if secure is not None and kind == "fedbuff":
            algorithm["buffer_size"] = max(2, algorithm["buffer_size"])
            algorithm |= {"after_update": "wait", "staleness_exponent": 0, "concurrency": None}
            algorithm.pop("staleness_bound", None)
            secure.pop("neighbors", None)
            secure |= {"kind": "lightsecagg", "threshold": 2}
        if privacy is None:
            clients.pop("users", None)
            return
        if secure is None:
            for name in ("where", "mechanism", "colluding"):
                privacy.pop(name, None)
        if privacy.get("where") == "secure_sum":
            privacy.pop("noise", None)
        else:
            privacy.pop("mechanism", None)
            privacy.pop("colluding", None)
        if privacy.get("mechanism") == "discrete_gaussian":
            privacy["noise_multiplier"], secure["bits"] = 2.0, 16
        if "colluding" in privacy and secure["threshold"] in (None, 1):
            privacy.pop("colluding")
        if kind not in ("fedavg", "fedprox"):
            privacy.pop("cohorts", None)
        if "cohorts" in privacy:
            privacy.pop("epsilon", None)
        if "noise" in privacy:
            clients.pop("users", None)
            privacy |= {"releases": privacy.get("releases", 40), "noise_multiplier": 2.0}
            privacy.setdefault("participation", {"min_separation": 1})
        if "participation" in privacy:
            users = clients.get("users", clients["count"])
            users = users if isinstance(users, int) else len({*users})
            size = algorithm.get("buffer_size", 1)
            if "fraction" in algorithm:
                size = math.ceil(algorithm["fraction"] * clients["count"])
            if size > users:
                privacy.pop("participation")
                return
            rule = privacy["participation"]
            rule["min_separation"] = min(rule["min_separation"], users // size)
            if "bands" in privacy.get("noise", ()):
                privacy["noise"]["bands"] = min(privacy["noise"]["bands"], rule["min_separation"])


def drawn(seed: int, folder: Path) -> dict[str, Any]:
    """Return the scenario of a seed, as a mapping; see `tests.fuzz.drawn`."""
    return UserDrawer(seed, folder).scenario()
