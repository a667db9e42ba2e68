"""A chain of optax as an optimizer of clients: AdaBelief behind a clip, with a learning rate that warms up and falls.

algorithm: {kind: adpsgd, optimizer: {kind: "my_optimizer:make", options: {peak: 0.05}}}
"""

import optax


def make(peak=0.05, steps=250):
    """Return the transformation; what it returns is added to the parameters, as optax has it."""
    rate = optax.warmup_cosine_decay_schedule(0.0, peak, steps // 10, steps)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_belief(b1=0.9, b2=0.99),
        optax.add_decayed_weights(0.01),
        optax.scale_by_learning_rate(rate),
    )
