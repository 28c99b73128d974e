"""The role of a generation server in a job: its replicated job beside the nodes, its packages, and what its Pod starts.

All roles start together, so that one gang and one admission by a queue has the Pods of all: a PodGroup of all Pods waits forever
for those that `dependsOn` holds back. The nodes wait until the server answers, and the job is complete when the nodes are.
Without `podFailurePolicy` in the runtime, any failed Pod restarts all (`pipeline/disruptions.py` `tolerate_disruptions`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pulumi_trainer.plan import mounts
from pulumi_trainer.plan.mounts import MountedCode
from pulumi_trainer.plan.written_job import WrittenJob
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.trainer.generated import GENERATED_TOKEN
from pulumi_trainer.provider.trainer.labels import ANCESTOR

PORT = 8000

_SHARED = ("trainer-model", code.CODE_VOLUME)
"""Volumes of the nodes that the server mounts as well."""


def with_server(written: WrittenJob, job_name: str) -> WrittenJob:
    """Return a job whose runtime has the replicated job of its generation server; a job without one stays as it is.

    The Pod is made from that of the nodes: its node selector, tolerations, volumes and security context are theirs.
    """
    server = written.fields.get("generation")
    if server is None:
        return written
    runtime = copy.deepcopy(written.runtime)
    spec = section(runtime, "spec", "template", "spec")
    jobs, step = listed(spec.get("replicatedJobs")), mounts.steps_of(runtime)[0]
    names = [section(job).get("name") for job in jobs]
    if step not in names or code.SERVER_ROLE in names:
        return written
    at = names.index(step)
    host = f"{job_name}-{code.SERVER_ROLE}-0-0.{job_name}"
    made = _server_job(jobs[at], server, written, job_name)
    for container in listed(section(jobs[at], "template", "spec", "template", "spec").get("containers")):
        if section(container).get("name") == "node":
            url = {"name": "TRAINER_GENERATION_URL", "value": f"http://{host}:{PORT}"}
            container["env"] = [*listed(container.get("env")), url, _token_variable(job_name)]
    jobs.insert(at, made)
    spec.setdefault("successPolicy", {"operator": "All", "targetReplicatedJobs": [step]})
    return replace(written, runtime=runtime)


def role_problems(written: WrittenJob, *, mode: str) -> list[Problem]:
    """Return why a job cannot have a generation server, by the paths of the arguments."""
    if written.fields.get("generation") is None:
        return []
    where = "trainer.generation"
    if mode == "trainer":
        why = (
            "requires mode jobset: in mode trainer, Trainer's controller renders the JobSet, and runtimePatches can"
            " neither add a replicated job nor set image, command and resources"
        )
        return [
            Problem(where, why, 'use target=Kubernetes(mode="jobset"), or vLLM in the nodes: config={"use_vllm": True}')
        ]
    jobs = listed(section(written.runtime, "spec", "template", "spec").get("replicatedJobs"))
    if any(section(job).get("name") == code.SERVER_ROLE for job in jobs):
        return [
            Problem(
                where,
                f"adds a replicated job {code.SERVER_ROLE}, but the runtime has one too",
                "rename the replicated job of the runtime",
            )
        ]
    return []


def mount_in_server(mounted: MountedCode, written: WrittenJob) -> MountedCode:
    """Return a TrainJob whose generation server mounts code and model of the nodes, read-only, with the Secret of its token."""
    if written.fields.get("generation") is None or mounted.problems:
        return mounted
    spec = mounted.train_job["spec"]
    patches = copy.deepcopy(listed(spec.get("runtimePatches")))
    own = next(patch for patch in patches if section(patch).get("manager") == mounts.MANAGER)
    jobs = section(own, "trainingRuntimeSpec", "template", "spec")["replicatedJobs"]
    pod = jobs[0]["template"]["spec"]["template"]["spec"]
    volumes = [volume for volume in pod["volumes"] if volume["name"] in _SHARED]
    volume_mounts = []
    for each in pod["containers"][0]["volumeMounts"]:
        if each["name"] in _SHARED:
            volume_mounts.append({**each, "readOnly": True})
    own_pod = {"volumes": volumes, "containers": [{"name": code.SERVER_ROLE, "volumeMounts": volume_mounts}]}
    jobs.append({"name": code.SERVER_ROLE, "template": {"spec": {"template": {"spec": own_pod}}}})
    secret = _token_secret(section(mounted.train_job, "metadata"))
    return replace(
        mounted,
        train_job={**mounted.train_job, "spec": {**spec, "runtimePatches": patches}},
        objects={**mounted.objects, f"Secret/{secret['metadata']['name']}": secret},
    )


def _token_secret(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Secret with the token that the server wants from the nodes. job: Metadata of the TrainJob."""
    metadata = {"name": _secret_name(job["name"]), "namespace": job["namespace"]}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "immutable": True}
    return {**made, "data": {"token": GENERATED_TOKEN}}


def _secret_name(job_name: str) -> str:
    return f"{job_name}-{code.SERVER_ROLE}"


def _token_variable(job_name: str) -> dict[str, Any]:
    reference = {"name": _secret_name(job_name), "key": "token"}
    return {"name": "TRAINER_GENERATION_TOKEN", "valueFrom": {"secretKeyRef": reference}}


def _server_job(
    node: Mapping[str, Any], server: Mapping[str, Any], written: WrittenJob, job_name: str
) -> dict[str, Any]:
    """Return the replicated job of the server."""
    template = copy.deepcopy(section(node, "template", "spec", "template"))
    pod = section(template, "spec")
    used: Mapping[str, Any] = next((c for c in listed(pod.get("containers")) if section(c).get("name") == "node"), {})
    given = written.fields["trainer"]
    image = server.get("image", given.get("image", used.get("image")))
    env = [*listed(used.get("env"))]
    if "model" in written.mounts or "model" in written.fields["initializer"]:
        name, path = mounts.FOLDERS["model"]
        env.append({"name": name, "value": path})
    env += [
        *listed(given.get("env")),
        *listed(server.get("env")),
        {"name": "TRAINER_ROLE", "value": code.SERVER_ROLE},
        {"name": "TRAINER_GENERATION_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "TRAINER_GENERATION_PORT", "value": str(PORT)},
        _token_variable(job_name),
    ]
    container = {"name": code.SERVER_ROLE, "image": image, "command": written.fields["trainer"]["command"]}
    for name in ("imagePullPolicy", "securityContext", "volumeMounts", "envFrom"):
        if name in used:
            container[name] = used[name]
    last_by_name = {_variable(each): each for each in env}
    container["env"] = [*last_by_name.values()]
    container["ports"] = [{"containerPort": PORT}]
    if "resourcesPerNode" in server:
        container["resources"] = server["resourcesPerNode"]
    template["spec"] = {**pod, "containers": [container]}
    labels = without(section(node, "template", "metadata", "labels"), ANCESTOR)
    made: dict[str, Any] = {
        "name": code.SERVER_ROLE, "template": {"spec": {"parallelism": 1, "completions": 1, "template": template}}
    }  # fmt: skip
    if labels:
        made["template"]["metadata"] = {"labels": labels}
    if "dependsOn" in node:
        made["dependsOn"] = node["dependsOn"]
    return made


def _variable(variable: Any) -> Any:
    """Return the name of an environment variable; an unknown one stands for itself."""
    if isinstance(variable, Unknown):
        return id(variable)
    return section(variable).get("name")
