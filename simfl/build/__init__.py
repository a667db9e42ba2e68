"""From a scenario to a run: assembling what a scenario asks for, running it, writing its tables."""

CHECKPOINT_EVERY = "5 min"
"""Host time between checkpoints where nobody says otherwise."""
