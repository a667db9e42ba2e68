"""Check claims against the account of a run, and account for a whole network."""
