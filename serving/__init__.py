"""Agents over the wire: the decision service, its client, and tools for language models."""
