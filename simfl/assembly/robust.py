"""Robust aggregation and hostile clients, from the sections of a scenario."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.aggregation import Hostility
from simfl.assembly.places import Places
from simfl.data import Dataset, Partition
from simfl.errors import ScenarioError
from simfl.robust.attacks import ATTACKS
from simfl.robust.base import AbstractAttack, AbstractRule, Among
from simfl.robust.rules import RULES
from simfl.scenario import Scenario
from simfl.scenario.problems import one_of
from simfl.scenario.sections import made
from simfl.streams import Streams

if TYPE_CHECKING:
    from simfl.assembly.setup import Setup

#: What an algorithm has that takes a rule or an attack of a class.
_TAKERS: dict[Among | None, str] = {
    None: "an algorithm that combines messages by a rule",
    "many": "a server with rounds or a buffer, or clients that hear several others",
    "own": "receivers that have a model of their own, such as decentralized_sgd and adpsgd",
}


def rule_of(setup: Setup) -> AbstractRule | None:
    """Return the aggregation rule; None for the algorithm's weighted mean.

    Raises:
        ScenarioError: the algorithm takes no such rule, or a user's class is not a rule.
    """
    config = setup.scenario.aggregation
    if config is None:
        return None
    rule: AbstractRule = made(config, AbstractRule, "aggregation")
    _check_taken(setup, config.kind, rule.among, "aggregation")
    before = getattr(config, "before", None)
    if before is not None:
        rule = before.item(**before.arguments(), rule=rule)
    return rule if "own" in setup.scenario.algorithm.uses.summing.rules else rule.without_own()


def hostility_of(setup: Setup) -> Hostility | None:
    """Return the attackers and what they send; None without a section.

    Raises:
        ScenarioError: the algorithm takes no such attack, a user's class is not an attack, or no client is honest.
    """
    config = setup.scenario.attackers
    if config is None:
        return None
    attack: AbstractAttack = made(config, AbstractAttack, "attackers")
    clients = attackers_of(setup.scenario, setup.streams)
    if attack.on_data:
        return Hostility(clients, None)
    _check_taken(setup, config.kind, attack.among, "attackers")
    return Hostility(clients, attack, config.start)


def attackers_of(scenario: Scenario, streams: Streams) -> frozenset[int]:
    """Return the hostile clients: those that are named, or a share that is drawn."""
    config = scenario.attackers
    if config is None:
        return frozenset()
    if config.clients is not None:
        return frozenset(config.clients)
    assert config.share is not None
    clients = Places(scenario, streams).share(config.share, "attackers", 0)
    if len(clients) == scenario.clients.count:
        raise ScenarioError(
            f"attackers.share: expected an honest client among {len(clients)}, found {config.share:g}; lower it"
        )
    return frozenset(clients)


def with_flipped_labels(scenario: Scenario, streams: Streams, dataset: Dataset, partition: Partition) -> Dataset:
    """Return the data set with the labels that attackers on data train on.

    Raises:
        ScenarioError: there are no classes, or an honest client has an example of an attacker's.
    """
    config = scenario.attackers
    if config is None or not (config.on_data or ":" in config.kind):
        return dataset
    attack: AbstractAttack = made(config, AbstractAttack, "attackers")
    if not attack.on_data:
        return dataset
    hostile = attackers_of(scenario, streams)
    if not dataset.num_classes or np.ndim(dataset.train_y) != 1:
        raise ScenarioError(
            f"attackers.kind: expected data with a class for each example for {config.kind!r}, found data set "
            f"{scenario.data.set!r}; use another attack"
        )
    theirs = np.unique(np.concatenate([partition.of(client) for client in sorted(hostile)]))
    if len(held_by_attackers(partition, hostile)) < len(theirs):
        raise ScenarioError(
            f"attackers.kind: expected clients without common examples for {config.kind!r}, found an "
            "attacker's example that an honest client has, too; use another data.partition"
        )
    labels = dataset.train_y.copy()
    labels[theirs] = attack.labels(labels[theirs], dataset.num_classes)
    return dataclasses.replace(dataset, train_y=labels)


def held_by_attackers(partition: Partition, hostile: frozenset[int]) -> NDArray[np.int32]:
    """Return the examples that attackers hold and no honest client, ascending."""
    if not hostile:
        return np.zeros(0, dtype=np.int32)
    theirs = np.concatenate([partition.of(client) for client in sorted(hostile)])
    return np.setdiff1d(
        theirs, np.concatenate([partition.of(k) for k in range(partition.num_clients) if k not in hostile])
    )


def of_honest_clients(scenario: Scenario, streams: Streams, dataset: Dataset, partition: Partition) -> Dataset:
    """Return the data set with the optimum of examples that not only attackers hold."""
    hostile = attackers_of(scenario, streams)
    if not hostile:
        return dataset
    everything = np.arange(len(dataset.train_x))
    return dataset.measured_on(np.setdiff1d(everything, held_by_attackers(partition, hostile)))


def _takes(taken: Collection[str], among: Among | None) -> bool:
    return among in taken or (among is None and bool(taken))


def _check_taken(setup: Setup, kind: str, among: Among | None, section: str) -> None:
    """Reject a rule or an attack of a class that the algorithm does not take."""
    uses = setup.scenario.algorithm.uses
    taken = uses.summing.rules if section == "aggregation" else uses.summing.attacks
    if _takes(taken, among):
        return
    catalogue: Mapping[str, Any] = RULES if section == "aggregation" else ATTACKS
    said = [name for name, one in catalogue.items() if getattr(one, "on_data", False) or _takes(taken, one.among)]
    raise ScenarioError(
        f"{section}.kind: expected {one_of(said) if said else 'null'} with {setup.scenario.algorithm.kind!r}, "
        f"found {kind!r}, which needs {_TAKERS[among]}{f': {uses.summing.why}' if uses.summing.why else ''}"
    )
