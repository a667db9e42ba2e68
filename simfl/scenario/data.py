"""Data sets: bundled, read from files, or synthetic with a known optimum.

Bare names of files are searched in the folder of data sets (the environment variable SIMFL_DATA); a path that contains
a folder is relative to the current folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from simfl.scenario.fields import (
    ByKind,
    Config,
    ContentFile,
    Count,
    Flag,
    Index,
    Letters,
    NonNegative,
    OpenShare,
    OwnCode,
    OwnName,
    Positive,
    PositiveFraction,
    Text,
    Within,
    option,
    variant,
)
from simfl.scenario.partitions import Iid, Partition
from simfl.scenario.problems import InvalidValueError, Problem, invalid, show

TargetKind = Literal["classes", "binary", "regression", "points", "tokens", "unknown"]


_SCALE = (
    "factor on features that are integers, such as 1/255 for pixels; they stay integers until a mini-batch is taken. "
    "null: no factor"
)


def _is_null(value: object) -> bool:
    return value is None


def _is_empty(value: object) -> bool:
    return value == ()


def _is_zero(value: object) -> bool:
    return value == 0


class OwnValidation(Config):
    """The set's own validation part.

    Archives (npz) have it as x_validation and y_validation, sets of Hugging Face as the part that `validation_split`
    names. Other sets have none. The set must have a test part, too.
    """

    kind: Literal["own"] = variant("own")


class ClientsValidation(Config):
    """Each client's own part, kept out of its training part once that is known.

    Every client gives in proportion to its size, up to one example, and keeps one at least. Sizes, weights and privacy
    are those of what it trains on. `normalize` and `pca` are fitted before, on these examples as well. No two clients
    may hold one example, as with partition resample.
    """

    kind: Literal["clients"] = variant("clients")
    clients: OpenShare = Field(description="fraction of each client's examples")


SetAside = Annotated[
    float | OwnValidation | ClientsValidation, ByKind(default="clients", number=Within(above=0, below=1))
]


class DataConfig(Config):
    """Base of all data sets."""

    task: ClassVar[TargetKind] = "unknown"
    num_classes: ClassVar[int | None] = None
    images: ClassVar[bool | None] = False
    """Whether the examples are images, for convolutional models; None if that depends on the file."""
    columns: ClassVar[bool] = False
    """Whether a column or array of the file may name the owner of each example."""

    if TYPE_CHECKING:  # each class names itself
        set: str

    @property
    def has_owners(self) -> bool:
        """Whether the data set names the owner of each example."""
        return False

    validation: SetAside | None = option(
        None,
        "examples that are neither trained nor tested on: a fraction of the training examples, drawn by the seed "
        "and of every known owner alike; own, the set's own part; or {clients: 0.1}, such a fraction of each "
        "client's examples. What chooses (goals of `stop`, targets of comparisons, tuning) looks at them in "
        "place of the test set. Metrics then have validation_loss and validation_accuracy",
        exclude_if=_is_null,
    )
    partition: Partition = option(Iid(), "how the training examples are divided over the clients")


class FitOn(Config):
    """Public examples, on which scaling and PCA are fitted."""

    public: Count = Field(
        description="number of training examples, drawn by the seed, that serve as public data: no client holds them"
    )


class Augment(Config):
    """Random crops and flips."""

    kind: Literal["images"] = variant("images")
    crop: Index = option(0, "largest move of an image, down and right, in pixels; what becomes empty is black")
    flip: Flag = option(False, "whether half of the images are mirrored, left to right")


class CifarAugment(Augment):
    """The usual recipe for CIFAR: crops after padding by 4 pixels, and flips."""

    kind: Literal["cifar"] = variant("cifar")  # type: ignore[assignment]
    crop: Index = option(4, "as for images")
    flip: Flag = option(True, "as for images")


class ExternalAugment(Config):
    """A function of your own."""

    is_own: ClassVar[bool] = True
    kind: OwnName = Field(
        description="module and function (image, key) -> image, computed by JAX: float32 of the images' shape, as the "
        "model gets them, and a key of jax.random"
    )


Augmented = Annotated[Augment | CifarAugment | ExternalAugment, ByKind(default="images", external=ExternalAugment)]


class RealData(DataConfig):
    """Base of the sets that are not synthetic."""

    classes: tuple[Index, ...] | None = option(
        None,
        "the classes to keep, numbered again from 0 in this order; null keeps all. Classes of a file are "
        "numbered from 0 in the order of their labels",
    )
    class_groups: tuple[tuple[Index, ...], ...] | None = option(
        None,
        "groups of classes: each becomes one class, numbered from 0 in this order, such as [[0, 2, 4, 6, 8], "
        "[1, 3, 5, 7, 9]] for even against odd digits; classes in no group are left out",
        exclude_if=_is_null,
    )
    normalize: Literal["none", "unit_sphere", "standard", "unit_sphere_with_constant"] = option(
        "none",
        "none, unit_sphere (each example divided by its norm), standard (each feature with mean 0 and standard "
        "deviation 1), or unit_sphere_with_constant: (x/||x||, 1)/sqrt 2, for a model without intercept",
    )
    pca: Count | None = option(
        None, "number of principal components to keep, before `normalize`; null keeps all features"
    )
    pca_center: Flag = option(
        True,
        "whether the mean is subtracted before `pca`; otherwise the first component is near the mean",
        exclude_if=bool,
    )
    fit_on: FitOn | None = option(
        None,
        "the examples from which the axes of `pca` and the means and deviations of standard are computed; null: "
        "all training examples, which no epsilon covers",
    )

    augment: Augmented | None = option(
        None,
        "random change of each image whenever a mini-batch takes it; null: none",
        exclude_if=_is_null,
    )

    @property
    def fitted(self) -> tuple[str, ...]:
        """The fields that are set and need statistics of the data."""
        return ("pca",) * (self.pca is not None) + ("normalize",) * (self.normalize == "standard")

    def problems(self) -> Iterator[Problem]:
        """Yield public examples and PCA options without a use, and two choices of classes."""
        if self.augment is not None and self.images is False:
            expected = f"null with set {self.set}, whose examples are not images"
            yield Problem(expected, "a change", "remove it", ("augment",))
        if self.classes is not None and self.class_groups is not None:
            yield Problem("classes or class_groups", "both", "remove one", ("class_groups",))
        if not self.pca_center and self.pca is None:
            yield Problem("pca beside it", "none", "remove it", ("pca_center",))
        if self.fit_on is not None and not self.fitted:
            yield Problem("pca, or normalize: standard, beside it", "neither", "remove it", ("fit_on",))

    @field_validator("classes")
    @classmethod
    def _different_classes(cls, classes: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Reject a single class, repeated classes, and classes that the set does not have."""
        if classes is None:
            return None
        if len(set(classes)) < max(2, len(classes)):
            raise invalid("at least two different classes", show(list(classes)), "list each once")
        if cls.num_classes is not None and max(classes) >= cls.num_classes:
            raise cls._no_such_class(max(classes))
        return classes

    @field_validator("class_groups")
    @classmethod
    def _different_groups(cls, groups: tuple[tuple[int, ...], ...] | None) -> tuple[tuple[int, ...], ...] | None:
        """Reject fewer than two groups, empty ones, and repeated or unknown classes."""
        members = [member for group in groups or () for member in group]
        if groups is not None and (len(groups) < 2 or not all(groups) or len(set(members)) < len(members)):
            expected = "at least two groups, with every class in at most one"
            raise invalid(expected, show([list(group) for group in groups]), "list each class once")
        if cls.num_classes is not None and members and max(members) >= cls.num_classes:
            raise cls._no_such_class(max(members))
        return groups

    @classmethod
    def _no_such_class(cls, number: int) -> InvalidValueError:
        expected = f"classes below {cls.num_classes}, as many as data set '{cls.model_fields['set'].default}' has"
        return invalid(expected, str(number), "classes are numbered from 0")

    @property
    def num_kept(self) -> int | None:
        """The number of classes that `classes` or `class_groups` keep; None: all."""
        kept = self.classes if self.class_groups is None else self.class_groups
        return None if kept is None else len(kept)


