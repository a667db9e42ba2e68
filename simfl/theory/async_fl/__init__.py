"""Asynchronous FL with increasing sample sizes: sequences of sizes, their privacy, and choosing them."""
