"""Compressors of messages, and schemes that remember what these left out."""
