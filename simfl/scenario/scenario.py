"""The whole scenario: sections, checks between them, and conversion to YAML."""

from __future__ import annotations

import copy
import hashlib
import html
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from simfl.errors import ScenarioError
from simfl.scenario import checks
from simfl.scenario.availability import Absence
from simfl.scenario.catalogues import Algorithm, Data, Privacy, Topology
from simfl.scenario.clients import Population, Slowdown
from simfl.scenario.compression import Compression
from simfl.scenario.control import Evaluate, Every, Execution, Init, Record, Stop
from simfl.scenario.costs import Costs
from simfl.scenario.data import Digits
from simfl.scenario.errors import lines, problems_of
from simfl.scenario.fields import DISCRIMINATORS, Config, Short, Within, kind_of, members_of, option
from simfl.scenario.links import Links, Server
from simfl.scenario.models import Model, ModelConfig
from simfl.scenario.overrides import Override, apply_override, path_of
from simfl.scenario.personal import Personal
from simfl.scenario.problems import InvalidValueError, Path, Problem, invalid, show
from simfl.scenario.regions import Regions
from simfl.scenario.robust import Aggregation, Attackers
from simfl.scenario.selection import Selection
from simfl.scenario.syntax import write
from simfl.scenario.topologies import Ring
from simfl.scenario.underlay import Underlay
from simfl.version import __version__

_NAME = re.compile(r"[^\W_][\w.+-]{0,99}")


def checked_name(value: object) -> str:
    """Return a name that is valid for a folder of results, or reject it."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        expected = "a name of at most 100 letters, digits and . _ + -, which begins with a letter or digit"
        advice = "it names a folder of results" if isinstance(value, str) else "put it in quotes"
        raise invalid(expected, show(value), advice)
    return value


def name_from(stem: str) -> str:
    """Return a valid name of a scenario that resembles the stem of its file."""
    return re.sub(r"[^\w.+-]+", "-", stem).lstrip("._+-")[:100] or "scenario"


FORM: Literal[1] = 1
"""The form of scenarios, `simfl` at the top of a file. It changes with a major version (docs/stability.md)."""


def checked_form(value: object) -> object:
    """Return the form of a scenario, or say how to get one that this version reads."""
    if value != FORM or isinstance(value, bool):
        raise invalid(str(FORM), show(value), f"this is simfl {__version__}; 'simfl new' writes its form")
    return value


class Scenario(Config):
    """One run: clients, network, algorithm and noise."""

    model_config = ConfigDict(defer_build=False)  # a later build would replace `__signature__`, which is set below

    simfl: Annotated[Literal[1], BeforeValidator(checked_form)] = option(
        FORM, "the form of this file: all of 1.x read form 1. It changes no result and is not written", exclude=True
    )
    name: Annotated[str, BeforeValidator(checked_name)] = option(
        "scenario", "names the folder of results; by default the name of the file without its ending"
    )
    description: str = option("", "free text for the reader")
    seed: Annotated[int, Within(at_least=0, below=2**64)] = option(
        0, "all random draws depend on it; runs with the same seed can be compared in pairs"
    )
    learning_seed: Annotated[int, Within(at_least=0, below=2**64)] | None = option(
        None, "the seed of initial model, mini-batches and noise; null: `seed`, which all other draws depend on"
    )
    data: Data = option(Digits(), "data set and how it is divided over the clients")
    model: Model = option(ModelConfig.variants["softmax"](), "the model that is trained")
    init: Init | None = option(None, "the initial model; null: as `model` draws it from the seed")
    clients: Annotated[Population, Short("count")] = option(
        Population(), "how many clients there are and how fast they compute"
    )
    slowdowns: tuple[Slowdown, ...] = option((), "rules that make some clients slower; several on one client multiply")
    topology: Topology = option(Ring(), "the graph of clients: which of them are linked")
    regions: Regions | None = option(None, "regions of clients, and the links between them; null: a single region")
    links: Links = option(Links(), "how the links behave")
    underlay: Underlay | None = option(
        None, "routers beneath the links, and where clients are attached; null: links share nothing beneath them"
    )
    server: Server = option(Server(), "capacities and outages of the server, if the algorithm has one")
    availability: tuple[Absence, ...] = option((), "rules by which some clients are offline for a while")
    algorithm: Algorithm = Field(description="the algorithm that trains the model", examples=["{kind: sync_sgd}"])
    selection: Selection | None = option(
        None,
        "how a server chooses the clients that take part; null: all have equal chances, as with uniform. Not written "
        "where it is null",
        exclude_if=lambda selection: selection is None,
    )
    aggregation: Aggregation | None = option(
        None, "rule that makes one model of several; null: the algorithm's weighted mean"
    )
    attackers: Attackers | None = option(None, "hostile clients, and what they send; null: none")
    privacy: Privacy | None = option(None, "noise on what clients release; null: no noise and no account")
    compression: Compression | None = option(None, "how messages are compressed; null: they are not")
    personal: Personal | None = option(
        None,
        "parts of the model that stay at each client; null: none",
        exclude_if=lambda value: value is None,
    )
    stop: Stop = option(Stop(epochs=20.0), "when the run ends; 20 epochs by default")
    evaluate: Evaluate = option(Evaluate(every=Every(epochs=1.0)), "when loss and accuracy are measured")
    execution: Execution = option(Execution(), "how the recorded operations are executed")
    record: Record = option(Record(), "which tables are written besides metrics and clients")
    costs: Costs | None = option(
        None,
        "power, prices and carbon intensity, for the columns energy_j, money and carbon_g of metrics; null: no such "
        "columns",
        exclude_if=lambda value: value is None,
    )

    def __init__(self, /, **sections: Any) -> None:
        """Create a scenario; keywords are the sections of a scenario file.

            scenario = simfl.Scenario(algorithm="adpsgd", clients={"count": 8}, seed=1)
            slower = scenario.replace(algorithm__step_size=0.05, seed=2)

        Raises:
            ScenarioError: the sections are not valid; one line per problem.
        """
        try:
            super().__init__(**sections)
        except ValidationError as error:
            raise refusal(error, sections, "scenario") from None

    # Only the exception differs, so validation of files and mappings may skip this method.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def replace(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> Scenario:
        """Return a scenario with some fields changed.

        Fields that were never set take the defaults of the new values.

        Args:
            changes: values by key path, such as `{"algorithm.step_size": 0.1, "slowdowns.0.factor": 3}`.
            fields: values by key path with two underscores for a dot: `replace(algorithm__step_size=0.1, seed=2)`. The
                value of a section replaces the whole section.

        Raises:
            ScenarioError: the result is not a valid scenario; one line per problem.
        """
        content = self.given()
        for key, value in [*(changes or {}).items(), *((name.replace("__", "."), v) for name, v in fields.items())]:
            try:
                path = path_of(key)
            except InvalidValueError as error:
                raise ScenarioError(f"replace: {error.problems[0]}") from None
            apply_override(content, Override(path, copy.deepcopy(value)), "replace")
        return validated(content, "replace")

    def complete(self) -> None:
        """Fill in the algorithm's defaults that depend on other sections."""
        self.__dict__["algorithm"] = self.algorithm.settled(self)

    def problems(self) -> Iterator[Problem]:
        """Yield contradictions between sections."""
        return checks.contradictions(self)

    @property
    def seed_of_learning(self) -> int:
        """The seed of initial model, mini-batches and noise."""
        return self.seed if self.learning_seed is None else self.learning_seed

    @property
    def noise_of_server(self) -> bool:
        """Whether a server adds the noise of the privacy section, not each client."""
        return self.algorithm.noise_of_server or (self.privacy is not None and self.privacy.by_server)

    def warnings(self) -> tuple[str, ...]:
        """Return warnings for the user, one line each."""
        return tuple(checks.warnings(self))

    def given(self) -> dict[str, Any]:
        """Return the fields that were set, without defaults, as plain values."""
        return dict(_listed(self.model_dump(by_alias=True, exclude_unset=True)))

    def resolved(self) -> dict[str, Any]:
        """Return all fields as plain values, with defaults and units."""
        return dict(_listed(self.model_dump(by_alias=True)))

    def to_yaml(self) -> str:
        """Return the resolved scenario as YAML; loading it gives an equal scenario."""
        return write(self.resolved())

    def __repr__(self) -> str:
        what = f"{self.algorithm.kind}, {self.model.kind} on {self.data.set}"
        private = "" if self.privacy is None else f", privacy: {self.privacy.mechanism}"
        clients = f"{self.clients.count} clients on {self.topology.kind}"
        return f"<Scenario {self.name}: {what}, {clients}, seed {self.seed}{private}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return the fields that were set as YAML, for notebooks."""
        return f"<pre>{html.escape(write(self.given()))}</pre>"

    def digest(self) -> str:
        """Return the SHA-256 of the resolved content, without name and description."""
        content = {key: value for key, value in self.resolved().items() if key not in ("name", "description")}
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _signature() -> inspect.Signature:
    """Return the sections as keywords without types and defaults, for notebooks."""
    fields = sorted(Scenario.model_fields.items(), key=lambda item: not item[1].is_required())
    empty, kind = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    named = [inspect.Parameter(name, kind, default=empty if field.is_required() else ...) for name, field in fields]
    return inspect.Signature(named)


