"""Kueue: its objects and webhooks, how it counts quota and topology, and what its Workloads say."""
