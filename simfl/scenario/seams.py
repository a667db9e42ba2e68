"""What an algorithm does with messages, sums and steps, and what it so takes.

An algorithm says so once: `uses` of its section or, if it has none, of a user's own class. Each value says which
compressed messages, rules, attacks, secure sums and noise on sums suit it, or why none does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from simfl.scenario.problems import one_of

Scheme = Literal["choco", "deep_squeeze", "dcd", "ecd", "error_feedback", "ef21", "direct", "moniqua"]


class Channel(NamedTuple):
    """Which schemes of compression suit messages, and why none does.

    The first scheme is used if a scenario names none.
    """

    schemes: tuple[Scheme, ...] = ()
    why: str = ""


class Sum(NamedTuple):
    """What may happen to a sum of messages.

    Attributes:
        rules, attacks: the classes of rules and of attacks, see `simfl.robust.base.Among`.
        noise: whether a server may add noise to it, so that it protects users.
        secure: the protocols by which a server may learn it.
        why: why no rule suits it.
        why_no_noise: why no noise does; empty for what its server does, or that there is none.
        parts: whether it may be of a part of each message, while clients keep the rest.
    """

    rules: frozenset[str] = frozenset()
    attacks: frozenset[str] = frozenset()
    noise: bool = False
    secure: tuple[str, ...] = ()
    why: str = ""
    why_no_noise: str = ""
    parts: bool = False


_SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
_MANY, _OWN = frozenset({"many"}), frozenset({"own"})
_USE = "use fedavg, diloco, fedbuff or fedasync"
_GRADIENTS = f"its clients send gradients, to which they add noise themselves; {_USE}"
_SINGLE = "its server takes a step with each update as it comes, and has no others to compare it with"

CHANNELS: dict[str, Channel] = {
    "server": Channel(("error_feedback", "ef21", "direct")),
    "rounds": Channel(("choco", "deep_squeeze", "dcd", "ecd", "direct", "moniqua")),
    "pairs": Channel(("choco", "deep_squeeze", "direct")),
    "unknown": Channel(_SCHEMES),
    "own": Channel(why="its class names no channel for its messages"),
    "one_machine": Channel(why="one machine sends no messages"),
    "all_reduce": Channel(why="an all-reduce adds messages up on their way, and compressed ones cannot be added"),
    "passes": Channel(why="a model moves on from client to client, and the next one has no estimate of it"),
    "drawn": Channel(("direct",)),
    "sampled": Channel(why="each round is of other clients, and one that missed a message cannot rebuild an estimate"),
    "newest": Channel(why="a newer message replaces an older one, and who missed one cannot rebuild an estimate"),
    "fragments": Channel(why="a message is a fragment of a model, and what a scheme remembers is a whole one"),
    "residuals": Channel(why="client and server keep the same last model, of which a scheme leaves parts out"),
    "models": Channel(why="clients send models for a mean, and schemes to a server are for changes"),
    "corrected": Channel(why="its corrections are differences of whole models that neighbors sent"),
    "two_vectors": Channel(why="its messages have a second vector that corrects the first, and schemes are for one"),
    "penalties": Channel(why="its penalties are sums of whole changes, of which client and server keep the same"),
    "theory": Channel(why="its constants are those of a theory of whole messages"),
    "sums": Channel(why="its messages are sums of gradients, which algorithm.mask makes shorter"),
}

SUMS: dict[str, Sum] = {
    "rounds": Sum(_MANY, _MANY, True, ("bonawitz", "secagg_plus", "lightsecagg"), parts=True),
    "buffer": Sum(_MANY, _MANY, True, ("lightsecagg",), parts=True),
    "models": Sum(_OWN, _MANY, True),
    "steps": Sum(noise=True, why=_SINGLE),
    "gathered": Sum(_MANY, _MANY),
    "neighbors": Sum(_MANY | _OWN, _MANY | _OWN, parts=True),
    "pair": Sum(_OWN, _OWN, parts=True),
    "personal": Sum(_MANY, _MANY, why_no_noise="its personal models are trained without noise; use fedavg"),
    "adaptive": Sum(_MANY, _MANY, True),
    "single": Sum(why=_SINGLE, why_no_noise=_GRADIENTS),
    "regions": Sum(why=_SINGLE),
    "gradients": Sum(_MANY, _MANY, why_no_noise=_GRADIENTS),
    "table": Sum(why="its steps use one table: what one leaves out is in the next", why_no_noise=_GRADIENTS),
    "corrected": Sum(why="its server's sum has parts of earlier updates, which a rule would have left out"),
    "by_steps": Sum(
        parts=True, why="how far it steps follows from the steps that clients state, which no rule compares"
    ),
    "tiers": Sum(_MANY, _MANY),
    "fragments": Sum(why="a rule compares whole models, of which its messages are fragments"),
    "interrupted": Sum(why="its updates are of different numbers of steps, of which a rule would drop the longest"),
    "unknown": Sum(_MANY | _OWN, _MANY | _OWN, True),
    "own": Sum(why="its class names no sum of messages", why_no_noise="its class names no sum of updates"),
    "one": Sum(why="one machine receives no messages"),
    "passes": Sum(why="a model that moves on is not compared with others"),
    "mass": Sum(why="what arrives must add up to what was sent, which a rule ends"),
    "signed": Sum(why="its weights may be negative, and a rule's are not"),
    "aged": Sum(why="models count by the age that their senders state"),
    "newest": Sum(why="its weights keep the mean of all models on average, which a rule ends"),
    "drawn": Sum(why="a client hears a few others that are drawn, and attackers may be most of these"),
    "aggregator": Sum(why="one of the clients aggregates: a rule protects from all but this one"),
    "tracked": Sum(why="its corrections add up to 0 only with plain averages"),
    "parts": Sum(why="a rule compares whole models, of which its messages are fragments"),
}


@dataclass(frozen=True)
class Uses:
    """What an algorithm does with what a scenario gives it.

    Attributes:
        graph: whether clients talk to their neighbors in `topology`, perhaps with its weights (`mixed`).
        server: whether there is a server.
        channel, sum: how messages travel, and what becomes of them; a key of `CHANNELS` and of `SUMS`.
        step: who takes clients' steps: the algorithm (`own`), each client's optimizer by `descend` (`clients`), one
            optimizer for the one model of all (`one_model`), or the device, in rounds of many (`rounds`).
        gradient: what a gradient has beside a clipping norm for all: one of its own, the task that it is of, or a
            constant that is added.
        counts_examples: whether a run uses every example a number of times that is known beforehand.
    """

    graph: Literal["none", "neighbors", "mixed"] = "neighbors"
    server: bool = False
    channel: str = "own"
    sum: str = "own"
    step: Literal["own", "clients", "one_model", "rounds"] = "own"
    gradient: Literal["plain", "own_norm", "of_task", "corrected"] = "plain"
    counts_examples: bool = False

    def __post_init__(self) -> None:
        for name, catalogue in (("channel", CHANNELS), ("sum", SUMS)):
            if (value := getattr(self, name)) not in catalogue:
                raise ValueError(f"uses: {name}: expected {one_of(catalogue)}, found {value!r}")

    @property
    def messages(self) -> Channel:
        """What its channel takes."""
        return CHANNELS[self.channel]

    @property
    def summing(self) -> Sum:
        """What its sum takes."""
        return SUMS[self.sum]

    @property
    def why_no_noise(self) -> str:
        """Why its server adds no noise to sums."""
        does = "its server does more with updates than to sum them" if self.server else "no server sums its updates"
        return self.summing.why_no_noise or f"{does}; {_USE}"
