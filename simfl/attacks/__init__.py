"""Attack runs: canaries, membership inference, gradient inversion."""
