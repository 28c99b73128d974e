"""What makes a TrainJob another one: what the user wrote, and the versions of the data that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pulumi_trainer.args import sources
from pulumi_trainer.args.arguments import as_sequence
from pulumi_trainer.plan.checkpoint_policy import CheckpointPolicy
from pulumi_trainer.plan.job_plan import PlacedJob
from pulumi_trainer.plan.local_files import is_folder, packages_version, version_of
from pulumi_trainer.plan.outputs import FreeForm
from pulumi_trainer.plan.trainjob_args import WRITTEN, TrainJobArgs
from pulumi_trainer.plan.volume_claims import FetchedData
from pulumi_trainer.plan.written_job import WrittenJob, fetched_data, writable_data
from pulumi_trainer.provider.jobs.identity import digest
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown


def written_content(args: TrainJobArgs, job: PlacedJob, written: WrittenJob) -> dict[str, Any]:
    """Return what the user wrote, without parts that depend on names of stack and resource or on the content of the runtime:
    the job keeps the runtime it was created with."""
    content: dict[str, Any] = {
        WRITTEN: written.fields,
        "runtime": [written.runtime.get("kind"), written.runtime["metadata"]["name"]],
        "target": [type(job.destination).__name__, job.place.namespace, job.mode],
        "name": args.name,
        "output": args.output_volume is not None,
        "run": args.run_key,
        "mounts": sorted(fetched_data(args)),
    }
    writable = writable_data(args)
    if writable:
        content["writable"] = writable
    if args.checkpoint is not None:
        content["checkpoint"] = {name: getattr(args.checkpoint, name) for name in CHECKPOINT_FIELDS}
    if args.fork is not None:
        content["fork"] = [args.fork.run, args.fork.step, [*as_sequence(args.fork.reset)]]
    if args.hardening is not None:  # that of the stack is, as the runtime's content, for the next run
        content["hardening"] = args.hardening
    return content


CHECKPOINT_FIELDS = tuple(name for name in CheckpointPolicy.fields if name != "to")
"""Fields of a checkpoint policy that change the job: a volume has a plan of its own."""


def secret_arguments(func_args: FreeForm) -> Any:
    """Return the arguments for the digest if the job's Secret contains them; else None."""
    if func_args.document is not None:
        return None
    return func_args.content


def digest_without_code(rerun_on: Sequence[str] | None, content: Mapping[str, Any]) -> str:
    """Return the digest of what the user wrote apart from the code; empty if a change of the code starts a new run, and in a
    preview that does not know it yet."""
    if rerun_on is None or "code" in rerun_on:
        return ""
    rest = {**content, WRITTEN: {**content[WRITTEN], "code": None}}
    return "" if first_unknown(rest) else digest(rest)[:32]


async def read_data_versions(
    args: TrainJobArgs, fields: Mapping[str, Any], *, cluster: bool
) -> dict[str, dict[str, str]]:
    """Return kind -> name and version of the data that the job reads, if the plan knows a version. Packages of this machine count
    as data if they are installed on it.
    """
    found: dict[str, dict[str, str]] = {}
    inline = fields["initializer"]
    for kind in ("dataset", "model"):
        source = sources.parts(args.initializer).get(kind)
        if isinstance(source, FetchedData) and source.claim is not None:
            found[kind] = {"name": source.label, "version": source.claim.digest}
        elif not cluster:
            uri = inline.get(kind, {}).get("storageUri")
            if is_folder(uri):
                found[kind] = {"name": uri, "version": await version_of(uri, inline[kind])}
    packages = (fields["code"] or {}).get("packages") or []
    if cluster or not isinstance(packages, list) or not all(isinstance(word, str) for word in packages):
        return found
    version = await packages_version(packages)
    if version:
        found["packages"] = {"name": "of this machine", "version": version}
    return found
