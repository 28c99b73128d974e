"""Datasets and models as resources: fetched once into a volume that any number of TrainJobs mount."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pulumi
from pulumi_trainer.args import plaintext_secrets, sources
from pulumi_trainer.args.arguments import drop_none, nested_problems, shown_value
from pulumi_trainer.args.json_values import to_whole_number
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.args.trainers import image_problems
from pulumi_trainer.job_component import JobComponent
from pulumi_trainer.plan import dataset_configmap, mounts
from pulumi_trainer.plan.job_plan import PlacedJob, Plan, StepResult, new_job, render_job
from pulumi_trainer.plan.local_files import VERSION, is_folder, read_ignore_patterns
from pulumi_trainer.plan.outputs import Resolved, has_unknown, resolve
from pulumi_trainer.plan.review import none_problems
from pulumi_trainer.plan.runtime_ref import API_VERSION, from_catalogue
from pulumi_trainer.plan.volume_claims import Claim, FetchedData, VolumeArgs, mount, pod_volume
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.constructors import ComponentArgs, constructor
from pulumi_trainer.program.hardening import is_restricted
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.program.trainer_release import choose_release
from pulumi_trainer.provider.engine.pulumi_compat import few_frames
from pulumi_trainer.provider.jobs.identity import job_name, short_digest
from pulumi_trainer.provider.jobs.nodes import nodes_of, training_pods
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import only, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod import code as paths
from pulumi_trainer.provider.pod.initializers import check_uri, fingerprint
from pulumi_trainer.provider.trainer.admission import default_runtime, default_train_job
from pulumi_trainer.provider.trainer.admission.document_checks import source_problems
from pulumi_trainer.provider.trainer.labels import ANCESTOR
from pulumi_trainer.provider.trainer.pipeline import render

if TYPE_CHECKING:
    from pulumi_trainer.plan.trainjob_args import TrainJobArgs


class FetchedArgs(VolumeArgs, ComponentArgs):
    """The arguments of `DatasetInitializer` and `ModelInitializer`."""

    storage_uri: pulumi.Input[str]
    ignore_patterns: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None
    access_token: sources.Secret | None = None
    endpoint: pulumi.Input[str] | None = None
    region: pulumi.Input[str] | None = None
    role_arn: pulumi.Input[str] | None = None
    access_key_id: sources.Secret | None = None
    secret_access_key: sources.Secret | None = None
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    secret_ref: pulumi.Input[str] | None = None
    retain: bool = False
    writable: bool = False
    image: pulumi.Input[str] | None = None
    target: Destination | None = None

    shipped = ComponentArgs.shipped | {*VolumeArgs.fields, "retain", "writable", "image"}


class Fetched(FetchedData, JobComponent):
    """A dataset or a model in a volume.

    Attributes:
        volume: Name of its claim, an Output that waits until all of the data is there.
        consumers: The TrainJobs that mount it, as far as the program has created them.
        claim: Spec of the claim in a cluster, once it is known.
    """

    kind: ClassVar[str]
    mount_path: ClassVar[str]
    classes: ClassVar[Mapping[str, type[sources.DataSource]]]

    storage_uri: pulumi.Input[str]
    path: pulumi.Output[str]

    @constructor(FetchedArgs)
    def __init__(self) -> None: ...

    def construct(self, args: FetchedArgs) -> None:
        """Start the job that fetches the data."""
        given = drop_none(vars(args))
        self._retain, self._image, self.writable = args.retain, args.image, args.writable
        self._wanted = VolumeArgs(**only(given, VolumeArgs.fields))
        own = without(given, *args.shipped)
        source = self._source_class(own)(**own)
        self.where = f'{type(self).__name__}("{args.resource_name}")'
        self.label = args.resource_name
        self.consumers: list[TrainJobArgs] = []
        self.storage_uri = args.storage_uri
        site = session.call_site()
        with few_frames(2):
            super().__init__(f"trainer:index:{type(self).__name__}", args.resource_name, None, args.opts)
        name = job_name(args.resource_name, pulumi.get_project(), pulumi.get_stack())
        self.start(
            name, args.target, lambda: self._plan(args.resource_name, source, args.target), "complete", site, args.opts
        )
        self.path = self._of_volume("path")
        self.volume = self._of_volume("name")

    def _source_class(self, given: Mapping[str, Any]) -> type[sources.DataSource]:
        """Return the class with the fields of the scheme; of an Output, the class that has all given fields."""
        uri = given.get("storage_uri")
        if isinstance(uri, str):
            return self.classes.get(uri.partition("://")[0], sources.DataSource)
        own = given.keys() - sources.DataSource.fields
        fitting = [each for each in self.classes.values() if own and own <= {*each.fields}]
        return next(iter(fitting), sources.DataSource)

    def _of_volume(self, name: str) -> pulumi.Output[str]:
        """Return an output of the volume, known in a preview, otherwise when the fetch has succeeded."""
        known: asyncio.Future[bool] = asyncio.get_event_loop().create_future()

        async def value() -> Any:
            try:
                resource = await self._resource
                if resource is not None and not pulumi.runtime.is_dry_run():
                    await self.status.future()
                found = None
                if resource is not None:
                    found = getattr(self.volumes["volume"], name)
                known.set_result(found is None or await found.is_known())
            except BaseException as error:
                known.set_exception(error)
                raise
            if found is None:
                return None
            return await found.future()

        return pulumi.Output({self}, value(), known)

    has_run_key = False
    another_run = (
        "It runs again once its arguments or the values of its secrets have changed. To run it again without a"
        " change, use"
    )

    async def _plan(self, logical: str, source: sources.DataSource, target: Destination | None) -> Plan:
        refused = self._argument_problems(source, target)
        if refused:
            return Plan(job=new_job(logical, "default", {"kind": ""}), problems=refused)

        destination = targets.choose(target)
        place = await targets.place(destination)
        release = await choose_release(destination, place)
        name = job_name(logical, pulumi.get_project(), pulumi.get_stack())
        job = PlacedJob(name, destination, place, release)
        # Another source is another volume, and nothing trains on one that is not complete.
        inputs = new_job(job.name, place.namespace, place.target, interrupt="allow", fills=Unknown("volume.generation"))
        result = Plan(job=inputs, needs=place.needs, problems=place.problems)
        resolved = await self._resolve(source, job, result.secret_name)
        image, claim = map(resolved.document.pop, ("image", "claim"))
        spec = resolved.document
        uri, packed = spec[self.kind]["storageUri"], None
        if job.cluster and is_folder(uri):
            packed = dataset_configmap.pack(uri, read_ignore_patterns(spec[self.kind]))
        problems = self._source_problems(source, resolved, job, image)
        if packed:
            problems += packed.problems
        problems += self._wanted.output_problems(claim)
        result = result.add(StepResult(problems=problems, warnings=source.given_twice()), resolved=resolved)
        if result.problems:
            return result

        content = {**spec, "target": [type(destination).__name__, place.namespace]}
        if job.cluster:
            content["claim"] = only(claim, ("storageClass", "accessMode"))
        if packed:
            content["files"] = dict(packed.digests)
        elif is_folder(uri) and not has_unknown(content):
            try:
                content |= await asyncio.to_thread(_files, job, uri, read_ignore_patterns(spec[self.kind]))
            except Invalid as error:
                return result.add(StepResult(problems=error.problems))
        result = result.with_content(content)

        # A new URI or revision is a new volume; the old one is deleted when no job uses it any more.
        revision = _revision(result.content)
        self.claim = Claim(
            f"{logical}-volume", f"{job.name}-{revision}", revision, self._retain, claim, resolved.unknown
        )
        fetch = _fetch_runtime(self.kind, self.mount_path, Unknown("volume"), image)
        files = dict[str, Any]()
        if packed:
            name = f"{job.name}-files"
            files[f"ConfigMap/{name}"] = packed.config_map(name, place.namespace)
            self._add_files(packed.volume(name), fetch, image)
        runtime = default_runtime(fetch, job.release)
        if not job.cluster:
            spec = sources.with_absolute_paths(spec)
        train_job = default_train_job(_fetch_job(job, runtime, spec), job.release)
        hardening = None
        if "restricted" in {args.hardening for args in self.consumers}:
            hardening = "restricted"
        restricted = await is_restricted(hardening, destination, place)
        rendered = render_job(lambda release: render(runtime, train_job, release, restricted=restricted), job.release)
        mounted = StepResult(objects=files, claims={"volume": self.claim})
        return result.add(mounted).add(rendered, made=rendered.made)

    def _argument_problems(self, source: sources.DataSource, target: Destination | None) -> list[Problem]:
        found = nested_problems(source) + nested_problems(self._wanted) + targets.problems(target)
        for name, value in (("writable", self.writable), ("retain", self._retain)):
            if value is not None and not isinstance(value, bool):
                found.append(Problem(name, f"must be True or False, not {shown_value(value)}"))
        if self._image is not None and not isinstance(self._image, (str, pulumi.Output)):
            found.append(Problem("image", f"must be text, not {shown_value(self._image)}"))
        found += image_problems(self._image)
        if isinstance(source.storage_uri, str):
            for problem in check_uri(sources.absolute(source.storage_uri), self.kind):
                found.append(Problem("storage_uri", problem.why, problem.hint))
        return found

    async def _resolve(self, source: sources.DataSource, job: PlacedJob, secret_name: str) -> Resolved:
        """Return the source, the image and the claim with the known values of Outputs."""
        claim: dict[str, Any] = {}
        if job.cluster:
            claim = self._wanted.claim(several=await self._has_several_nodes())
        given = {self.kind: source.document(), "image": self._image, "claim": claim}
        resolved = await resolve(given, secret_name)
        return replace(resolved, unknown={**resolved.unknown, **job.place.unknown})

    def _source_problems(
        self, source: sources.DataSource, resolved: Resolved, job: PlacedJob, image: Any
    ) -> list[Problem]:
        document = resolved.document[self.kind]
        wrong = plaintext_secrets.problems(document, "") + source_problems(document, job.release)
        wrong = merge_problems(wrong, none_problems("TrainJob.spec.initializer.dataset", document, ""))
        problems = [*resolved.problems, *(replace(p, where=source.place(p.where)) for p in wrong)]
        if isinstance(self.storage_uri, pulumi.Output):
            problems += source.scheme_problems(document["storageUri"])
        if job.cluster and image is None:
            problems += sources.upstream_problems(document["storageUri"], self.kind)
        return problems

    async def _has_several_nodes(self) -> bool:
        """Return whether several Pods of a job mount the volume, or may do so."""
        for args in self.consumers:
            if self.kind == "model" and getattr(args.trainer, "generation", None) is not None:
                return True  # the generation server mounts it beside the nodes
            nodes: Any = _pods(args)
            if isinstance(nodes, pulumi.Output):
                if not await nodes.is_known():
                    return True
                nodes = to_whole_number(await nodes.future())
            if not isinstance(nodes, int) or nodes > 1:
                return True
        return False

    def _add_files(self, volume: dict[str, Any], fetch: dict[str, Any], image: Any) -> None:
        """Add files of this machine to the fetching runtime. Any image with Python can unpack them: the job uses the image of a
        consumer.
        """
        pod = fetch["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        pod["volumes"].append(volume)
        container["volumeMounts"].append(mount(paths.CODE_VOLUME, paths.CODE_PATH, read_only=True))
        container["command"] = dataset_configmap.COMMAND
        if image is not None:
            return
        for args in self.consumers:
            used, secrets = _image(args)
            if isinstance(used, str):
                container["image"] = used
                if secrets:
                    pod["imagePullSecrets"] = secrets
                return


class DatasetInitializer(Fetched, sources.FetchedDataset):
    """A dataset, fetched once into a volume (contract: pkg/initializers of kubeflow/trainer v2.3.0).

    Args:
        resource_name: Name of the Pulumi resource.
        storage_uri: `hf://OWNER/NAME[@REVISION][/PATH]` (in a cluster without revision and path), `s3://BUCKET/PREFIX`,
            or `file://PATH` relative to the program's working directory (to a cluster at most 900 kB, in a ConfigMap).
        ignore_patterns: Name patterns of files to leave out, without commas (`IGNORE_PATTERNS`).
        access_token: Token of the hub, as a secret Output (`ACCESS_TOKEN`).
        endpoint: URL of the S3 service; default: AWS (`ENDPOINT`).
        region: Region of the bucket (`REGION`).
        role_arn: ARN of the role to assume (`ROLE_ARN`).
        access_key_id: Access key, as a secret Output; default: the environment of the initializer (`ACCESS_KEY_ID`).
        secret_access_key: Secret key, as a secret Output; default: the environment of the initializer
            (`SECRET_ACCESS_KEY`).
        env: Other environment variables of the initializer.
        secret_ref: Name of a Secret of the cluster with the credentials (`secretRef.name`).
        retain: Whether to keep the volume when the resource is deleted; default: False, unless `opts` has `retain_on_delete`.
        writable: Whether jobs may change the data; default: False, they mount it read-only.
        size: Size of the claim as a quantity; default: 20Gi. Ignored on this machine.
        storage_class: StorageClass; default: that of the cluster. Ignored on this machine.
        access_mode: Access mode; default: ReadWriteOnce, or ReadWriteMany if a job mounts the volume on more than one node. Jobs
            that run at the same time on different nodes need ReadWriteMany as well.
        image: Image that fetches it in a cluster; default: Trainer's initializer, for `file://` the image of the first
            TrainJob that mounts it.
        target: `Local(...)` or `Kubernetes(...)`; default: `trainer:target` of the stack, else Local.
        opts: Resource options.
    """

    kind = "dataset"
    mount_path = paths.DATASET_PATH
    classes = {"hf": sources.HuggingFaceDatasetInitializer, "s3": sources.S3DatasetInitializer}


class ModelInitializer(Fetched, sources.FetchedModel):
    """A model, fetched once into a volume (contract: pkg/initializers of kubeflow/trainer v2.3.0).

    Args:
        resource_name: Name of the Pulumi resource.
        storage_uri: `hf://OWNER/NAME[@REVISION][/PATH]` (in a cluster without revision and path), `s3://BUCKET/PREFIX`,
            or `file://PATH` relative to the program's working directory (to a cluster at most 900 kB, in a ConfigMap).
        ignore_patterns: Name patterns of files to leave out, without commas (`IGNORE_PATTERNS`).
        access_token: Token of the hub, as a secret Output (`ACCESS_TOKEN`).
        endpoint: URL of the S3 service; default: AWS (`ENDPOINT`).
        region: Region of the bucket (`REGION`).
        role_arn: ARN of the role to assume (`ROLE_ARN`).
        access_key_id: Access key, as a secret Output; default: the environment of the initializer (`ACCESS_KEY_ID`).
        secret_access_key: Secret key, as a secret Output; default: the environment of the initializer
            (`SECRET_ACCESS_KEY`).
        env: Other environment variables of the initializer.
        secret_ref: Name of a Secret of the cluster with the credentials (`secretRef.name`).
        retain: Whether to keep the volume when the resource is deleted; default: False, unless `opts` has `retain_on_delete`.
        writable: Whether jobs may change the model; default: False, they mount it read-only.
        size: Size of the claim as a quantity; default: 20Gi. Ignored on this machine.
        storage_class: StorageClass; default: that of the cluster. Ignored on this machine.
        access_mode: Access mode; default: ReadWriteOnce, or ReadWriteMany if a job mounts the volume on more than one node. Jobs
            that run at the same time on different nodes need ReadWriteMany as well.
        image: Image that fetches it in a cluster; default: Trainer's initializer, for `file://` the image of the first
            TrainJob that mounts it.
        target: `Local(...)` or `Kubernetes(...)`; default: `trainer:target` of the stack, else Local.
        opts: Resource options.
    """

    kind = "model"
    mount_path = paths.MODEL_PATH
    classes = {"hf": sources.HuggingFaceModelInitializer, "s3": sources.S3ModelInitializer}


def _pods(args: TrainJobArgs) -> Any:
    """Return the number of Pods that mount the data of a job."""
    runtime = _runtime_document(args)
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    trainer = args.trainer
    nodes = getattr(trainer, "own_nodes", None)
    if nodes is None:
        nodes = nodes_of(None, policy)
    return training_pods(nodes, policy)


def _image(args: TrainJobArgs) -> tuple[Any, Any]:
    """Return the image of a job's nodes, and its pull secrets."""
    runtime = _runtime_document(args)
    step = mounts.steps_of(runtime)[0]
    pod = mounts.pod_of(runtime, step)
    image = getattr(args.trainer, "image", None) or mounts.containers_of(runtime, step).get("node", {}).get("image")
    return image, pod.get("imagePullSecrets")


