"""From a scenario to a run: assembling what a scenario asks for, running it, writing its tables."""
