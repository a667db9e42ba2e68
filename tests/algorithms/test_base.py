"""The base class of algorithms."""

import pytest

from simfl.algorithms import Algorithm


@pytest.mark.parametrize("missing", ["set_up", "start", "models"])
def test_an_algorithm_without_one_of_its_methods_is_rejected(missing):
    methods = {name: lambda self: [] for name in ("set_up", "start", "models") if name != missing}
    lacking = type("Lacking", (Algorithm,), methods)
    with pytest.raises(TypeError, match=rf"^Lacking: expected a method {missing}, found none"):
        lacking(None, None, None)
