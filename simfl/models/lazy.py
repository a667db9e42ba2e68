"""JAX, imported and configured when it is first used.

A model's size, layout and options are plain arithmetic. `simfl validate` and `simfl list` need no more, and importing
JAX takes longer than all they do. Modules that describe models write

    from simfl.models.lazy import jax, jnp, np

and use these names as usual. Modules that only compute import JAX itself.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from simfl.errors import RunError, ScenarioError
from simfl.threads import usable_cores

__all__ = ["jax", "jnp", "lax", "np", "start_jax"]

#: The settings of JAX that simfl needs: with others, runs end midway or have other tables.
SETTINGS: dict[str, Any] = {
    "jax_enable_x64": False,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_disable_jit": False,
    "jax_debug_nans": False,
    "jax_debug_infs": False,
    "jax_debug_key_reuse": False,
    "jax_check_tracer_leaks": False,
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
    "jax_enable_custom_prng": False,
    "jax_legacy_prng_key": "allow",
    "jax_random_seed_offset": 0,
    "jax_transfer_guard": None,
    "jax_transfer_guard_host_to_device": None,
    "jax_transfer_guard_device_to_host": None,
    "jax_transfer_guard_device_to_device": None,
}

_started = _forked = False


def has_devices() -> bool:
    """Return whether JAX has devices, and threads, in this process."""
    bridge = sys.modules.get("jax._src.xla_bridge")  # there is no public way to ask without making the devices
    return bridge is not None and bool(getattr(bridge, "_backends", _started))


def _after_fork() -> None:
    global _forked
    _forked = _forked or has_devices()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def start_jax() -> None:
    """Import JAX and configure it for many small kernels on a CPU.

    Dispatch dominates small kernels: synchronous dispatch and one thread per program cut a call from tens of
    microseconds to about nine. Overlap with the world comes from the executor's own thread.

    Variables of the environment such as JAX_ENABLE_X64 are for other programs: `SETTINGS` overrides them.

    Raises:
        RunError: this process was forked from one that had computed with JAX. JAX's threads are missing in it, so that
            a computation would never end.
    """
    global _started
    if _forked:
        raise RunError(
            "this process was forked from one that had computed with simfl before, and JAX does not work in it; start "
            "processes with multiprocessing.get_context('spawn'), or use simfl.sweep"
        )
    if not _started:
        # A program that has computed with JAX before has given it threads. Their number decides the last bits, so it
        # is that of further cores and processes, and manifests have it.
        os.environ.setdefault("PJRT_NPROC", str(usable_cores()) if has_devices() else "1")
        import jax.numpy

        jax.config.update("jax_cpu_enable_async_dispatch", False)
        for name, value in SETTINGS.items():
            if name.upper() in os.environ and name in jax.config.values:
                jax.config.update(name, value)
        _started = True


def check_settings() -> None:
    """Raise a `ScenarioError` if this process has set JAX to compute in another way."""
    for name, value in SETTINGS.items():
        setting = sys.modules["jax"].config.values.get(name, value)
        setting = getattr(setting, "value", setting)
        if setting != value:
            raise ScenarioError(
                f"jax.config.{name}: expected {value!r}, found {setting!r}; set it back before "
                f"simfl runs: jax.config.update({name!r}, {value!r})"
            )


class _Lazy(ModuleType):
    """A module that is imported when one of its names is first read."""

    def __getattr__(self, name: str) -> Any:
        if self.__name__ != "numpy":
            start_jax()
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
else:
    jax, jnp, lax, np = _Lazy("jax"), _Lazy("jax.numpy"), _Lazy("jax.lax"), _Lazy("numpy")
