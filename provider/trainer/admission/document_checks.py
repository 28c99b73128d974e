"""Checks a TrainJob, a runtime or a JobSet by itself, with problems worded for its author.

The schemas are those of a release's CRDs. Further requirements of Kubernetes, the webhooks and the pipeline on single
values are here: https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/batch/validation/validation.go,
https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/core/validation/validation.go and
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.client.masking import is_loopback
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.schema import metadata, plain_words
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.schema.verdict import Verdict
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text
from pulumi_trainer.provider.kubernetes.values.names import domain_prefixed_path
from pulumi_trainer.provider.kubernetes.values.typed import dotted_path
from pulumi_trainer.provider.kubernetes.views import entries
from pulumi_trainer.provider.trainer.admission.jobset_rules import REASONS
from pulumi_trainer.provider.trainer.admission.jobset_webhook import defaulted
from pulumi_trainer.provider.trainer.pipeline.release import Release


def document_problems(document: dict[str, Any], release: Release, verdict: Verdict | None = None) -> list[Problem]:
    """Return the problems of a document's metadata and spec; unknown leaves count as valid. One that the verdict admits is not
    compared with the schema again.
    """
    kind = document["kind"]
    if verdict is not None and verdict.stored is not None and not verdict.unknown:
        found = [problem.below("spec") for problem in plain_words.bound_problems(_BOUNDS[kind], verdict.stored["spec"])]
    else:
        found = _schema_problems(document, release)
    found += _null_values(document)
    if kind != "TrainJob":
        return found
    initializer = section(document, "spec", "initializer")
    for part in ("dataset", "model"):
        found += problems_below(f"spec.initializer.{part}", _token_over_http(section(initializer, part)))
    return [*found, *_managers(document)]


def _schema_problems(document: dict[str, Any], release: Release) -> list[Problem]:
    kind, spec = document["kind"], document.get("spec")
    if kind == "JobSet" and isinstance(spec, dict):
        spec = defaulted(spec)
    metadata_problems = plain_words.problems(metadata.OBJECT_META, document.get("metadata", {}))
    schema = release.kinds[kind].schema.properties["spec"]
    # The server's verdict on a JobSet has its broken validation rules.
    spec_problems = plain_words.problems(schema, spec, (_BOUNDS[kind],), rules=kind != "JobSet")
    return [*problems_below("metadata", metadata_problems), *problems_below("spec", spec_problems)]


def source_problems(source: Any, release: Release) -> list[Problem]:
    """Return the problems of an initializer's source: `spec.initializer.dataset` of a TrainJob."""
    initializer = release.kinds["TrainJob"].schema.properties["spec"].properties["initializer"]
    return [
        *plain_words.problems(initializer.properties["dataset"], source, (Schema(_SOURCE),)),
        *_token_over_http(source),
    ]


def _token_over_http(source: Any) -> Iterator[Problem]:
    """Yield a problem if a token of Hugging Face would cross a network unencrypted."""
    variables = {text(each.get("name")): each for each in mappings(section(source).get("env"))}
    endpoint = text(variables.get("HF_ENDPOINT", {}).get("value"))
    has_token = "ACCESS_TOKEN" in variables or bool(section(source).get("secretRef"))
    if has_token and endpoint.lower().startswith("http://") and not is_loopback(endpoint):
        why = "is an http:// address, so the token of Hugging Face would be sent unencrypted"
        yield Problem('env["HF_ENDPOINT"]', why, "write https://HOST[:PORT], or give no token")


def _null_values(document: dict[str, Any]) -> Iterator[Problem]:
    for part in ("labels", "annotations"):  # a server stores null as an empty text
        for key, value in section(document, "metadata", part).items():
            if value is None:
                yield Problem(dotted_path((((None, "metadata"), part), key)), "must be a string, not None")


def _managers(train_job: dict[str, Any]) -> Iterator[Problem]:
    for at, patch in entries(section(train_job, "spec"), "runtimePatches", "spec"):
        manager = patch.get("manager")
        if isinstance(manager, str) and manager and (wrong := domain_prefixed_path(manager)):
            yield Problem(f"{at}.manager", "; ".join(wrong))


def _object(**properties: Any) -> dict[str, Any]:
    return {"properties": properties}


def _list(**properties: Any) -> dict[str, Any]:
    return {"items": _object(**properties)}


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


_COUNT = {"type": "integer", "format": "int32", "minimum": 0}
_NAME = {"type": "string", "minLength": 1}
_EXIT_CODES = _object(operator=_one_of("In", "NotIn"))
_POD_FAILURES = _list(action=_one_of("FailJob", "FailIndex", "Ignore", "Count"), onExitCodes=_EXIT_CODES)
_COUNTS = (
    "parallelism",
    "completions",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "ttlSecondsAfterFinished",
)
_JOB = _object(
    completionMode=_one_of("Indexed", "NonIndexed"),
    podReplacementPolicy=_one_of("TerminatingOrFailed", "Failed"),
    podFailurePolicy=_object(rules=_POD_FAILURES),
    **dict.fromkeys(_COUNTS, _COUNT),
)
_FAILURES = _list(onJobFailureReasons={"items": _one_of(*REASONS)})
_JOBSET = _object(
    replicatedJobs=_list(replicas=_COUNT, template=_object(spec=_JOB)),
    failurePolicy=_object(rules=_FAILURES),
    coordinator=_object(jobIndex=_COUNT, podIndex=_COUNT),
)
_SOURCE = _object(env=_list(name=_NAME))
_NAMED = _list(name=_NAME)
_CONTAINERS = _list(env=_NAMED)
_POD = _object(volumes=_NAMED, schedulingGates=_NAMED, containers=_CONTAINERS, initContainers=_CONTAINERS)
_PATCHED = _list(template=_object(spec=_object(template=_object(spec=_POD))))
_PATCHES = _list(trainingRuntimeSpec=_object(template=_object(spec=_object(replicatedJobs=_PATCHED))))
_PROCESSES = {"type": "integer", "minimum": 1}
_TRAIN_JOB = _object(
    trainer=_object(env=_NAMED, numNodes=_COUNT, numProcPerNode=_PROCESSES),
    initializer=_object(dataset=_SOURCE, model=_SOURCE),
    runtimePatches=_PATCHES,
)
_RUNTIME = Schema(_object(mlPolicy=_object(mpi=_object(numProcPerNode=_PROCESSES)), template=_object(spec=_JOBSET)))
_BOUNDS = {
    "TrainJob": Schema(_TRAIN_JOB),
    "ClusterTrainingRuntime": _RUNTIME,
    "TrainingRuntime": _RUNTIME,
    "JobSet": Schema(_JOBSET),
}
"""Kind -> what is required of its values beyond the CRDs of some releases."""
