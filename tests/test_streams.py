import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.streams import Streams

names = st.tuples(
    st.integers(0, 2**64 - 1), st.sampled_from(["compute", "noise", "data"]), st.integers(0, 10**6), st.integers(0, 99)
)


def draw(name, n=4):
    seed, purpose, client, count = name
    return Streams(seed).generator(purpose, client, count).integers(0, 2**63, n).tolist()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(one=names, other=names)
def test_a_draw_depends_only_on_its_name(one, other):
    assert draw(one) == draw(one)
    assert (draw(one) == draw(other)) == (one == other)


def test_draws_do_not_depend_on_those_made_before():
    streams = Streams(3)
    expected = streams.generator("noise", 2).random(3).tolist()
    streams.generator("noise", 1).random(1000)
    streams.generator("compute", 2).random(1000)
    assert streams.generator("noise", 2).random(3).tolist() == expected


@pytest.mark.parametrize("other", [(1, "jitter", 0, 0), (0, "latency", 0, 0), (0, "jitter", 1, 0), (0, "jitter", 0, 1)])
def test_streams_are_independent_and_do_not_overlap(other):
    n = 20_000
    one = Streams(0).generator("jitter").random(n)
    seed, purpose, client, count = other
    two = Streams(seed).generator(purpose, client, count).random(n)
    assert not set(one.tolist()) & set(two.tolist())
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(n)


def test_device_keys_are_named_like_streams():
    keys = {
        tuple(Streams(seed).key(purpose, client).tolist())
        for seed in (0, 1)
        for purpose in ("data", "noise")
        for client in (0, 1, 11)
    }
    assert len(keys) == 12
    key = Streams(0).key("data")
    assert (key.dtype, key.shape) == (np.uint32, (2,))


def test_draws_are_the_same_in_every_process():
    program = "from simfl.streams import Streams; s = Streams(7); print(s.generator('x', 3, 1).random(), s.key('y', 2))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    }
    streams = Streams(7)
    assert outputs == {f"{streams.generator('x', 3, 1).random()} {streams.key('y', 2)}\n"}


def test_a_moved_generator_gives_the_same_stream_as_a_new_one() -> None:
    streams = Streams(7)
    seat = streams.seat("jitter")
    moved = seat.at(1, 2)
    moved.random(3)
    moved.integers(0, 10, 3, dtype="uint32")  # leaves half a word in the buffer
    assert seat.at(5, 9) is moved
    fresh = streams.generator("jitter", client=5, count=9)
    assert (moved.integers(0, 100, 5, dtype="uint32") == fresh.integers(0, 100, 5, dtype="uint32")).all()
    assert (moved.normal(size=10) == fresh.normal(size=10)).all()
