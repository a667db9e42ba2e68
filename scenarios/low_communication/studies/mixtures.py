"""Data as in the public notebook of asynchronous DiLoCo: each class is a mixture of Gaussians."""

import numpy as np


def load(seed=0, examples=16_000, dimension=64, classes=4, clusters=8, spread=0.5):
    """Return training and test examples: a class has some clusters with centers from N(0, spread^2 I)."""
    generator = np.random.default_rng(seed)
    centers = spread * generator.standard_normal((classes, clusters, dimension))
    count = examples + examples // 4
    labels = generator.integers(classes, size=count)
    x = centers[labels, generator.integers(clusters, size=count)] + generator.standard_normal((count, dimension))
    x = x.astype(np.float32)
    return x[:examples], labels[:examples], x[examples:], labels[examples:]
