"""Builds the data, model, world, privacy and algorithm of a scenario."""
