"""The version of simfl, which runs and pages carry with them."""

__version__ = "0.1.0"
