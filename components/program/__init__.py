"""TODO components/program."""
