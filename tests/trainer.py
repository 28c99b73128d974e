"""Rendering and review as most tests want them: by the rules of the default release of Trainer."""

from __future__ import annotations

from functools import partial
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.verdict import Lookup, Verdict
from pulumi_trainer.provider.kubernetes.values import strategic_merge as merging
from pulumi_trainer.provider.trainer import admission, pipeline
from pulumi_trainer.provider.trainer.admission import defaults, document_checks, jobset_rules
from pulumi_trainer.provider.trainer.admission import warnings as coded
from pulumi_trainer.provider.trainer.releases import DEFAULT

__all__ = [
    "as_go_struct",
    "broken_rules",
    "default_runtime",
    "default_train_job",
    "document_problems",
    "fields",
    "kinds",
    "render",
    "review",
    "review_jobset",
    "source_problems",
    "stored_jobset",
    "strategic_merge",
    "validate",
    "warnings",
]

kinds = DEFAULT.kinds
fields = DEFAULT.go.fields
as_go_struct = DEFAULT.go.as_struct
strategic_merge = partial(merging.strategic_merge, DEFAULT.go)
default_runtime = partial(admission.default_runtime, release=DEFAULT)
default_train_job = partial(admission.default_train_job, release=DEFAULT)
stored_jobset = partial(defaults.stored_jobset, release=DEFAULT)
review = partial(admission.review, release=DEFAULT)
review_jobset = partial(admission.review_jobset, release=DEFAULT)
source_problems = partial(document_checks.source_problems, release=DEFAULT)
render = partial(pipeline.render, release=DEFAULT)
validate = partial(pipeline.validate, release=DEFAULT)
warnings = partial(coded.warnings, release=DEFAULT)


def document_problems(document: dict[str, Any], verdict: Verdict | None = None) -> list[Any]:
    return document_checks.document_problems(document, DEFAULT, verdict)


def broken_rules(jobset: dict[str, Any], lookup: Lookup | None = None) -> Any:
    return jobset_rules.broken_rules(jobset, DEFAULT.go, lookup)