class SplitData(RealData):
    """Base of the sets that may have no test part of their own."""

    test_fraction: OpenShare = option(
        0.2, "fraction of the examples set aside for testing; not used if the set has a test part"
    )


class Digits(SplitData):
    """1,797 handwritten digits of 8x8 pixels; part of scikit-learn, needs no file."""

    task: ClassVar[TargetKind] = "classes"
    num_classes: ClassVar[int | None] = 10
    images: ClassVar[bool | None] = True
    set: Literal["digits"] = variant("digits")


class Mnist(RealData):
    """70,000 handwritten digits of 28x28 pixels, from the four IDX files."""

    task: ClassVar[TargetKind] = "classes"
    num_classes: ClassVar[int | None] = 10
    images: ClassVar[bool | None] = True
    set: Literal["mnist"] = variant("mnist")
    path: ContentFile | None = option(None, "folder of the IDX files; null means 'mnist' below SIMFL_DATA")


class Cifar10(RealData):
    """Color images of 32x32 pixels in 10 classes, the binary version of CIFAR-10."""

    task: ClassVar[TargetKind] = "classes"
    num_classes: ClassVar[int | None] = 10
    images: ClassVar[bool | None] = True
    set: Literal["cifar10"] = variant("cifar10")
    path: ContentFile | None = option(None, "archive or folder; null means 'cifar10' below SIMFL_DATA")


