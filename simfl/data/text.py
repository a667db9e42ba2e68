"""Text as sequences of characters, owned by speakers; or generated text.

An owner's text is cut into windows of `length` characters, one every `stride`, each with the character that follows.
The last part of every owner's text is the test part: no window of it overlaps one for training. An owner whose text is
too short for a window is left out.

Generated text is a stationary Markov chain of characters, alike for all its speakers: each character is drawn given the
`order` before it, by probabilities that the seed draws from a Dirichlet distribution; a small `concentration` makes
text that can be foretold. The smallest loss that any model can have in expectation is therefore known: the mean over
the places of a window of the entropy of the next character given those in the window before it,

    h_t = -sum_s pi_t(s) sum_c P(c | s) log P(c | s),

with s the last min(t, order) characters and pi_t their stationary distribution (Cover and Thomas 2006, section 4.2).
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import Dataset, Loader
from simfl.data.files import candidates, first_file, read_content
from simfl.data.tokens import Vocabulary, sequences
from simfl.errors import DataError
from simfl.streams import Streams

OWNERS = ("speaker", "paragraph", "none")
LETTERS = " " + string.ascii_lowercase + string.ascii_uppercase
"""The first ones are the characters of generated text."""
GENERATED: dict[str, Any] = {"characters": 8, "order": 2, "concentration": 0.3, "speakers": 16, "length": 2000}
_SPEAKER = re.compile(r"^([^\W\d_][\w.'’ -]{0,39}):(?=\s|$)[ \t]*", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


def load_text(
    root: Path | None,
    streams: Streams,
    *,
    path: str | Path | None = None,
    owners: str = "speaker",
    length: int = 32,
    stride: int | None = None,
    vocabulary: str | None = None,
    test_fraction: float = 0.2,
    generate: Mapping[str, Any] | None = None,
) -> Dataset:
    """Load a text file in UTF-8, plain, .gz or .bz2, or generate a text.

    Args:
        root: the folder of data sets.
        streams: generates the text ("text"), where there is no file.
        path: the file, or a bare name below `root/text`; None generates one.
        owners: "speaker": the name in "NAME:" (every word with a capital letter) at the beginning of a line,
            for what follows up to the next one; "paragraph": each one, set off by empty lines; "none": no owners.
        length: characters of a window.
        stride: characters from one window to the next; None: `length`.
        vocabulary: all characters that there may be; None: those of the text.
        test_fraction: the share of every owner's text, its end, that is the test part.
        generate: what to generate: how many characters, of which order and concentration, for how many speakers, and
            how much text of each; see `GENERATED`.
    """
    fields: dict[str, Any] = {}
    if path is None:
        texts, known, fields["optimal_loss"] = _generated({**GENERATED, **(generate or {})}, length, streams)
        where = name = "text"
    else:
        file, content = _read(path, root)
        where, name, texts, known = str(file), file.stem, _by_owner(content, owners), None
        fields["files"] = (file,)
    letters = tuple(vocabulary) if vocabulary is not None else known
    own = Vocabulary(letters) if letters is not None else Vocabulary.of(texts.values())
    if len(own.letters) < 2:
        raise DataError(f"{where}: expected at least two different characters, found {len(own.letters)}")
    parts: tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]] = ([], [])
    held: list[str] = []
    for owner, text in texts.items():
        tokens = own.kept(own.numbers(where, text))
        cut = len(tokens) - round(len(tokens) * test_fraction)
        windows = _windows(tokens[:cut], length, stride or length)
        if not len(windows):
            continue
        parts[0].append(windows)
        parts[1].append(_windows(tokens[cut:], length, stride or length))
        held += [owner] * len(windows)
    together = [np.concatenate([some for some in part if len(some)] or [np.zeros((0, 0))]) for part in parts]
    if not all(map(len, together)):
        longest = max(map(len, texts.values()), default=0)
        raise DataError(
            f"{where}: expected text for windows of {length} characters and their test part, found at most {longest} "
            f"characters of one owner; lower data.length, or choose other data.owners"
        )
    train, test = ((windows[:, :-1], windows[:, -1].astype(np.int32)) for windows in together)
    groups = None if path is not None and owners == "none" else np.asarray(held)
    return sequences(name, train, test, streams, test_fraction=test_fraction, groups=groups, **own.fields, **fields)


def _windows(tokens: npt.NDArray[Any], length: int, stride: int) -> npt.NDArray[Any]:
    """Return windows of a text with the token that follows each, [n, length + 1]."""
    if len(tokens) <= length:
        return np.zeros((0, length + 1), tokens.dtype)
    return np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::stride]


def _read(path: str | Path, root: Path | None) -> tuple[Path, str]:
    """Return a file and its text."""
    places = candidates(path, root, "text")
    file = first_file([*places, *(place.with_name(place.name + ".txt") for place in places)])
    if file is None:
        raise DataError(f"data.path: {places[0]}: no such file; put a text there, or leave path out for generated text")
    try:
        return file, read_content(file, "write it again").decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: expected a text in UTF-8, found other bytes at {error.start}; write it again"
        ) from None


def _by_owner(text: str, owners: str) -> dict[str, str]:
    """Return the text of each owner, in order of their first words."""
    if owners == "none":
        return {"": text}
    if owners == "paragraph":
        paragraphs = [paragraph.strip() for paragraph in _PARAGRAPH.split(text)]
        width = len(str(len(paragraphs)))
        return {f"paragraph {number:0{width}d}": one for number, one in enumerate(paragraphs, 1) if one}
    # A sentence may end a line with a colon, too: in a name, every word begins with a capital letter.
    named = [match for match in _SPEAKER.finditer(text) if not any(word[0].islower() for word in match[1].split())]
    texts: dict[str, list[str]] = {}
    for number, match in enumerate(named):
        end = named[number + 1].start() if number + 1 < len(named) else len(text)
        texts.setdefault(match[1], []).append(text[match.end() : end].strip())
    if not texts:
        raise DataError(
            "data.owners: expected lines that begin with 'NAME:', found none; use owners: paragraph or none"
        )
    return {name: "\n".join(speech for speech in speeches if speech) for name, speeches in texts.items()}


def _generated(
    asked: Mapping[str, Any], length: int, streams: Streams
) -> tuple[dict[str, str], tuple[str, ...], float]:
    """Return the text of each speaker, the characters, and the best possible loss."""
    count, order = asked["characters"], asked["order"]
    generator = streams.generator("text")
    chain = generator.dirichlet(
        np.full(count, asked["concentration"]), size=(count,) * order
    )  # [count, ..., count], the next one last
    states = stationary(chain)
    cumulative = np.cumsum(chain.reshape(-1, count), axis=1)
    letters, speakers = LETTERS[:count], asked["speakers"]
    state = generator.choice(states.size, size=speakers, p=states.ravel())
    draws = generator.random((speakers, asked["length"]))
    written = np.empty(draws.shape, np.int64)
    for at in range(asked["length"]):
        after = (cumulative[state] <= draws[:, at, None]).sum(axis=1)
        written[:, at] = np.minimum(after, count - 1)  # the last sum may be a little less than 1
        state = (state * count + written[:, at]) % states.size
    width = len(str(speakers))
    texts = {
        f"speaker {number:0{width}d}": "".join(letters[letter] for letter in own) for number, own in enumerate(written)
    }
    return texts, tuple(letters), best_loss(chain, states, length)


def stationary(chain: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the stationary distribution of the last characters, [c] * order.

    Args:
        chain: P(next | those before), [c] * order + [c].
    """
    order, count = chain.ndim - 1, chain.shape[0]
    states = np.full((count,) * order, 1.0 / count**order)
    for _ in range(10_000):
        after = (states[..., None] * chain).sum(axis=0)  # the oldest character is forgotten
        if np.abs(after - states).max() < 1e-15:
            break
        states = after
    distribution: npt.NDArray[np.float64] = states / states.sum()
    return distribution


def best_loss(chain: npt.NDArray[np.float64], states: npt.NDArray[np.float64], length: int) -> float:
    """Return the mean entropy of the next character over a window, in nats."""
    order = chain.ndim - 1
    entropies = []
    for known in range(1, order + 1):
        # The joint law of the last `known` characters and the next one.
        joint = (states[..., None] * chain).sum(axis=tuple(range(order - known)))
        given = joint / joint.sum(axis=-1, keepdims=True)
        certain = np.where(given > 0, given, 1.0)  # 0 log 0 = 0
        entropies.append(-float((joint * np.log(certain)).sum()))
    places = [entropies[min(place, order) - 1] for place in range(1, length + 1)]
    return float(np.mean(places))


LOADER = Loader(
    "text",
    "characters of any text file, owned by speakers or paragraphs; generated, with known entropy",
    load_text,
    transforms=False,
)
