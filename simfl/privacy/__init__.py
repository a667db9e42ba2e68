"""Mechanisms, and the ledger of the clients' releases."""
