"""Kueue's objects as components: what a platform team gives its GPUs out with."""
