"""Robust aggregation rules and Byzantine attacks, as functions of models."""
