"""Fetches datasets and models into a folder, with the contract of Trainer's initializers.

The program `python -m pulumi_trainer.provider.pod.initializers dataset|model` replaces the upstream images on the Local
target. The contract is pkg/initializers of https://github.com/kubeflow/trainer/tree/v2.3.0
"""

from __future__ import annotations

from pulumi_trainer.provider.pod.initializers.contract import Kind
from pulumi_trainer.provider.pod.initializers.fetching import fetch
from pulumi_trainer.provider.pod.initializers.file import fingerprint, local_files
from pulumi_trainer.provider.pod.initializers.manifest import Manifest
from pulumi_trainer.provider.pod.initializers.schemes import check_uri

__all__ = ["Kind", "Manifest", "check_uri", "fetch", "fingerprint", "local_files"]
