"""YAML is read safely by the rules of version 1.2, and other files are rejected."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ScenarioError
from simfl.scenario import load, loads
from simfl.scenario.syntax import MAX_CHARACTERS, read, write

ADPSGD = "algorithm: {kind: adpsgd}\n"


@pytest.mark.parametrize(("text", "value"), [
    ("1e-4", 1e-4), ("1E5", 1e5), ("-2.5e+3", -2500.0), (".5", 0.5), ("3.", 3.0), ("10_000", 10_000), ("010", 10),
    ("0x1F", 31), ("0o17", 15), ("-.inf", float("-inf")), ("true", True), ("FALSE", False), ("~", None), ("", None),
    ("null", None), ("yes", "yes"), ("on", "on"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"), ("'1e-4'", "1e-4"),
    ("1__0", "1__0"), ("10 ms", "10 ms"), ("my_module:Mine", "my_module:Mine"), ("!!str 5", "5"), ("!!float 5", 5.0),
    ("1e", "1e"),
])  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    scalar = read(f"key: {text}\n", "f").content["key"]
    assert scalar == value
    assert type(scalar) is type(value)


def test_numbers_with_an_exponent_reach_the_scenario_as_numbers() -> None:
    scenario = loads(
        "algorithm: {kind: adpsgd, step_size: 1e-3, batch_size: 1e2}\nclients: {seconds_per_example: 1e-5}"
    )
    assert scenario.algorithm.step_size(0, 0, 0.0) == 1e-3
    assert scenario.algorithm.batch_size == 100
    assert scenario.clients.seconds_per_example == 1e-5


def test_anchors_and_merges_are_read() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\nd:\n  <<: [{x: 8}, *a]\n  z: 1\n"
    assert read(text, "f").content == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": [{"x": 1, "y": 2}, {"x": 1, "y": 2}],
        "d": {"x": 8, "y": 2, "z": 1},
    }


def test_positions_are_those_of_keys() -> None:
    positions = read("a:\n  b: 1\nc: [x,\n    y]\n", "f").positions
    assert positions[("a", "b")] == (2, 3)
    assert positions[("c",)] == (3, 1)
    assert positions[("c", 1)] == (4, 5)


def test_a_tag_runs_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    for tag in (f"!!python/object/apply:os.mkdir ['{witness}']", f"!!python/object/new:os.mkdir ['{witness}']"):
        with pytest.raises(ScenarioError, match="remove the tag"):
            loads(f"algorithm: {tag}")
    assert not witness.exists()


@pytest.mark.parametrize("text", ["[" * 300_000, "- " * 300_000, "{a: " * 300_000, "? " * 300_000])
def test_deep_nesting_is_rejected_at_once(text: str) -> None:
    start = time.process_time()
    with pytest.raises(ScenarioError, match="at most 50 levels"):
        loads(text)
    assert time.process_time() - start < 5.0


def test_huge_text_is_rejected() -> None:
    with pytest.raises(ScenarioError, match=r"^f: expected at most 4,194,304 characters, found 4,194,305; "):
        loads("#" * (MAX_CHARACTERS + 1), "f")


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab:{}[],&*!|>'\"%@`#-? \n\t<=0.e~\\\0é"), max_size=40) | st.text(max_size=40))
def test_any_text_is_read_or_rejected_in_one_line(text: str) -> None:
    message = ""
    try:
        loads(text, "f")
    except ScenarioError as error:
        message = str(error)
    assert all(line.startswith("f:") for line in message.splitlines())


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**30), 10**30)
        | st.floats(allow_nan=False)
        | st.text(st.characters(codec="utf-8"), max_size=10)
        | st.sampled_from(
            ["1e4", "yes", "on", "null", "~", "010", "1_0", "<<", "=", "2026-01-01", "0x1", ".5", "1:30"]
        ),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc1e0", min_size=1), inner, max_size=3),
        max_leaves=8,
    )
)
def test_written_values_are_read_back(value: object) -> None:
    text = write({"key": value})
    assert read(text, "f").content == {"key": value}


def test_words_that_yaml_1_1_reads_as_values_are_quoted() -> None:
    assert write(["yes", "1e4", "plain"]) == "['yes', '1e4', plain]\n"


def test_other_files_are_rejected_with_their_kind(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(ADPSGD, encoding="utf-8")
    (tmp_path / "latin.yaml").write_bytes(b"description: caf\xe9\n")
    (tmp_path / "picture.yaml").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    for name, message in [
        ("dmeo.yaml", "expected a scenario file, found nothing there; did you mean 'demo.yaml'?"),
        ("other", "expected a scenario file, found nothing there; check the path, or write one with 'simfl new'"),
        ("latin.yaml", "expected text in UTF-8, found the byte 0xe9 at position 16; save it as UTF-8"),
        ("picture.yaml", "expected text in UTF-8, found the byte 0x89 at position 0; save it as UTF-8"),
        ("", "expected a scenario file, found a folder; name a file in it"),
        ("demo.yaml/inner.yaml", "expected a readable file, found an error (Not a directory); check the path"),
    ]:
        with pytest.raises(ScenarioError) as caught:
            load(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {message}"


def test_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "marked.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + ADPSGD.encode())
    assert load(file).name == "marked"


def test_an_endless_file_is_not_read_to_its_end() -> None:
    if not os.path.exists("/dev/zero"):
        pytest.skip("no endless file here")
    with pytest.raises(ScenarioError, match=r"^/dev/zero: expected a scenario file, found a device"):
        load("/dev/zero")