Scenario.__signature__ = _signature()


def validated(
    mapping: Mapping[str, Any],
    source: str,
    positions: Mapping[Path, tuple[int, int]] | None = None,
    overridden: Iterable[Path] = (),
) -> Scenario:
    """Return the scenario of plain values.

    Args:
        mapping: the content of a scenario file.
        source: its name in messages.
        positions: lines and columns of key paths, if it was a file.
        overridden: key paths that overrides set.

    Raises:
        ScenarioError: one line per problem.
    """
    try:
        return Scenario.model_validate(mapping)
    except ValidationError as error:
        raise refusal(error, mapping, source, positions, overridden) from None


def refusal(
    error: ValidationError,
    mapping: Mapping[str, Any],
    source: str,
    positions: Mapping[Path, tuple[int, int]] | None = None,
    overridden: Iterable[Path] = (),
) -> ScenarioError:
    """Return a `ScenarioError` that lists every problem; see `validated`."""
    problems = problems_of(error, Scenario, mapping)
    return ScenarioError("\n".join(lines(problems, source, positions or {}, list(overridden))))


def kinds(section: str) -> dict[str, str]:
    """Return a section's variants (data, model, ...), with one-line summaries."""
    members = members_of(Scenario.model_fields[section].annotation)
    key = next(key for key in DISCRIMINATORS if key in members[0].model_fields)
    named = [member for member in members if not member.model_fields[key].is_required()]
    return {kind_of(member, key): (member.__doc__ or "").splitlines()[0] for member in named}


def _listed(value: Any) -> Any:
    """Return plain values, with lists for tuples and the key of the variant first."""
    if isinstance(value, dict):
        first = [key for key in DISCRIMINATORS if key in value]
        return {key: _listed(value[key]) for key in dict.fromkeys([*first, *value])}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value
