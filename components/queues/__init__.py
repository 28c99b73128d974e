"""Kueue's objects as components: the quotas and queues of a platform team."""