class FashionMnist(Mnist):
    """70,000 clothes of 28x28 pixels, from the four IDX files."""

    set: Literal["fashion_mnist"] = variant("fashion_mnist")  # type: ignore[assignment]
    path: ContentFile | None = option(None, "folder of the IDX files; null means 'fashion_mnist' below SIMFL_DATA")


class Emnist(RealData):
    """Handwritten characters of 28x28 pixels: a split of EMNIST."""

    task: ClassVar[TargetKind] = "classes"
    images: ClassVar[bool | None] = True
    set: Literal["emnist"] = variant("emnist")
    path: ContentFile | None = option(
        None, "folder of gzip.zip, or of the files in it; null means 'emnist' below SIMFL_DATA"
    )
    split: Literal["balanced", "bymerge", "byclass", "letters", "digits", "mnist"] = option(
        "balanced", "balanced and bymerge have 47 classes, byclass 62, letters 26, digits and mnist 10"
    )


class Cifar100(RealData):
    """Color images of 32x32 pixels in 100 classes, the binary version of CIFAR-100."""

    task: ClassVar[TargetKind] = "classes"
    images: ClassVar[bool | None] = True
    set: Literal["cifar100"] = variant("cifar100")
    path: ContentFile | None = option(None, "archive or folder; null means 'cifar100' below SIMFL_DATA")
    labels: Literal["fine", "coarse"] = option("fine", "fine: 100 classes; coarse: 20")


class Svhn(Cifar10):
    """House numbers: color images of 32x32 pixels, one of 10 digits in the middle."""

    set: Literal["svhn"] = variant("svhn")  # type: ignore[assignment]
    path: ContentFile | None = option(None, "folder of the two .mat files; null means 'svhn' below SIMFL_DATA")


class Libsvm(SplitData):
    """Any file in LIBSVM format: plain, .gz, .bz2 or .xz."""

    images: ClassVar[bool | None] = None
    set: Literal["libsvm"] = variant("libsvm")
    path: ContentFile = Field(description="file, or a bare name such as a9a in 'libsvm' below SIMFL_DATA")
    test_path: ContentFile | None = option(
        None, "file of the test part; null means the bare name with .t if there is one, else test_fraction"
    )
    features: Count | None = option(None, "number of features to pad to; null means the largest index found")


