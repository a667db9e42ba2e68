"""How the training examples are divided over the clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simfl.scenario.fields import ByKind, Config, Count, NonNegative, Positive, Text, option, variant
from simfl.scenario.problems import Problem


class EqualSizes(Config):
    """All clients hold equally many examples, up to one."""

    kind: Literal["equal"] = variant("equal")


class PowerLawSizes(Config):
    """The r-th largest client holds a number proportional to r^-exponent."""

    kind: Literal["power_law"] = variant("power_law")
    exponent: NonNegative = option(1.0, "exponent of the power law; 0 is equal sizes")


class ListedSizes(Config):
    """The number of examples of each client, listed."""

    kind: Literal["listed"] = variant("listed")
    values: tuple[Count, ...] = Field(description="number of examples of each client, in the order of their numbers")


Sizes = Annotated[EqualSizes | PowerLawSizes | ListedSizes, ByKind()]


class PartitionConfig(Config):
    """Base of all partitions."""

    needs_labels: ClassVar[bool] = False

    sizes: Sizes = option(EqualSizes(), "how many examples each client holds: equal, power_law or listed")


class Iid(PartitionConfig):
    """Examples are dealt at random."""

    kind: Literal["iid"] = variant("iid")


class Dirichlet(PartitionConfig):
    """Each client draws its distribution of labels from a Dirichlet distribution."""

    needs_labels: ClassVar[bool] = True
    kind: Literal["dirichlet"] = variant("dirichlet")
    alpha: Positive = option(0.5, "concentration: small means few labels per client, large means iid")


class Shards(PartitionConfig):
    """Examples are sorted by label and cut into shards; each client gets some."""

    needs_labels: ClassVar[bool] = True
    kind: Literal["shards"] = variant("shards")
    shards_per_client: Count = option(2, "number of shards that each client gets")


class ByLabel(PartitionConfig):
    """Each client holds examples of some labels only."""

    needs_labels: ClassVar[bool] = True
    kind: Literal["by_label"] = variant("by_label")
    labels_per_client: Count = option(
        2,
        "number of labels that each client holds; where clients times labels are less than the classes, the other "
        "classes have no client and their examples are left out",
    )

    def problems(self) -> Iterator[Problem]:
        """Yield a problem for listed sizes."""
        if self.sizes.kind == "listed":
            advice, found = "use other sizes, or partition kind: iid", "'listed', which by_label cannot keep"
            yield Problem("equal or power_law", found, advice, ("sizes", "kind"))


class Resample(PartitionConfig):
    """Each client draws its examples from the whole set.

    One example may be at several clients.
    """

    kind: Literal["resample"] = variant("resample")
    size: Count | None = option(None, "number of examples that each client draws; null with listed sizes")

    def problems(self) -> Iterator[Problem]:
        """Yield a problem unless either `size` or a list says how many examples."""
        listed = self.sizes.kind == "listed"
        if listed and self.size is not None:
            found = f"{self.size} beside listed sizes"
            yield Problem("either 'size' or listed sizes", found, "remove one of the two", ("size",))
        if not listed and self.size is None:
            advice = "add the number of examples that each client draws"
            yield Problem("an integer >= 1", "nothing", advice, ("size",))


class ByColumn(Config):
    """A column of the data names the client of each example.

    Clients are numbered in the sorted order of its values.
    """

    needs_labels: ClassVar[bool] = False
    sizes: ClassVar[EqualSizes] = EqualSizes()
    kind: Literal["by_column"] = variant("by_column")
    column: Text = Field(
        description="the column of a table, or the key of an array [n] in an npz archive; `clients.count` has to be "
        "the number of its different values"
    )


class Natural(Config):
    """One client for each owner that the data name, in the sorted order of the owners."""

    needs_labels: ClassVar[bool] = False
    sizes: ClassVar[EqualSizes] = EqualSizes()
    kind: Literal["natural"] = variant("natural")
    owners: Literal["all", "drawn"] = option(
        "all",
        "all: `clients.count` has to be the number of owners; drawn: the seed draws this many, and "
        "the others take no part",
    )


Partition = Annotated[Iid | Dirichlet | Shards | ByLabel | Resample | ByColumn | Natural, ByKind(default="iid")]
