"""Compressors of messages, and schemes that make up for the compression error."""
