"""How fast the simulator is, as ratios taken in one run."""
