"""Claim against account, and the attack on a real run."""
