"""Play a scenario's world, evaluate its models, and write the tables of the run."""

CHECKPOINT_EVERY = "5 min"
"""Default interval between checkpoints, in host time."""
