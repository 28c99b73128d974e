"""Cached state of a cluster: watched objects, discovery, and dry runs."""
