"""Values that are made once, where a job is created: placeholders for them stand in rendered Secrets.

Plugins write them, targets replace them (`provider/targets/keys.py`). So rendering gives the same bytes each time, and
neither a plan nor a state holds a key.
"""

from __future__ import annotations

SSH_PRIVATE_KEY = "generated:ssh-privatekey"
"""ECDSA P-521, PEM "EC PRIVATE KEY"."""

SSH_PUBLIC_KEY = "generated:ssh-publickey"
"""Its public part, a line of authorized_keys."""

CURVE_CERT = "generated:curve.cert"
"""A ZeroMQ CURVE certificate with both keys."""
