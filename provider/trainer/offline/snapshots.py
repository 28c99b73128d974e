"""Trainer's snapshot of a runtime: a ConfigMap beside a TrainJob, which replaces its runtime from then on.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/snapshot.go
"""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.documents import parse

SUFFIX = "-runtime-snapshot"
"""Suffix of the ConfigMap's name after the name of the TrainJob."""
KEY = "runtime"


def runtime_of_snapshot(configmap: dict[str, Any], train_job: dict[str, Any]) -> dict[str, Any]:
    """Return the runtime in a TrainJob's snapshot as written, without an API server's defaults."""
    name = configmap["metadata"]["name"]
    hint = f"delete the ConfigMap {name}: it is created again from the runtime"
    owners = listed(configmap["metadata"].get("ownerReferences"))
    owner = next((o for o in owners if isinstance(o, dict) and o.get("controller") is True), None)
    if owner is None or owner.get("uid") != train_job["metadata"]["uid"]:
        raise Invalid(Problem(f"ConfigMap/{name}", "the runtime's snapshot belongs to another object", hint))
    data = configmap.get("data")
    if not isinstance(data, dict) or not isinstance(data.get(KEY), str):
        raise Invalid(Problem(f"ConfigMap/{name}", f"the runtime's snapshot has no key {KEY}", hint))
    try:
        found = [d.content for d in parse(data[KEY], f"ConfigMap/{name}: data.{KEY}")]
    except Invalid as error:
        raise Invalid(*(Problem(p.where, p.why, hint) for p in error.problems)) from None
    if len(found) != 1:
        raise Invalid(Problem(f"ConfigMap/{name}", f"data.{KEY} must contain one runtime, not {len(found)}", hint))
    runtime, reference = found[0], train_job["spec"]["runtimeRef"]
    metadata = runtime.get("metadata")
    runtime_name = section(metadata).get("name")
    actual = (runtime["apiVersion"].rpartition("/")[0], runtime["kind"], runtime_name)
    wanted = (reference.get("apiGroup"), reference.get("kind"), reference["name"])
    if actual != wanted:
        why = (
            f"the runtime's snapshot is of {actual[1]} {actual[2]}, but the TrainJob refers to {wanted[1]} {wanted[2]}"
        )
        raise Invalid(Problem(f"ConfigMap/{name}", why, hint))
    return runtime
