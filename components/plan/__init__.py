"""TODO components/plan."""
