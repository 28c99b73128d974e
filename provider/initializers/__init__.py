"""Fetching datasets and models into a folder, with the contract of Trainer's initializers.

A program of its own, `python -m pulumi_trainer.provider.initializers dataset|model`, which the Local target starts in
place of the upstream images; the components use `check_uri` at preview. The contract: pkg/initializers of
https://github.com/kubeflow/trainer/tree/v2.3.0
"""

from __future__ import annotations

from .changes import fingerprint, is_current
from .contract import Kind
from .fetching import fetch
from .manifest import Manifest
from .schemes import check_uri

__all__ = ["Kind", "Manifest", "check_uri", "fetch", "fingerprint", "is_current"]
