"""The assumptions of an account, in words."""

from __future__ import annotations

from simfl.privacy.cohorts import CohortLedger
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.tables import TableLedger
from simfl.privacy.terms import OF_HOLDERS

_UNITS = {
    "example": "one example of a client",
    "client": "a client with all its data",
}
_SCHEDULE = (
    "compute times, availability, losses and stops do not depend on what the data say, only on sizes, which are public"
)
#: About noise that is drawn as floating-point numbers.
REAL = "noise of real numbers; the last bits of float32 may tell more (Mironov 2012), which no epsilon here covers"


def assumptions(ledger: Ledger, releases: Releases) -> dict[str, str]:
    """Return the assumptions of the releases' epsilon, by name; none without one."""
    if not ledger.accounts_for(releases):
        return {}
    terms = ledger.terms
    moved = "one example more or less" if terms.unit == "example" else f"one {terms.unit} adds nothing"
    if isinstance(ledger, CohortLedger) and ledger.plan.parts:
        moved = "one user adds noise only"
    if terms.neighbors == "replace_one":
        moved = "one example replaced" if terms.unit == "example" else f"all data of one {terms.unit} replaced"
    grid = isinstance(ledger, CohortLedger) and ledger.plan.grid is not None
    trusts = {} if terms.trusts is None else {"own code": terms.trusts}
    return {
        "unit": _unit(ledger),
        "neighbors": f"{moved}; all else takes place at the same times",
        "draws": _draws(ledger, releases),
        "availability": _availability(ledger, releases),
        "numbers": _numbers(ledger),
        "holders": _holders(ledger),
        "trust": _trust(ledger),
        **trusts,
        "floating point": "discrete noise on a grid, so last bits show nothing" if grid else REAL,
        "generator": "draws and noise are unknown to the adversary; here they follow from the scenario's seed, with "
        "keys of 32 bits for mini-batches, so this is a simulation of a promise and not a promise",
    }


def assumptions_of_view(ledger: Ledger, releases: Releases, shared: bool, sums: bool = False) -> dict[str, str]:
    """Return the assumptions of an observer's account.

    `shared`: the account counts all clients that hold an example. `sums`: secure sums hide what is in them.
    """
    assumed = assumptions(ledger, releases)
    if assumed:
        if shared and ledger.terms.unit == "example":
            assumed["holders"] = _holders(ledger, shared)
        sees = "of messages to the same node it sees the sum alone" if sums else "it sees the messages that reach it"
        assumed["observer"] = f"{sees}; it does as the algorithm says, and shares its view with nobody"
    return assumed


def _unit(ledger: Ledger) -> str:
    if ledger.terms.unit != "user":
        return _UNITS[ledger.terms.unit]
    if isinstance(ledger, CohortLedger) and ledger.plan.users is not None:
        return f"a user, with all data of all its clients; clients.users says which of {len(ledger.sizes)} they are"
    return "a user, which is one client with all its data; a person with two clients is two users"


def _draws(ledger: Ledger, releases: Releases) -> str:
    """Say who draws whom, and what of it is secret."""
    terms = ledger.terms
    if isinstance(ledger, CohortLedger):
        if ledger.amplifies(releases):
            return "the server draws users, and the adversary learns neither from times nor from names who was drawn"
        return "none is assumed to be secret: the adversary may know who is in which sum"
    if terms.unit != "example":
        return "none is assumed to be secret: all data of a client are in each of its releases"
    if isinstance(ledger, TableLedger):
        return "each client draws its mini-batches uniformly, whatever the data; the adversary may know the draws"
    if ledger.by_passes or not terms.amplification or ledger.sampling == "shuffle":
        return "none is assumed to be secret: the adversary may know the order of examples"
    return f"each client draws its mini-batches ({ledger.sampling}), and the adversary does not know them"


def _availability(ledger: Ledger, releases: Releases) -> str:
    if isinstance(ledger, CohortLedger) and ledger.amplifies(releases):
        return "all enrolled users are online throughout; the number of releases was fixed beforehand"
    return _SCHEDULE


def _numbers(ledger: Ledger) -> str:
    if ledger.terms.unit == "user":
        users = ledger.users if isinstance(ledger, CohortLedger) else len(ledger.sizes)
        adaptive = isinstance(ledger, CohortLedger) and ledger.plan.adaptive is not None
        norms = "; so are clipping norms, which follow from noisy counts" * adaptive
        return f"the number of enrolled users, {users}, and the divisor of a sum are public{norms}"
    return "the number of clients and their numbers of examples are public"


def _trust(ledger: Ledger) -> str:
    if isinstance(ledger, CohortLedger) and ledger.plan.parts:
        plan = ledger.plan
        colluders = ""
        if plan.least > plan.parts:
            colluders = f"; at most {plan.least - plan.parts} of a sum tell it their noise and shares"
        return (
            "users add their parts of the noise and do as they say; the server follows the protocol, keeps all that it "
            f"receives, also late answers, and learns sums of at least {plan.least} only, by secure aggregation that "
            f"is not carried out here; a client that has dropped out of a sum never answers{colluders}"
        )
    if ledger.terms.by_server:
        return "the server sees updates without noise and does as it says"
    own = "each client adds its own noise and does as it says"
    return f"{own}; the senders of updates stay hidden" if ledger.terms.view == "global_hidden" else own


def _holders(ledger: Ledger, shared: bool = False) -> str:
    """Say who else may release something about the same data."""
    terms, held = ledger.terms, "each example is at one client"
    if terms.unit != "example":
        held = f"no other {terms.unit} has the same data"
    elif shared or ledger.counts_holders:
        held = "counted: all clients that hold an example"
    uncounted = [what for what in terms.uncounted if not (shared and what == OF_HOLDERS)]
    parts = [held] * (OF_HOLDERS not in uncounted)
    return "; ".join([*parts, f"not counted: {'; nor '.join(uncounted)}"] if uncounted else parts)
