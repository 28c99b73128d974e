"""What an API server and its webhooks would make of documents, or refuse, without one at hand."""

from __future__ import annotations

from .defaults import default_jobset, default_runtime, default_train_job
from .jobset import review_jobset

__all__ = ["default_jobset", "default_runtime", "default_train_job", "review_jobset"]
