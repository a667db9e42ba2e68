"""Mechanisms, and the ledger of what clients released."""
