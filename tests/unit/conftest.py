"""Fixtures of the unit tests."""

from hypothesis import HealthCheck, settings
from local_support import home, local

__all__ = ["home", "local"]

# A loaded machine makes slow data, and no test is about time.
settings.register_profile("unit", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("unit")
