"""This machine: the user's cache, files beside a user's, uv, and the extras that are installed."""
