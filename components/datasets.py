"""Datasets and models as resources of their own: fetched once into a volume that any number of TrainJobs mount."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pulumi
from pulumi_trainer.args import plaintext_secrets, sources
from pulumi_trainer.args.arguments import nested_problems, said
from pulumi_trainer.args.json_values import whole
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.job_component import Job
from pulumi_trainer.plan import dataset_configmap, mounts
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.local_files import VERSION, ignored, is_folder
from pulumi_trainer.plan.outputs import has_unknown, resolve
from pulumi_trainer.plan.review import none_problems
from pulumi_trainer.plan.runtime_ref import API_VERSION, from_catalogue
from pulumi_trainer.plan.volume_claims import (
    Claim,
    FetchedData,
    VolumeArgs,
    mount,
    pod_volume,
)
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.constructors import component
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.admission import default_runtime, default_train_job
from pulumi_trainer.provider.api import code as paths
from pulumi_trainer.provider.api import trainer as api
from pulumi_trainer.provider.api.labels import ANCESTOR
from pulumi_trainer.provider.api.model import problems as document_problems
from pulumi_trainer.provider.initializers import check_uri, fingerprint, is_current
from pulumi_trainer.provider.kube.errors import Problem, TrainerError
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.identity import job_name, short_digest
from pulumi_trainer.provider.pipeline import render

if TYPE_CHECKING:
    from pulumi_trainer.plan.trainjob_plan import TrainJobArgs


class Fetched(FetchedData, Job):
    """A dataset or a model in a volume.

    volume: name of its claim, an Output that waits until all of it is there. storage_uri: as it was given. consumers: the
    TrainJobs that mount it, as far as the program has made them. claim: what is asked of a cluster, once that is decided.
    """

    kind: ClassVar[str]
    mount_path: ClassVar[str]
    classes: ClassVar[Mapping[str, type[sources.Source]]]

    storage_uri: pulumi.Input[str]
    path: pulumi.Output[str]

    @component
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
        writable: bool = False,
        size: pulumi.Input[str] | None = None,
        storage_class: pulumi.Input[str] | None = None,
        access_mode: pulumi.Input[str] | None = None,
        image: pulumi.Input[str] | None = None,
        target: Destination | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        storage_uri, target = given["storage_uri"], given.pop("target")
        self._retain, self._image, self.writable = (given.pop(name) for name in ("retain", "image", "writable"))
        volume = {field: given.pop(field) for field in VolumeArgs.fields}
        self._wanted = VolumeArgs(**{k: v for k, v in volume.items() if v is not None})
        scheme = storage_uri.partition("://")[0] if isinstance(storage_uri, str) else ""
        source = self.classes.get(scheme, sources.Source)(**{k: v for k, v in given.items() if v is not None})
        self.where = f'{type(self).__name__}("{resource_name}")'
        self.label = resource_name
        self.consumers: list[TrainJobArgs] = []
        self.storage_uri = storage_uri
        site = session.call_site()
        with dynamic.few_frames(2):
            super().__init__(f"trainer:index:{type(self).__name__}", resource_name, None, opts)
        name = job_name(resource_name, pulumi.get_project(), pulumi.get_stack())
        self.start(name, target, lambda: self._plan(resource_name, source, target), "complete", site, opts)
        self.path = self._of_volume("path")
        self.volume = self._of_volume("name")

    def _of_volume(self, name: str) -> pulumi.Output[str]:
        """An output of the volume: in a preview at once, else when the fetch has succeeded."""
        known: asyncio.Future[bool] = asyncio.get_event_loop().create_future()

        async def value() -> Any:
            try:
                resource = await self._resource
                if resource is not None and not pulumi.runtime.is_dry_run():
                    await self.status.future()
                found = getattr(self.volumes["volume"], name) if resource is not None else None
                known.set_result(found is None or await found.is_known())
            except BaseException as error:
                known.set_exception(error)
                raise
            return await found.future() if found is not None else None

        return pulumi.Output({self}, value(), known)

    another_run = (
        "It is tried again once its arguments or the values of its secrets have changed. If something else failed, use"
    )

    async def _plan(self, logical: str, source: sources.Source, target: Destination | None) -> Plan:
        found = nested_problems(source) + nested_problems(self._wanted) + targets.problems(target)
        for name, value in (("writable", self.writable), ("retain", self._retain)):
            if value is not None and not isinstance(value, bool):
                found.append(Problem(name, f"must be True or False, not {said(value)}"))
        if self._image is not None and not isinstance(self._image, (str, pulumi.Output)):
            found.append(Problem("image", f"must be text, not {said(self._image)}"))
        if isinstance(source.storage_uri, str):
            found += [
                Problem("storage_uri", p.why, p.mend)
                for p in check_uri(sources.absolute(source.storage_uri), self.kind)
            ]
        if found:
            return Plan(logical, "default", {"kind": ""}, problems=found)
        destination = targets.choose(target)
        name = job_name(logical, pulumi.get_project(), pulumi.get_stack())
        place = await targets.place(destination)
        plan = Plan(
            name,
            place.namespace,
            place.target,
            interrupt="allow",
            needs=list(place.needs),
            problems=list(place.problems),
        )  # another source is another volume, and nothing trains on one that is not complete
        cluster = isinstance(destination, targets.Kubernetes)
        wanted = {"image": self._image, "claim": self._wanted.claim(several=await self._several()) if cluster else {}}
        plan.resolved = await resolve({self.kind: source.document(), **wanted}, plan.secret_name)
        plan.resolved.unknown.update(place.unknown)
        image, claim = (plan.resolved.document.pop(name) for name in ("image", "claim"))
        wish = plan.resolved.document
        plan.problems += plan.resolved.problems + plaintext_secrets.problems(wish[self.kind], "")
        wrong = document_problems(api.InitializerSource, wish[self.kind])
        wrong = merge_problems(wrong, none_problems("TrainJob.spec.initializer.dataset", wish[self.kind], ""))
        plan.problems += [replace(p, where=source.place(p.where)) for p in wrong]
        uri = wish[self.kind]["storageUri"]
        packed = None
        if cluster and image is None:
            plan.problems += sources.upstream_problems(uri)
        if cluster and is_folder(uri):
            packed = dataset_configmap.pack(uri, ignored(wish[self.kind]))
            plan.problems += packed.problems
        if plan.problems:
            return plan
        plan.content = {**wish, "target": [type(destination).__name__, plan.namespace]}
        if cluster:
            plan.content["claim"] = {k: v for k, v in claim.items() if k in ("storageClass", "accessMode")}
        if packed:
            plan.content["files"] = dict(packed.digests)
        elif is_folder(uri) and not has_unknown(plan.content):
            plan.content |= await asyncio.to_thread(_files, plan, uri, ignored(wish[self.kind]))
            if plan.problems:
                return plan
        plan.forget_secret_name()
        # A new URI or revision is a new volume; the old one goes when nothing runs on it any more.
        revision, former = _revision(plan.content), _revision(plan.former)
        self.claim = Claim(
            f"{logical}-volume", f"{name}-{revision}", revision, former, self._retain, claim, plan.resolved.unknown
        )
        plan.claims["volume"] = self.claim
        plan.fills = "volume"
        fetch = _fetch_runtime(self.kind, self.mount_path, Unknown("volume"), image)
        if packed:
            self._carry(packed, plan, fetch, image)
        runtime = default_runtime(fetch)
        located = wish if cluster else sources.located(wish)
        train_job = default_train_job(_fetch_job(plan, runtime, located))
        plan.rendered(lambda: render(runtime, train_job))
        return plan

    async def _several(self) -> bool:
        """Whether a job that mounts it has several nodes, or may have."""
        for args in self.consumers:
            nodes: Any = _nodes(args)
            if isinstance(nodes, pulumi.Output):
                nodes = whole(await nodes.future()) if await nodes.is_known() else None
            if not isinstance(nodes, int) or nodes > 1:
                return True
        return False

    def _carry(self, packed: dataset_configmap.Packed, plan: Plan, fetch: dict[str, Any], image: Any) -> None:
        """Files that come with the job: any image with Python can unpack them, so it is that of a job that needs them."""
        name = f"{plan.name}-files"
        plan.objects[f"ConfigMap/{name}"] = packed.config_map(name, plan.namespace)
        pod = fetch["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        pod["volumes"].append(packed.volume(name))
        container["volumeMounts"].append(mount(paths.CODE_VOLUME, paths.CODE_PATH, read_only=True))
        container["command"] = dataset_configmap.COMMAND
        for args in self.consumers if image is None else ():
            used, secrets = _image(args)
            if isinstance(used, str):
                container["image"] = used
                if secrets:
                    pod["imagePullSecrets"] = secrets
                return


class DatasetInitializer(Fetched):
    """A dataset, fetched once into a volume (contract: pkg/initializers of kubeflow/trainer v2.3.0).

    storage_uri: `hf://OWNER/NAME[@REVISION][/PATH]` (in a cluster without revision and path), `s3://BUCKET/PREFIX`, or
    `file://PATH`, relative to the working directory of the program (to a cluster at most 900 kB travel, in a ConfigMap). The
    other arguments are those of `HuggingFaceDatasetInitializer` and `S3DatasetInitializer`, and for a cluster size,
    storage_class and access_mode of `OutputVolume`. image: what fetches it in a cluster; default Trainer's initializer, for
    `file://` the image of the first TrainJob that mounts it. retain: keep the volume when the resource goes.
    writable: whether jobs may change the data; by default they mount it read-only.
    """

    kind = "dataset"
    mount_path = paths.DATASET_PATH
    classes = {"hf": sources.HuggingFaceDatasetInitializer, "s3": sources.S3DatasetInitializer}


class ModelInitializer(Fetched):
    """A model, fetched once into a volume; arguments as `DatasetInitializer`."""

    kind = "model"
    mount_path = paths.MODEL_PATH
    classes = {"hf": sources.HuggingFaceModelInitializer, "s3": sources.S3ModelInitializer}


def _nodes(args: TrainJobArgs) -> Any:
    """How many nodes the training of a job has; with MPI its launcher may be one more."""
    runtime = _runtime(args)
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    trainer = args.trainer
    own = getattr(getattr(trainer, "config", None), "num_nodes", None) or getattr(trainer, "num_nodes", None)
    nodes = own if own is not None else policy.get("numNodes", 1)
    return 2 if "mpi" in policy and nodes == 1 else nodes


def _image(args: TrainJobArgs) -> tuple[Any, Any]:
    """Image of a job's nodes, and the secrets it is pulled with."""
    runtime = _runtime(args)
    step = mounts.steps_of(runtime)[0]
    pod = mounts.pod_of(runtime, step)
    image = getattr(args.trainer, "image", None) or mounts.containers_of(runtime, step).get("node", {}).get("image")
    return image, pod.get("imagePullSecrets")


