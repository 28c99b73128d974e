"""TODO provider/kueue."""