def _runtime_document(args: TrainJobArgs) -> dict[str, Any]:
    given = args.runtime
    if isinstance(given, str):
        return from_catalogue(given)[0]
    return getattr(given, "plain", None) or {}


def _revision(content: Any) -> str:
    if has_unknown(content):
        return "unknown"
    return short_digest(content, VERSION)


def _files(job: PlacedJob, uri: str, ignore: list[str]) -> dict[str, Any]:
    """Return the part of `content` for files of this machine: their fingerprint."""
    target = job.place.target
    source, kept = Path(uri.removeprefix("file://")).resolve(), Path(target["root"], "volumes").resolve()
    if source in (kept, *kept.parents):
        why = f"{source} contains {kept}, the folder into which its files would be copied"
        raise Invalid(
            Problem(
                "storage_uri", why, "move the data into its own folder, or choose another root: target=Local(root=)"
            )
        )
    try:
        return {"files": fingerprint(sources.absolute(uri), ignore)}
    except TrainerError as error:
        found = [Problem("storage_uri", f"{p.where} {p.why}", p.hint) for p in error.problems]
        raise Invalid(*found) from None


def _fetch_runtime(kind: str, path: str, claim: Any, image: Any) -> dict[str, Any]:
    """Return a runtime with one step, the upstream initializer of that kind."""
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


def _fetch_job(job: PlacedJob, runtime: dict[str, Any], initializer: dict[str, Any]) -> dict[str, Any]:
    spec = {"runtimeRef": {"name": runtime["metadata"]["name"]}, "initializer": initializer}
    metadata = {"name": job.name, "namespace": job.place.namespace}
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}
