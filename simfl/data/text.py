"""Texts as sequences of characters, owned by speakers or paragraphs.

An owner's text is cut into windows of `length` characters, one every `stride`, each with the next character. The end
of every owner's text is the test part; its windows do not overlap training windows. An owner whose text is shorter
than a window is left out.

Generated text is a stationary Markov chain of characters, the same for all speakers: each character is drawn given the
`order` previous ones, with probabilities that the seed draws from a Dirichlet distribution; a small `concentration`
makes predictable text. The smallest expected loss of any model is therefore known: the mean over the places of a window
of the entropy of the next character given those before it in the window,

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

LETTERS = " " + string.ascii_lowercase + string.ascii_uppercase
"""Generated text uses the first ones."""
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
        streams: generates the text ("text") if there is no file.
        path: the file, or a bare name in `root/text`; None generates a text.
        owners: "speaker": the name in "NAME:" (capitalized words) at the beginning of a line owns the text up to the
            next one; "paragraph": each paragraph, separated by empty lines, is an owner; "none": no owners.
        length: characters of a window; `stride` is from one window to the next, None: `length`.
        vocabulary: all possible characters; None: those of the text.
        test_fraction: the share of every owner's text, at its end, for testing.
        generate: changes of `GENERATED`; `length` is that of each speaker's text.
    """
    fields: dict[str, Any] = {}
    letters = None
    if path is None:
        texts, letters, fields["optimal_loss"] = _generated({**GENERATED, **(generate or {})}, length, streams)
        where = name = "text"
    else:
        file, content = _read(path, root)
        where, name, texts = str(file), file.stem, _by_owner(content, owners)
        fields["files"] = (file,)
    letters = letters if vocabulary is None else tuple(vocabulary)
    alphabet = None if letters is None else Vocabulary(letters)
    owned = path is None or owners != "none"
    return of_owners(
        where, name, texts, None, streams, alphabet, length, stride or length, test_fraction, owned, **fields
    )


def of_owners(
    where: str,
    name: str,
    texts: Mapping[str, str],
    tests: Mapping[str, str] | None,
    streams: Streams,
    vocabulary: Vocabulary | None = None,
    length: int = 32,
    stride: int = 32,
    test_fraction: float = 0.2,
    owned: bool = True,
    **fields: Any,
) -> Dataset:
    """Return the windows of texts by their owner; see `load_text`.

    `where` names the texts in messages. `tests` are those of the test part; None: the end of every owner's text.
    `owned` says whether the keys of `texts` are owners, `fields` are further ones of `Dataset`.
    """
    alphabet = vocabulary or Vocabulary.of([*texts.values(), *(tests or {}).values()])
    if len(alphabet.letters) < 2:
        raise DataError(f"{where}: expected at least two different characters, found {len(alphabet.letters)}")
    parts: tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]] = ([], [])
    held: tuple[list[str], list[str]] = ([], [])
    for owner, text in texts.items():
        tokens = alphabet.kept(alphabet.numbers(where, text))
        cut = len(tokens) - (0 if tests is not None else round(len(tokens) * test_fraction))
        windows = _windows(tokens[:cut], length, stride)
        if not len(windows):
            continue
        for part, owners, some in zip(parts, held, (windows, _windows(tokens[cut:], length, stride)), strict=True):
            part.append(some)
            owners += [owner] * len(some)
    for owner, text in (tests or {}).items():
        parts[1].append(_windows(alphabet.kept(alphabet.numbers(where, text)), length, stride))
        held[1].extend([owner] * len(parts[1][-1]))
    together = [np.concatenate([some for some in part if len(some)] or [np.zeros((0, 0))]) for part in parts]
    if not all(map(len, together)):
        longest = max(map(len, texts.values()), default=0)
        raise DataError(
            f"{where}: expected text for windows of {length} characters and their test part, found at most {longest} "
            f"characters of one owner; lower data.length, or choose other data.owners"
        )
    train, test = ((windows[:, :-1], windows[:, -1].astype(np.int32)) for windows in together)
    fields |= {"groups": np.asarray(held[0]), "test_groups": np.asarray(held[1])} if owned else {}
    fields |= {"test_fraction": test_fraction, **alphabet.fields}
    return sequences(name, train, test, streams, **fields)


