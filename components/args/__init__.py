"""TODO components/args."""
