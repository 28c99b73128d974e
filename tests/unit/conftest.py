"""Fixtures of the unit tests."""

from local_support import home, local

__all__ = ["home", "local"]
