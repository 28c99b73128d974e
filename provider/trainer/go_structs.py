"""Documents as the Go types of Kubernetes, JobSet and Kubeflow Trainer print and merge them.

What a controller drops and adds by printing appears in the JobSet, so the pipeline and admission do the same.
"""

from __future__ import annotations

from functools import partial

from pulumi_trainer.provider.kubernetes.values import strategic_merge as merging
from pulumi_trainer.provider.kubernetes.values.typed import GoTypes
from pulumi_trainer.provider.trainer.go_types import TYPES

_TYPES = GoTypes(TYPES)

fields = _TYPES.fields
as_go_struct = _TYPES.as_struct
strategic_merge = partial(merging.strategic_merge, _TYPES)