class Npz(SplitData):
    """Any NumPy archive with x_train, y_train (and x_test, y_test), or with x and y."""

    images: ClassVar[bool | None] = None
    columns: ClassVar[bool] = True
    set: Literal["npz"] = variant("npz")
    path: ContentFile = Field(description="archive, or a bare name in 'npz' below SIMFL_DATA")
    test_path: ContentFile | None = option(None, "archive of the test part; null if the same archive has one")
    scale: PositiveFraction | None = option(None, _SCALE)


class Table(SplitData):
    """A CSV or Parquet file with a target column.

    Numbers are features as they are; words become one-hot features. A CSV file may be .gz, .bz2 or .xz.
    """

    columns: ClassVar[bool] = True
    set: Literal["table"] = variant("table")
    path: ContentFile = Field(description="file, or a bare name in 'table' or 'csv' below SIMFL_DATA")
    test_path: ContentFile | None = option(
        None, "file of the test part with the same columns; null means test_fraction"
    )
    target: Text = option("target", "the column of labels, or of targets of a regression")
    owner: Text | None = option(None, "the column of each example's owner, for partition natural; null: no owners")
    drop: tuple[Text, ...] = option((), "columns that are not features")
    categories: tuple[Text, ...] = option(
        (),
        "columns whose values are words, also where they look like numbers; other columns have numbers or words, and "
        "one with both is rejected",
        exclude_if=_is_empty,
    )
    missing: tuple[Text, ...] | None = option(
        None,
        "words that mean no value, beside an empty one, which is rejected; []: all words are values; null: those of "
        "pandas, such as NA, None, null and nan",
        exclude_if=_is_null,
    )

    @property
    def has_owners(self) -> bool:
        """Whether a column of owners is named."""
        return self.owner is not None


