"""Play a scenario's world, evaluate its models, and write the tables of the run."""

CHECKPOINT_EVERY = "5 min"
"""Default interval between checkpoints, in host time."""

FEW_COLLECTIONS = (1_000_000, 50, 1_000)
"""Thresholds of the garbage collector of processes that run: what modules make is no garbage, some 400,000 objects."""
