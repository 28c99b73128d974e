"""Placeholders in rendered Secrets for keys that are generated once, when a job is created.

Plugins write them, targets replace them (`provider/targets/generated_secrets.py`). Rendering is therefore deterministic, and
neither a plan nor a state contains a key.
"""

from __future__ import annotations

SSH_PRIVATE_KEY = "generated:ssh-privatekey"
"""ECDSA P-521, PEM "EC PRIVATE KEY"."""

SSH_PUBLIC_KEY = "generated:ssh-publickey"
"""Public part of that key, a line of authorized_keys."""

CURVE_CERT = "generated:curve.cert"
"""A ZeroMQ CURVE certificate with both keys."""

GENERATED_TOKEN = "generated:token"  # noqa: S105 - a placeholder
"""A random token: 256 bits as hexadecimal digits."""