def renewed(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rewrite `set: csv`, an older form with `label` for `target`, as `set: table`."""
    if data.get("set") != "csv":
        return data
    target = {} if "target" in data else {"target": data.get("label", "label")}
    return {**{key: value for key, value in data.items() if key != "label" or not target}, **target, "set": "table"}


class Leaf(SplitData):
    """A folder of JSON files in LEAF's layout (FEMNIST, Shakespeare).

    Examples are numbers or text; users are the owners of examples.
    """

    images: ClassVar[bool | None] = None
    set: Literal["leaf"] = variant("leaf")
    path: ContentFile = Field(
        description="folder with train/*.json and perhaps test/*.json, or its name in 'leaf' below SIMFL_DATA"
    )

    @property
    def has_owners(self) -> bool:
        """Whether owners are known: yes, the users."""
        return True


class HuggingFace(SplitData):
    """A set of Hugging Face by its name, or in files: images, lists, texts or a table.

    Files need neither the library nor a network.
    """

    images: ClassVar[bool | None] = None
    columns: ClassVar[bool] = True
    set: Literal["huggingface"] = variant("huggingface")
    name: Text | None = option(None, "name on the hub, such as ylecun/mnist; needs pip install 'simfl[huggingface]'")
    config: Text | None = option(None, "configuration of the set on the hub; null: its only one")
    revision: Text | None = option(None, "version of the set on the hub, such as a commit; null: the newest")
    path: ContentFile | None = option(
        None,
        "in place of `name`: a folder of save_to_disk, a Parquet file or a folder of them, or a bare name in "
        "'huggingface' below SIMFL_DATA",
    )
    split: Text = option("train", "the part to train on")
    test_split: Text | None = option(None, "the part to test on; null: test or validation, else test_fraction")
    validation_split: Text | None = option(None, "the part of `validation: own`; null: validation", exclude_if=_is_null)
    features: tuple[Text, ...] = option((), "columns of the features; []: all but `label` and `owner`")
    label: Text | None = option(
        "label", "the column of labels, or of targets of a regression; null: none, for a column of texts"
    )
    owner: Text | None = option(None, "the column of each example's owner, for partition natural; null: no owners")
    length: Count = option(32, "number of characters of a window of a text")
    scale: PositiveFraction | None = option(None, _SCALE.replace("no factor", "1/255 for images, else no factor"))

    @property
    def has_owners(self) -> bool:
        """Whether a column of owners is named."""
        return self.owner is not None

    def problems(self) -> Iterator[Problem]:
        """Yield a set without a place or with two, and options of the hub for files."""
        yield from super().problems()
        if (self.name is None) == (self.path is None):
            given = "neither" if self.name is None else "both"
            yield Problem("name (of the hub) or path (of files)", given, "give one of them", ("name",))
        if self.validation_split is not None and not isinstance(self.validation, OwnValidation):
            advice = "add it, or remove validation_split"
            yield Problem("validation: own beside it", "none", advice, ("validation_split",))
        for key in ("config", "revision") if self.path is not None else ():
            if getattr(self, key) is not None:
                yield Problem("none beside path", show(getattr(self, key)), f"remove {key}", (key,))


class Generated(Config):
    """Text of speakers, drawn from one Markov chain of characters.

    The best possible loss is known.
    """

    characters: Annotated[int, Within(at_least=2, at_most=53)] = option(8, "number of different characters")
    order: Annotated[int, Within(at_least=1, at_most=3)] = option(
        2, "number of previous characters on which the next one depends"
    )
    concentration: Annotated[float, Within(at_least=0.05, at_most=100)] = option(
        0.3,
        "concentration of the Dirichlet distribution from which the probabilities of the next character are drawn; "
        "a small one makes predictable text",
    )
    speakers: Count = option(16, "number of owners")
    length: Count = option(2000, "number of characters of each speaker")


class TextData(DataConfig):
    """Characters of a text file or of generated text.

    Examples are windows of text, and targets the character after each position.
    """

    task: ClassVar[TargetKind] = "tokens"
    set: Literal["text"] = variant("text")
    path: ContentFile | None = option(
        None, "file in UTF-8, or a bare name in 'text' below SIMFL_DATA; null: generated text"
    )
    owners: Literal["speaker", "paragraph", "none"] = option(
        "speaker",
        "owners of the text, for partition natural: speakers, whom 'NAME:' at the beginning of a line names; one "
        "owner per paragraph; or none",
    )
    length: Count = option(32, "number of characters of a window")
    stride: Count | None = option(None, "characters from one window to the next; null: `length`")
    vocabulary: Letters | None = option(None, "all allowed characters; null: those of the text")
    test_fraction: OpenShare = option(0.2, "fraction of every owner's text, at its end, set aside for testing")
    generate: Generated = option(Generated(), "the text to generate if there is no file")

    @property
    def has_owners(self) -> bool:
        """Whether the owners are speakers or paragraphs."""
        return self.path is None or self.owners != "none"


class ExternalData(SplitData, OwnCode):
    """Data of your own, from a function of a module, or given from Python."""

    images: ClassVar[bool | None] = None

    set: OwnName = Field(
        description="module and function that returns the data, as in my_data:load: arrays (x, y, x_test, y_test[, "
        "owner]), a mapping with these names, a frame or a Hugging Face set"
    )
    scale: PositiveFraction | None = option(None, _SCALE)
    target: Text | None = option(None, "for a frame: the column of labels; null: the one called label or target")
    owner: Text | None = option(None, "for a frame: the column of each example's owner, for partition natural")

    @property
    def has_owners(self) -> bool:
        """Whether owners may be known: yes, until the data are loaded."""
        return True


class SyntheticData(DataConfig):
    """Base of the problems with known optimum: all share one spectrum of curvatures."""

    path: ContentFile | None = option(
        None,
        "archive with the problem, or a bare name in 'npz' below SIMFL_DATA, in place of a drawn one: A [n, d, d] and "
        "b [n, d] for quadratic; x [clients, m, p] and y [clients, m], or x, y and client [n], for the others. The "
        "examples also serve for testing",
        exclude_if=_is_null,
    )
    samples: Count = option(1000, "number of training examples")
    dimension: Count | None = option(None, "number of features, 20 by default; null with `curvature` or `path`")
    condition_number: Annotated[float, Within(at_least=1)] | None = option(
        None, "largest over smallest curvature, 10 by default; null with `curvature` or `path`"
    )
    curvature: tuple[Positive, ...] | None = option(
        None, "the spectrum itself, one number > 0 per dimension; null: from 1 down to 1/condition_number"
    )
    owners: Count | None = option(
        None,
        "number of owners of the examples, for partition natural, the default beside it; null: no owners. Not written "
        "where it is null",
        exclude_if=_is_null,
    )
    heterogeneity: NonNegative = option(
        0.0,
        "how much owners differ: standard deviation of their centers (quadratic) or weights (linear) around the common "
        "ones, or of x.w_k over that of x.w (logistic)",
        exclude_if=_is_zero,
    )
    test_fraction: Positive = option(0.2, "number of test examples as a fraction of `samples`, drawn in the same way")

    @property
    def has_owners(self) -> bool:
        """Whether owners are known: those of a file or drawn ones."""
        return self.path is not None or self.owners is not None

    @model_validator(mode="before")
    @classmethod
    def _one_spectrum(cls, data: Any) -> Any:
        """Fill in dimension and condition number, or reject them with a spectrum."""
        if not isinstance(data, Mapping):
            return data
        given = {key: data[key] for key in ("dimension", "condition_number") if data.get(key) is not None}
        if any(data.get(key) is not None for key in ("path", "owners")) and "partition" not in data:
            data = {**data, "partition": "natural"}
        if data.get("path") is None and data.get("curvature") is None:
            return {**data, "dimension": 20, "condition_number": 10.0, **given}
        beside = "path" if data.get("path") is not None else "curvature"
        problems = [
            Problem(f"nothing beside '{beside}'", show(value), f"remove {key} or {beside}", (key,))
            for key, value in given.items()
        ]
        if problems:
            raise InvalidValueError(*problems)
        return data

    def problems(self) -> Iterator[Problem]:
        """Yield options of drawn problems beside a file, and owners without a use."""
        drawn = ("samples", "curvature", "owners", "heterogeneity", "test_fraction", "noise")
        for name in drawn if self.path is not None else ():
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                advice = f"remove {name} or path: the problem is that of the file"
                yield Problem("nothing beside 'path'", show(value), advice, (name,))
        if self.heterogeneity and self.owners is None and self.path is None:
            yield Problem("0 without owners", f"{self.heterogeneity:g}", "add owners: their number", ("heterogeneity",))
        if self.owners is not None and self.owners > self.samples:
            expected = f"at most samples, which is {self.samples}"
            yield Problem(expected, str(self.owners), "draw more samples or use fewer owners", ("owners",))


class QuadraticData(SyntheticData):
    """Points a_i around a center, for the losses 1/2 (w - a_i)^T H (w - a_i).

    Or 1/2 w^T A_i w - b_i^T w from a file. The optimum is known.
    """

    task: ClassVar[TargetKind] = "points"
    set: Literal["quadratic"] = variant("quadratic")
    noise: NonNegative = option(1.0, "standard deviation of the points around their center")


class LogisticData(SyntheticData):
    """Binary labels from a logistic model, some flipped; the optimum is known."""

    task: ClassVar[TargetKind] = "binary"
    num_classes: ClassVar[int | None] = 2
    set: Literal["logistic"] = variant("logistic")
    noise: Annotated[float, Within(at_least=0, at_most=0.5)] = option(0.05, "fraction of flipped labels")


class LinearData(SyntheticData):
    """Least squares: targets linear in the features, with noise; the optimum is known."""

    task: ClassVar[TargetKind] = "regression"
    set: Literal["linear"] = variant("linear")
    noise: NonNegative = option(0.1, "standard deviation of the noise on the targets")


CORE = (
    Digits
    | Mnist
    | FashionMnist
    | Emnist
    | Cifar10
    | Cifar100
    | Svhn
    | Libsvm
    | Npz
    | Table
    | Leaf
    | HuggingFace
    | TextData
    | QuadraticData
    | LogisticData
    | LinearData
)
