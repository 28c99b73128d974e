"""Datasets and models as resources of their own: fetched once into a volume that any number of TrainJobs mount."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.provider.admission import default_runtime, default_train_job
from pulumi_trainer.provider.api import code as paths
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.api.labels import ANCESTOR
from pulumi_trainer.provider.api.unknown import Unknown
from pulumi_trainer.provider.initializers import check_uri
from pulumi_trainer.provider.lifecycle.identity import job_name, short_digest
from pulumi_trainer.provider.pipeline import render

from . import destinations, plaintext, program, sources
from .arguments import nested_problems
from .destinations import Destination
from .job import OUTPUTS, Job, Plan
from .resolve import has_unknown, resolve
from .runtime import API_VERSION
from .volumes import Claim, mount, pod_volume


class Fetched(Job):
    """A dataset or a model in a volume.

    volume: name of its claim, an Output that waits until all of it is there. storage_uri: as it was given.
    """

    kind: ClassVar[str]
    mount_path: ClassVar[str]
    classes: ClassVar[Mapping[str, type[sources.Source]]]

    volume: pulumi.Output[str]
    storage_uri: pulumi.Input[str]
    path: pulumi.Output[str]

    def __init__(
        self,
        resource_name: str,
        *,
        storage_uri: pulumi.Input[str],
        ignore_patterns: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None,
        access_token: sources.Secret | None = None,
        endpoint: pulumi.Input[str] | None = None,
        region: pulumi.Input[str] | None = None,
        role_arn: pulumi.Input[str] | None = None,
        access_key_id: sources.Secret | None = None,
        secret_access_key: sources.Secret | None = None,
        env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None,
        secret_ref: pulumi.Input[str] | None = None,
        retain: bool = False,
        target: Destination | None = None,
        opts: pulumi.ResourceOptions | None = None,
        **unknown: Any,
    ) -> None:
        given = {
            "storage_uri": storage_uri, "ignore_patterns": ignore_patterns, "access_token": access_token,
            "endpoint": endpoint, "region": region, "role_arn": role_arn, "access_key_id": access_key_id,
            "secret_access_key": secret_access_key, "env": env, "secret_ref": secret_ref, **unknown,
        }  # fmt: skip
        scheme = storage_uri.partition("://")[0] if isinstance(storage_uri, str) else ""
        source = self.classes.get(scheme, sources.Source)(**{k: v for k, v in given.items() if v is not None})
        self.where = f'{type(self).__name__}("{resource_name}")'
        self._retain = retain
        self.storage_uri = storage_uri
        site = program.call_site()
        super().__init__(f"trainer:index:{type(self).__name__}", resource_name, None, opts)
        self.start(lambda: self._plan(resource_name, source, target), "complete", site, opts)
        self.path = self.status.apply(OUTPUTS["output_path"])
        self.volume = self._volume()
        self.register_outputs({"volume": self.volume, "path": self.path})

    def _volume(self) -> pulumi.Output[str]:
        """The claim's name: in a preview at once, else when the fetch has succeeded."""

        async def name() -> Any:
            resource = await self._resource
            if resource is None:
                return None
            if not pulumi.runtime.is_dry_run():
                await self.status.future()
            return await self.volumes["volume"].name.future()

        known: asyncio.Future[bool] = asyncio.get_event_loop().create_future()
        known.set_result(True)
        return pulumi.Output({self}, name(), known)

    async def _plan(self, logical: str, source: sources.Source, target: Destination | None) -> Plan:
        found = nested_problems(source) + destinations.problems(target)
        if isinstance(source.storage_uri, str):
            found += [
                Problem("storage_uri", p.why, p.mend)
                for p in check_uri(sources.absolute(source.storage_uri), self.kind)
            ]
        if found:
            return Plan(logical, "default", {"kind": ""}, problems=found)
        destination = destinations.choose(target)
        name = job_name(logical, pulumi.get_project(), pulumi.get_stack())
        plan = Plan(name, destinations.namespace_of(destination), destinations.connection(destination))
        plan.resolved = await resolve({self.kind: source.document()}, plan.secret_name)
        wish = plan.resolved.document
        plan.problems += plan.resolved.problems + plaintext.problems(wish[self.kind].get("env"), "env")
        uri = str(wish[self.kind]["storageUri"])
        if isinstance(destination, destinations.Kubernetes) and uri.startswith("file://"):
            why = "is a path of this machine, which a cluster cannot read"
            plan.problems.append(Problem("storage_uri", why, "use s3:// or hf:// there"))
        if plan.problems:
            return plan
        plan.content = {**wish, "target": [type(destination).__name__, plan.namespace]}
        # A new URI or revision is a new volume; the old one goes when nothing runs on it any more.
        revision = "unknown" if has_unknown(plan.content) else short_digest(plan.content, 8)
        plan.claims["volume"] = Claim(f"{logical}-volume", f"{name}-{revision}", revision, self._retain)
        runtime = default_runtime(_fetch_runtime(self.kind, self.mount_path, Unknown("volume")))
        train_job = default_train_job(_fetch_job(plan, runtime, sources.located(wish)))
        plan.rendered(lambda: render(runtime, train_job))
        return plan


class DatasetInitializer(Fetched):
    """A dataset, fetched once into a volume (contract: pkg/initializers of kubeflow/trainer v2.3.0).

    storage_uri: `hf://OWNER/NAME[@REVISION][/PATH]`, `s3://BUCKET/PREFIX`, or on the Local target `file://PATH`, relative to
    the working directory of the program. The other arguments are those of `HuggingFaceDatasetInitializer` and
    `S3DatasetInitializer`. retain: keep the volume when the resource goes.
    """

    kind = "dataset"
    mount_path = paths.DATASET_PATH
    classes = {"hf": sources.HuggingFaceDatasetInitializer, "s3": sources.S3DatasetInitializer}


class ModelInitializer(Fetched):
    """A model, fetched once into a volume; arguments as `DatasetInitializer`."""

    kind = "model"
    mount_path = paths.MODEL_PATH
    classes = {"hf": sources.HuggingFaceModelInitializer, "s3": sources.S3ModelInitializer}


def _fetch_runtime(kind: str, path: str, claim: Any) -> dict[str, Any]:
    """A runtime with one step, the upstream initializer of that kind."""
    step = f"{kind}-initializer"
    container = {
        "name": step,
        "image": f"ghcr.io/kubeflow/trainer/{step}:v2.3.0",
        "env": [{"name": "OUTPUT_DIR", "value": path}],
        "volumeMounts": [mount("initializer", path)],
    }
    pod = {"containers": [container], "volumes": [pod_volume("initializer", claim)], "restartPolicy": "OnFailure"}
    template = {"metadata": {"labels": {ANCESTOR: step}}, "spec": {"backoffLimit": 2, "template": {"spec": pod}}}
    spec = {"template": {"spec": {"replicatedJobs": [{"name": step, "template": template}]}}}
    return {"apiVersion": API_VERSION, "kind": "ClusterTrainingRuntime", "metadata": {"name": step}, "spec": spec}


def _fetch_job(plan: Plan, runtime: dict[str, Any], initializer: dict[str, Any]) -> dict[str, Any]:
    spec = {"runtimeRef": {"name": runtime["metadata"]["name"]}, "initializer": initializer}
    metadata = {"name": plan.name, "namespace": plan.namespace}
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}
