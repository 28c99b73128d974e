"""`hardening="restricted"`: the Pods of a job with the profile "restricted" of Pod Security, and without a service account token.

In mode jobset the rendered JobSet is changed. In mode trainer, where Trainer's controller renders it, a runtimePatch of the
TrainJob says the same. A patch can neither set automountServiceAccountToken nor reach containers that Trainer adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes import pod_security
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, mappings, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import Container, Pod, ReplicatedJob, jobs_of, replicated_jobs
from pulumi_trainer.provider.trainer.pipeline import core
from pulumi_trainer.provider.trainer.pipeline.info import DATASET_INITIALIZER, MODEL_INITIALIZER, NODE
from pulumi_trainer.provider.trainer.pipeline.modes import Mode
from pulumi_trainer.provider.trainer.pipeline.plugins.mpi import LAUNCHER
from pulumi_trainer.provider.trainer.pipeline.release import Release

MANAGER = "pulumi-trainer.dev/hardening"
"""Manager of the runtimePatch. It is the last patch, because lists of a later one would replace its lists."""
TOKEN_VOLUME = "no-service-account-token"  # noqa: S105
_ENV_OWNERS = {NODE: "trainer", DATASET_INITIALIZER: "initializer.dataset", MODEL_INITIALIZER: "initializer.model"}
"""Container whose variables no patch can set -> the section of the TrainJob that sets them."""
_SSHD = (
    "use an image whose sshd runs as another user, and set runAsUser in the runtime, as deepspeed-distributed does; "
    'or hardening="none" for this job'
)


def harden_jobset(jobset: Document, ml_policy: Mapping[str, Any], mode: Mode) -> Document:
    """Return a rendered JobSet with hardened Pods. mode: In mode trainer nothing is changed, as a patch has done it."""
    found: list[Problem] = []
    if mode != "trainer":
        found += _unnamed_users(jobset, ml_policy)
    if mode == "jobset":
        jobs = [_hardened_job(job, ml_policy) for job in jobs_of(jobset)]
        jobset = {**jobset, "spec": {**jobset["spec"], "replicatedJobs": jobs}}
    for job in jobs_of(jobset):
        found += [_violation(job, why, mode) for why in pod_security.violations(job.pod.spec)]
    if found:
        raise Invalid(*found)
    return jobset


def with_patch(runtime: Document, train_job: Document, release: Release) -> Document:
    """Return a TrainJob whose last runtimePatch hardens the Pods that the controller will render."""
    info, job, _ = core.read(runtime, train_job, release)
    jobset = next(document for document in core.build(info, job, release) if document["kind"] == "JobSet")
    ml_policy = info.ml_policy or {}
    found = [*_unnamed_users(jobset, ml_policy)]
    if found:
        raise Invalid(*found)
    declared = {each.name: each.pod for each in replicated_jobs(section(runtime, "spec", "template", "spec"))}
    patches = [_job_patch(each, declared[each.name], ml_policy) for each in jobs_of(jobset) if each.name in declared]
    spec = {**train_job["spec"]}
    spec["runtimePatches"] = [
        *items(spec, "runtimePatches"),
        {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": patches}}}},
    ]
    for each in jobs_of(jobset):
        for container in each.pod.containers:
            if pod_security.runs_as_image_user(each.pod.spec, container):
                _set_home(spec, container)
    return {**train_job, "spec": spec}


def _unnamed_users(jobset: Document, ml_policy: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield MPI's containers that run as the user of their image: sshd reads its host keys as root, unless it is set up for
    another user, whom the runtime then names.
    """
    if not ml_policy.get("mpi"):
        return
    for job in jobs_of(jobset):
        for container in job.pod.containers:
            if _runs_ssh(job, container) and pod_security.runs_as_image_user(job.pod.spec, container):
                where = f'replicated job "{job.name}" cannot be restricted'
                why = f'{where}: sshd of container "{container.name}" runs as the user of the image, which may be root'
                yield Problem("hardening", why, _SSHD)


