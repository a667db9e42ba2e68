"""The version of simfl, which manifests of runs and pages contain."""

__version__ = "0.1.0"
