"""Claim against account, and attacks: on planted canaries, and from what observers of a network receive."""
