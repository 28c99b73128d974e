"""What an API server and its webhooks would change or reject, computed without a cluster.

`review` returns the server's verdict in its words. `defaults` completes documents before they are rendered, and `review_jobset`
returns what is wrong with a rendered JobSet.
"""

from __future__ import annotations

from pulumi_trainer.provider.kubernetes.schema.verdict import Lookup, Verdict
from pulumi_trainer.provider.trainer.admission.defaults import default_runtime, default_train_job
from pulumi_trainer.provider.trainer.admission.jobset import review_jobset
from pulumi_trainer.provider.trainer.admission.server import NOW, review

__all__ = ["NOW", "Lookup", "Verdict", "default_runtime", "default_train_job", "review", "review_jobset"]
