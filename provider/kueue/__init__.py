"""Kueue: its objects and webhooks, its quota and topology, and the conditions of its Workloads."""