def _runtime(args: TrainJobArgs) -> dict[str, Any]:
    given = args.runtime
    return from_catalogue(given)[0] if isinstance(given, str) else getattr(given, "plain", None) or {}


def _revision(content: Any) -> str:
    if content is None:
        return ""
    return "unknown" if has_unknown(content) else short_digest(content, VERSION)


def _files(plan: Plan, uri: str, ignore: list[str]) -> dict[str, Any]:
    """Return what `content` holds of the files on this machine: their fingerprint.

    Earlier versions kept the URI alone. Where such a volume holds what is there now, its digest stays, and nothing is fetched.
    """
    source, kept = Path(uri.removeprefix("file://")).resolve(), Path(plan.target["root"], "volumes").resolve()
    if source in (kept, *kept.parents):
        why = f"{source} holds {kept}, to which it would be copied"
        plan.problems.append(
            Problem("storage_uri", why, "give a folder of its own, or another root: target=Local(root=)")
        )
        return {}
    revision = short_digest(plan.content, VERSION)
    try:
        if any(
            is_current(sources.absolute(uri), ignore, f) for f in dynamic.folders(plan.target, plan.namespace, revision)
        ):
            return {}
        return {"files": fingerprint(sources.absolute(uri), ignore)}
    except TrainerError as error:
        plan.problems += [Problem("storage_uri", f"{p.where} {p.why}", p.mend) for p in error.problems]
        return {}


def _fetch_runtime(kind: str, path: str, claim: Any, image: Any) -> dict[str, Any]:
    """A runtime with one step, the upstream initializer of that kind."""
    step = f"{kind}-initializer"
    container = {
        "name": step,
        "image": image or f"{sources.UPSTREAM}{step}:v2.3.0",
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
