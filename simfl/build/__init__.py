"""Build what a run needs from a scenario: data, model, world, privacy and algorithm."""
