"""Linear algebra of runs uses one thread on any machine."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from simfl.data import load_dataset
from simfl.streams import Streams
from simfl.threads import VARIABLES, one_thread

AS_OF = "import os, simfl.threads as t\nwith t.one_thread():\n    import scipy.linalg\n"


def numbers():
    """Return the threads of each library of linear algebra."""
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.mark.parametrize("center", [True, False])
def test_principal_components_do_not_depend_on_the_machines_cores(center, tmp_path):
    """By default, a machine of one core gives other last bits than one of two."""
    generator = np.random.default_rng(0)
    x, y = generator.random((3000, 400)).astype(np.float32), generator.integers(0, 2, 3000)
    (tmp_path / "npz").mkdir()
    np.savez(tmp_path / "npz" / "wide.npz", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])

    def loaded(threads):
        with threadpool_limits(limits=threads, user_api="blas"):
            return load_dataset("npz", root=tmp_path, streams=Streams(1), path="wide.npz", pca=20, pca_center=center)

    first, *others = map(loaded, (1, 2, 4))
    for other in others:
        assert first.train_x.tobytes() == other.train_x.tobytes()
        assert first.test_x.tobytes() == other.test_x.tobytes()


def test_what_was_set_before_is_restored_at_the_end():
    with threadpool_limits(limits=2, user_api="blas"):
        before, variables = numbers(), {name: os.environ.get(name) for name in VARIABLES}
        with one_thread():
            with one_thread():
                assert set(numbers()) == {1}
            assert set(numbers()) == {1}
            assert {os.environ[name] for name in VARIABLES} == {"1"}
        assert numbers() == before
        assert {name: os.environ.get(name) for name in VARIABLES} == variables


def test_the_limit_ends_with_the_last_of_several_threads():
    with threadpool_limits(limits=2, user_api="blas"):
        pass  # no thread of this test controls the limit
    before, variables = numbers(), {name: os.environ.get(name) for name in VARIABLES}
    first_has_ended, second_has_begun, seen = threading.Event(), threading.Event(), []

    def second():
        with one_thread():
            second_has_begun.set()
            first_has_ended.wait()
            seen.append((set(numbers()), {os.environ[name] for name in VARIABLES}))

    thread = threading.Thread(target=second)
    with one_thread():
        thread.start()
        second_has_begun.wait()
    first_has_ended.set()
    thread.join()
    assert seen == [({1}, {"1"})]
    assert numbers() == before
    assert {name: os.environ.get(name) for name in VARIABLES} == variables


def test_a_library_that_is_loaded_meanwhile_has_one_thread():
    script = (
        AS_OF
        + "    from threadpoolctl import threadpool_info\n    print([e['num_threads'] for e in threadpool_info()])"
    )
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    shown = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert set(eval(shown.stdout)) == {1}
