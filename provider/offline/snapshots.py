"""Trainer's snapshot of a runtime: a ConfigMap beside a TrainJob, from which its runtime is read once it is there.

`offline` reads those that are among the documents. As upstream:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/snapshot.go
"""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.accessors import listed
from pulumi_trainer.provider.kube.values.documents import parsed

SUFFIX = "-runtime-snapshot"
"""Of the ConfigMap's name; what stands before it is the TrainJob's."""
KEY = "runtime"


def frozen(configmap: dict[str, Any], train_job: dict[str, Any]) -> dict[str, Any]:
    """The runtime in a TrainJob's snapshot, as it stands there: no API server has seen it. Raises Invalid."""
    name = configmap["metadata"]["name"]
    mend = f"delete the ConfigMap {name}: it is made anew from the runtime"
    owners = listed(configmap["metadata"].get("ownerReferences"))
    owner = next((o for o in owners if isinstance(o, dict) and o.get("controller") is True), None)
    if owner is None or owner.get("uid") != train_job["metadata"]["uid"]:
        raise Invalid(Problem(f"ConfigMap/{name}", "the runtime's snapshot belongs to another object", mend))
    data = configmap.get("data")
    if not isinstance(data, dict) or not isinstance(data.get(KEY), str):
        raise Invalid(Problem(f"ConfigMap/{name}", f"the runtime's snapshot has no key {KEY}", mend))
    try:
        found = [d.content for d in parsed(data[KEY], f"ConfigMap/{name}: data.{KEY}")]
    except Invalid as error:
        raise Invalid(*(Problem(p.where, p.why, mend) for p in error.problems)) from None
    if len(found) != 1:
        raise Invalid(Problem(f"ConfigMap/{name}", f"data.{KEY} has to hold one runtime, not {len(found)}", mend))
    runtime, reference = found[0], train_job["spec"]["runtimeRef"]
    metadata = runtime.get("metadata")
    called = metadata.get("name") if isinstance(metadata, dict) else None
    seen = (runtime["apiVersion"].rpartition("/")[0], runtime["kind"], called)
    wanted = (reference.get("apiGroup"), reference.get("kind"), reference["name"])
    if seen != wanted:
        why = f"the runtime's snapshot is of {seen[1]} {seen[2]}, and the TrainJob refers to {wanted[1]} {wanted[2]}"
        raise Invalid(Problem(f"ConfigMap/{name}", why, mend))
    return runtime
