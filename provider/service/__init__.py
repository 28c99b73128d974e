"""Finds, reads and controls jobs on all targets, for the command line and the Python client."""