def _runs_ssh(job: ReplicatedJob, container: Container) -> bool:
    return job.name in (NODE, LAUNCHER) and container.name == NODE


def _hardened_job(job: ReplicatedJob, ml_policy: Mapping[str, Any]) -> Document:
    if not job.pod.spec:
        return job.document
    template = {**job.template, "spec": _hardened_pod(job, ml_policy)}
    return {**job.document, "template": {**job.document["template"], "spec": {**job.job, "template": template}}}


def _hardened_pod(job: ReplicatedJob, ml_policy: Mapping[str, Any]) -> Document:
    spec = pod_security.harden(job.pod.spec)
    if not ml_policy.get("mpi"):
        return spec
    ssh = {each.name for each in job.pod.containers if _runs_ssh(job, each)}
    containers = []
    for container in mappings(spec["containers"]):
        if container.get("name") in ssh:
            container = _with_bind_service(container)
        containers.append(container)
    return {**spec, "containers": containers}


def _with_bind_service(container: Document) -> Document:
    """Return a container with the capability NET_BIND_SERVICE.

    In images for other users than root the file of sshd has this capability, and the kernel starts no file with a capability
    that the container has dropped.
    """
    context = section(container, "securityContext")
    capabilities = section(context, "capabilities")
    if pod_security.BIND_SERVICE in capabilities.get("add", []):
        return container
    capabilities = {**capabilities, "add": [*capabilities.get("add", []), pod_security.BIND_SERVICE]}
    return {**container, "securityContext": {**context, "capabilities": capabilities}}


def _job_patch(job: ReplicatedJob, declared: Pod, ml_policy: Mapping[str, Any]) -> Document:
    hardened = Pod(_hardened_pod(job, ml_policy))
    hide_token = job.pod.spec.get("automountServiceAccountToken") is not False
    pod: Document = {"securityContext": hardened.spec["securityContext"]}
    volumes = [each for each in hardened.volumes if each.get("name") == pod_security.TEMPORARY_VOLUME]
    if hide_token:
        volumes.append({"name": TOKEN_VOLUME, "emptyDir": {}})
    if volumes:
        pod["volumes"] = volumes
    for part, containers, own in (
        ("initContainers", hardened.init_containers, declared.init_containers),
        ("containers", hardened.containers, declared.containers),
    ):
        names = {each.name for each in own}
        patches = [_container_patch(each, hide_token) for each in containers if each.name in names]
        if patches:
            pod[part] = patches
    return {"name": job.name, "template": {"spec": {"template": {"spec": pod}}}}


def _container_patch(container: Container, hide_token: bool) -> Document:
    patch: Document = {"name": container.name, "securityContext": container.document["securityContext"]}
    mounts = [mount for mount in container.mounts if mount.get("name") == pod_security.TEMPORARY_VOLUME]
    if hide_token:
        mounts.append({"name": TOKEN_VOLUME, "mountPath": pod_security.TOKEN_PATH, "readOnly": True})
    if mounts:
        patch["volumeMounts"] = mounts
    return patch


def _set_home(spec: Document, container: Container) -> None:
    """Set HOME and USER of a container whose variables come from a section of the TrainJob, in place."""
    part, _, source = _ENV_OWNERS.get(str(container.name), "").partition(".")
    owner = section(spec, *filter(None, (part, source)))
    if not part or not owner or isinstance(owner.get("env"), Unknown):
        return
    env = items(owner, "env")
    owner = {**owner, "env": [*pod_security.missing_user_env([*container.env, *env]), *env]}
    if source:
        spec[part] = {**spec[part], source: owner}
    else:
        spec[part] = owner


def _violation(job: ReplicatedJob, why: str, mode: Mode) -> Problem:
    hint = 'change the runtime or the patch with this setting, or use hardening="none" for this job'
    if mode == "trainer" and "must set" in why:
        hint = (
            'Trainer adds this container, which no patch reaches; use mode="jobset", or hardening="none" for this job'
        )
    return Problem("hardening", f'replicated job "{job.name}" cannot be restricted: {why}', hint)
