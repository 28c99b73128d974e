"""From the arguments of a TrainJob to its documents: what the user wrote, the TrainJob document, and its rendered objects.

A `CustomTrainer` becomes a plain TrainJob document and a ConfigMap, so the pipeline knows documents only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_trainer.provider.admission import default_runtime, default_train_job
from pulumi_trainer.provider.api import code as paths
from pulumi_trainer.provider.api import trainer as api
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.api.model import problems as document_problems
from pulumi_trainer.provider.api.unknown import Unknown
from pulumi_trainer.provider.lifecycle.identity import job_name, short_digest
from pulumi_trainer.provider.pipeline import render, validate

from . import destinations, plaintext, shipping, sources
from .arguments import Args, nested_problems, to_document
from .datasets import Fetched
from .destinations import Destination
from .job import Plan
from .resolve import first_unknown, resolve
from .runtime import API_VERSION, FRAMEWORK, ClusterTrainingRuntime, from_catalogue
from .template import ANCESTOR
from .trainers import Trainer
from .volumes import Claim, OutputVolume, mount, pod_volume, run_env
from .watch import REACHED

MANAGER = "pulumi-trainer.dev/program"
"""Manager of the runtimePatch that mounts code and volumes."""

FOLDERS = {
    "dataset": ("TRAINER_DATASET_DIR", paths.DATASET_PATH),
    "model": ("TRAINER_MODEL_DIR", paths.MODEL_PATH),
    "output": ("TRAINER_OUTPUT_DIR", paths.OUTPUT_PATH),
}
"""Kind of volume -> the variable that tells user code, and where it is mounted."""


class TrainJobArgs(Args):
    """The arguments of `TrainJob`, see there."""

    runtime: ClusterTrainingRuntime | str | None = None
    trainer: Trainer | None = None
    initializer: sources.Initializer | None = None
    runtime_patches: pulumi.Input[Sequence[Mapping[str, Any]]] | None = None
    labels: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    annotations: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    suspend: pulumi.Input[bool] | None = None
    active_deadline_seconds: pulumi.Input[int] | None = None
    managed_by: pulumi.Input[str] | None = None
    name: str | None = None
    output: bool | OutputVolume = False
    resume: bool = True
    run: str = "1"
    wait_for: str = "created"
    interrupt: str = "refuse"
    adopt: bool = False
    target: Destination | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        kinds: dict[str, tuple[type, ...]] = {"runtime": (ClusterTrainingRuntime, str), "trainer": (Trainer, type(None)),
                 "initializer": (sources.Initializer, type(None)), "output": (bool, OutputVolume), "resume": (bool,),
                 "run": (str,), "adopt": (bool,), "name": (str, type(None))}  # fmt: skip
        for field, types in kinds.items():
            if not isinstance(value := getattr(self, field), types):
                wanted = " or ".join(t.__name__ for t in types if t is not type(None))
                found.append(Problem(field, f"must be {wanted}, not {value!r}"))
        for field, values in {"wait_for": tuple(REACHED), "interrupt": ("refuse", "allow")}.items():
            if getattr(self, field) not in values:
                found.append(Problem(field, f"must be one of {', '.join(values)}, not {getattr(self, field)!r}"))
        return found


async def plan(logical: str, args: TrainJobArgs) -> Plan:
    """Everything that a TrainJob submits, or what is wrong with it."""
    found = nested_problems(args) + destinations.problems(args.target)
    if found:
        return Plan(logical, "default", {"kind": ""}, problems=found)
    destination = destinations.choose(args.target)
    name = args.name or job_name(logical, pulumi.get_project(), pulumi.get_stack())
    result = Plan(
        name, destinations.namespace_of(destination), destinations.connection(destination),
        run=args.run, interrupt=args.interrupt, adopt=args.adopt,
    )  # fmt: skip
    runtime = await _runtime(args, result)
    if result.problems:
        return result
    framework = runtime.get("metadata", {}).get("labels", {}).get(FRAMEWORK, "")
    compiled = (args.trainer or Trainer()).compiled(framework)
    result.problems += [p.below("trainer") for p in compiled.problems]
    wish = {
        "trainer": compiled.document,
        "code": vars(compiled.code) if compiled.code else {},
        "initializer": _sources(args.initializer),
        "spec": _own_fields(args),
        "metadata": {
            k: to_document(v, free=True) for k in ("labels", "annotations") if (v := getattr(args, k)) is not None
        },
    }
    result.resolved = await resolve({"wish": wish, "mounts": _fetched(args), "runtime": runtime}, result.secret_name)
    result.problems += [_told(p) for p in result.resolved.problems]
    document = result.resolved.document
    wish, mounts, runtime = document["wish"], document["mounts"], document["runtime"]
    result.problems += [
        Problem(f"initializer.{kind}", "is refused, see there") for kind, claim in mounts.items() if claim is None
    ]
    result.content = _content(args, destination, wish, runtime, result)
    result.runtime = {
        "name": runtime["metadata"]["name"],
        "digest": first_unknown(runtime) or short_digest(runtime, 12),
    }
    train_job = _train_job(result, wish, runtime)
    result.problems += [_told(p) for p in document_problems(api.TrainJob, train_job)]
    result.problems += plaintext.problems(wish["trainer"].get("env"), "trainer.env")
    if not result.problems:
        if args.output:
            wanted = args.output if isinstance(args.output, OutputVolume) else OutputVolume()
            claim = Claim(f"{logical}-output", f"{result.name}-output", retain=bool(wanted.retain))
            result.claims["output"] = claim
            mounts = {**mounts, "output": Unknown("output")}
        _add_folders(train_job, result, wish, mounts, runtime, fresh_output=not args.resume)
        runtime, train_job = default_runtime(runtime), default_train_job(train_job)
        result.problems += [_told(p) for p in validate(runtime, train_job)]
        result.rendered(lambda: render(runtime, train_job))
    return result


async def _runtime(args: TrainJobArgs, result: Plan) -> dict[str, Any]:
    if isinstance(args.runtime, str):
        document, found = from_catalogue(args.runtime)
        result.problems += [p.below("runtime") for p in found]
        return document
    assert args.runtime is not None
    if await args.runtime.problems:
        result.problems.append(Problem("runtime", f"{args.runtime.where} is refused, see there"))
    return args.runtime.plain


def _fetched(args: TrainJobArgs) -> dict[str, Any]:
    """Kind of folder -> name of the claim that holds what was fetched before."""
    sources_ = {kind: getattr(args.initializer, kind, None) for kind in ("dataset", "model")}
    return {kind: source.volume for kind, source in sources_.items() if isinstance(source, Fetched)}


def _sources(initializer: sources.Initializer | None) -> dict[str, Any]:
    """`spec.initializer`: what is fetched inside the job."""
    given = {kind: getattr(initializer, kind, None) for kind in ("dataset", "model")}
    return {kind: source.document() for kind, source in given.items() if isinstance(source, sources.Source)}


def _own_fields(args: TrainJobArgs) -> dict[str, Any]:
    fields = {
        "suspend": args.suspend,
        "activeDeadlineSeconds": args.active_deadline_seconds,
        "managedBy": args.managed_by,
        "runtimePatches": args.runtime_patches,
    }
    return {k: to_document(v) for k, v in fields.items() if v is not None}


def _content(
    args: TrainJobArgs, destination: Destination, wish: dict[str, Any], runtime: dict[str, Any], result: Plan
) -> dict[str, Any]:
    """What the user wrote, without what is derived from names of stack and resource or from the runtime's content: the job
    keeps the runtime it was created with."""
    return {
        "wish": wish,
        "runtime": [runtime.get("kind"), runtime["metadata"]["name"]],
        "target": [type(destination).__name__, result.namespace],
        "name": args.name,
        "output": bool(args.output),
        "resume": args.resume,
        "run": args.run,
        "mounts": sorted(k for k in ("dataset", "model") if isinstance(getattr(args.initializer, k, None), Fetched)),
    }


def _train_job(result: Plan, wish: dict[str, Any], runtime: dict[str, Any]) -> dict[str, Any]:
    """The TrainJob document. It always has a trainer section: without one, upstream injects no PET_* and n nodes would
    train n models."""
    spec = {
        "runtimeRef": {
            "apiGroup": API_VERSION.partition("/")[0], "kind": runtime["kind"], "name": runtime["metadata"]["name"],
        },
        "trainer": wish["trainer"],
        **wish["spec"],
    }  # fmt: skip
    if wish["initializer"]:
        spec["initializer"] = sources.located(wish["initializer"])
    metadata = {"name": result.name, "namespace": result.namespace, **wish["metadata"]}
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def _add_folders(
    train_job: dict[str, Any], result: Plan, wish: dict[str, Any], mounts: dict[str, Any], runtime: dict[str, Any],
    fresh_output: bool,
) -> None:  # fmt: skip
    """Mounts code, dataset, model and output by one runtimePatch, and tells user code where they are."""
    spec = train_job["spec"]
    volumes: list[dict[str, Any]] = []
    volume_mounts: list[dict[str, Any]] = []
    env: list[dict[str, Any]] = []
    if wish["code"]:
        data = shipping.files(**wish["code"])
        size = sum(len(str(v)) for v in data.values())
        if size > shipping.LIMIT:
            why = f"code and func_args have {size} bytes, and a ConfigMap holds {shipping.LIMIT}"
            result.problems.append(Problem("trainer", why, "pass large values as a file in a volume"))
        name = f"{result.name}-code"  # no digest in it: the plan could not show changed code line by line
        metadata = {"name": name, "namespace": result.namespace}
        result.objects[f"ConfigMap/{name}"] = {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data,
        }  # fmt: skip
        volumes.append({"name": paths.CODE_VOLUME, "configMap": {"name": name}})
        volume_mounts.append(mount(paths.CODE_VOLUME, paths.CODE_PATH, read_only=True))
    for kind, claim in mounts.items():
        volumes.append(pod_volume(f"trainer-{kind}", claim, read_only=kind != "output"))
        fresh = kind == "output" and fresh_output
        folder = FOLDERS[kind][1]
        volume_mounts.append(mount(f"trainer-{kind}", folder, read_only=kind != "output", run_folder=fresh))
        env += [run_env()] if fresh else []
    inline = list(wish["initializer"])
    env += [{"name": FOLDERS[k][0], "value": FOLDERS[k][1]} for k in dict.fromkeys([*mounts, *inline])]
    given = _known_items(wish["trainer"].get("env"))
    named = {e["name"] for e in given}
    added = [e for e in env if e["name"] not in named]
    if added:
        spec["trainer"] = {**wish["trainer"], "env": [*added, *given]}
    if volumes:
        pod = {"volumes": volumes, "containers": [{"name": "node", "volumeMounts": volume_mounts}]}
        step = {"name": _trainer_step(runtime), "template": {"spec": {"template": {"spec": pod}}}}
        patch = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [step]}}}}
        spec["runtimePatches"] = [patch, *_known_items(spec.get("runtimePatches"))]


def _known_items(value: Any) -> list[Any]:
    """A list; none of it while the whole list is not known yet."""
    return value if isinstance(value, list) else []


def _trainer_step(runtime: dict[str, Any]) -> str:
    """The replicated job that takes the trainer section."""
    jobs = runtime.get("spec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", [])
    labels = {j["name"]: j.get("template", {}).get("metadata", {}).get("labels", {}).get(ANCESTOR) for j in jobs}
    return next((name for name, step in labels.items() if step == "trainer"), "node")


def _told(problem: Problem) -> Problem:
    """A path of the documents in the words of the arguments."""
    where = problem.where
    for prefix in ("wish.spec.", "wish.metadata.", "wish.code.", "wish.", "spec.", "metadata."):
        if where.startswith(prefix):
            where = ("trainer." if prefix == "wish.code." else "") + where.removeprefix(prefix)
            break
    return Problem(where, problem.why, problem.mend)