def _windows(tokens: npt.NDArray[Any], length: int, stride: int) -> npt.NDArray[Any]:
    """Return windows of a text, each with the next token, [n, length + 1]."""
    if len(tokens) <= length:
        return np.zeros((0, length + 1), tokens.dtype)
    return np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::stride]


def _read(path: str | Path, root: Path | None) -> tuple[Path, str]:
    places = candidates(path, root, "text")
    file = first_file([*places, *(place.with_name(place.name + ".txt") for place in places)])
    if file is None:
        raise DataError(f"data.path: {places[0]}: no such file; put a text there, or leave path out for generated text")
    try:
        return file, read_content(file, "write it again").decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: expected text in UTF-8, found other bytes at {error.start}; write it again") from None


def _by_owner(text: str, owners: str) -> dict[str, str]:
    if owners == "none":
        return {"": text}
    if owners == "paragraph":
        paragraphs = [paragraph.strip() for paragraph in _PARAGRAPH.split(text)]
        width = len(str(len(paragraphs)))
        return {f"paragraph {number:0{width}d}": one for number, one in enumerate(paragraphs, 1) if one}
    # A sentence may also end a line with a colon: in a name, every word begins with a capital letter.
    named = [match for match in _SPEAKER.finditer(text) if not any(word[0].islower() for word in match[1].split())]
    speeches: dict[str, list[str]] = {}
    for number, match in enumerate(named):
        end = named[number + 1].start() if number + 1 < len(named) else len(text)
        speeches.setdefault(match[1], []).append(text[match.end() : end].strip())
    if not speeches:
        raise DataError("data.owners: expected lines that begin with 'NAME:', found none; use paragraph or none")
    return {name: "\n".join(filter(None, some)) for name, some in speeches.items()}


def _generated(
    options: Mapping[str, Any], length: int, streams: Streams
) -> tuple[dict[str, str], tuple[str, ...], float]:
    """Return the text of each speaker, the characters, and the smallest expected loss."""
    count, order, speakers = options["characters"], options["order"], options["speakers"]
    generator = streams.generator("text")
    # [count, ..., count], the next character last
    chain = generator.dirichlet(np.full(count, options["concentration"]), size=(count,) * order)
    states = stationary(chain)
    cumulative = np.cumsum(chain.reshape(-1, count), axis=1)
    state = generator.choice(states.size, size=speakers, p=states.ravel())
    draws = generator.random((speakers, options["length"]))
    written = np.empty(draws.shape, np.int64)
    for at in range(options["length"]):
        after = (cumulative[state] <= draws[:, at, None]).sum(axis=1)
        written[:, at] = np.minimum(after, count - 1)  # the last sum may be a little less than 1
        state = (state * count + written[:, at]) % states.size
    width = len(str(speakers))
    texts = {f"speaker {i:0{width}d}": "".join(LETTERS[letter] for letter in row) for i, row in enumerate(written)}
    return texts, tuple(LETTERS[:count]), best_loss(chain, states, length)


def stationary(chain: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the stationary distribution of the last `order` characters, [c] * order.

    It is iterated to rest from `chain`, P(next | previous), [c] * order + [c].
    """
    order, count = chain.ndim - 1, chain.shape[0]
    states = np.full((count,) * order, 1.0 / count**order)
    for _ in range(10_000):
        after = (states[..., None] * chain).sum(axis=0)  # the oldest character is forgotten
        if np.abs(after - states).max() < 1e-15:
            break
        states = after
    total: npt.NDArray[np.float64] = states / states.sum()
    return total


def best_loss(chain: npt.NDArray[np.float64], states: npt.NDArray[np.float64], length: int) -> float:
    """Return the next character's mean entropy over a window's places, in nats."""
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
