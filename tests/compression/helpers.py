"""Compressors in float64, as papers write them; random numbers are those of a key."""

import jax
import numpy as np

from simfl.compression.compressors.moniqua import Moniqua
from simfl.compression.compressors.qsgd import Qsgd
from simfl.compression.compressors.random_k import RandomK
from simfl.compression.compressors.top_k import TopK


def wrapped(x, modulus):
    """Return x mod a number, from -modulus/2 to modulus/2."""
    return (x + modulus / 2) % modulus - modulus / 2


def compressed(compressor, x, key):
    """Return Q(x), f64 [d]."""
    x = np.asarray(x, np.float64)
    size, uniform = len(x), np.asarray(jax.random.uniform(key, x.shape), np.float64)
    match compressor:
        case TopK(share):
            order = np.argsort(-np.abs(x), kind="stable")
            return np.where(np.isin(np.arange(size), order[: max(1, round(share * size))]), x, 0.0)
        case RandomK(share, unbiased):
            k = max(1, round(share * size))
            places = np.argsort(-uniform, kind="stable")[:k]
            return np.where(np.isin(np.arange(size), places), x, 0.0) * (size / k if unbiased else 1.0)
        case Qsgd(s, unbiased):
            norm = np.sqrt(np.sum(x**2))
            level = s * np.abs(x) / max(norm, 1e-300)
            chosen = np.floor(level) + (uniform < level - np.floor(level))
            tau = 1.0 if unbiased else 1.0 + min(size / s**2, np.sqrt(size) / s)
            return np.sign(x) * norm * chosen / (s * tau)
        case Moniqua(theta, bits):
            delta = 2.0 ** -(bits + 1)
            modulus = 2 * theta / (1 - 2 * delta)
            rounded = np.round(wrapped(x / modulus, 1.0) * 2**bits) / 2**bits
            return modulus * np.where(rounded >= 0.5, -0.5, rounded)
    return np.where(x < 0, -1.0, 1.0) * np.abs(x).sum() / size
