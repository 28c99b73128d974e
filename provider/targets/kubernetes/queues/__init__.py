"""Owns Kueue's queues in a cluster: reading, draining, releasing."""
