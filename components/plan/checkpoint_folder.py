"""What a plan knows of the folder in S3 with a job's checkpoints: whose it is.

The first process of a container looks again before it reads or writes there (`sync_checkpoints.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from pulumi_trainer.plan.checkpoint_policy import checkpoint_place
from pulumi_trainer.plan.job_plan import Plan, StepResult
from pulumi_trainer.plan.mounts import Folders
from pulumi_trainer.program import session
from pulumi_trainer.program.object_owner import ObjectOwner
from pulumi_trainer.program.removals import jobs_of as recorded_jobs
from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_TO
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.terminal import plain
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.pod.shared import s3

OWNER_FILE = "owner.json"
"""The object with the owner mark, as `checkpoint_store.py` writes it."""
_BUCKET_SECONDS = 5
"""Seconds that a plan waits for S3."""
_LONGEST_OWNER = 1 << 16
_LONGEST_NAME = 300
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")

_Bucket: Callable[..., Any] = s3.Bucket
_failure: Callable[..., Exception] = s3.Failed


async def review_folder(plan: Plan, folders: Folders, jobsets: Sequence[Mapping[str, Any]]) -> StepResult:
    """Return why a job cannot use its folder in S3, or that it takes the folder over.

    Nothing is asked for a job that stays as it is, and nothing is known if the plan has no credentials or S3 does not answer.
    """
    if folders.s3_folder is None or not isinstance(plan.namespace, str):
        return StepResult()
    recorded = recorded_jobs(await session.current().stack_resources())
    known = recorded.get(f"{plan.namespace}/{plan.name}")
    if known == plan.content_digest:
        return StepResult()
    env = await _environment(plan, jobsets)
    address = env.get(CHECKPOINT_TO)
    if not address:
        return StepResult()
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    place = checkpoint_place(plan.name, plan.namespace)
    folder = "/".join(filter(None, [prefix.strip("/"), place])) + "/"
    where, is_new = f"s3://{bucket}/{folder}", known is None
    try:
        if not all(map(env.get, _KEYS)):
            raise _failure("the plan does not know the credentials")
        there = _Bucket(bucket, env, tries=1, timeout=_BUCKET_SECONDS)
        owner = await asyncio.to_thread(_read_owner, there, folder)
    except s3.Failed as error:
        why = f"{where}: whose folder it is, is not known: {error}. The job looks when it starts"
        return StepResult(notes=[why] if is_new else [])
    return _judge(plan, where, owner, await session.current().object_owner())


async def _environment(plan: Plan, jobsets: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the variables of the container that saves checkpoints, as far as the plan knows their values."""
    found = dict[str, str]()
    for job in chain.from_iterable(map(jobs_of, jobsets)):
        for container in job.pod.containers:
            variables = {text(each.get("name")): each for each in mappings(container.env)}
            if CHECKPOINT_TO in variables:
                for name, variable in variables.items():
                    found[name] = await _value(plan, variable)
    return {name: value for name, value in found.items() if value}


async def _value(plan: Plan, variable: Mapping[str, Any]) -> str:
    """Return the value of an environment variable; empty if it is not known."""
    ref = section(variable, "valueFrom", "secretKeyRef")
    secret = plan.resolved.secrets.get(text(ref.get("key")))
    if ref.get("name") == plan.secret_name and secret is not None:
        return text(await secret.future())
    return text(variable.get("value"))


def _read_owner(bucket: Any, folder: str) -> str:
    """Return the owner mark of a folder; empty if it has none."""
    try:
        return text(section(json.loads(bucket.read(folder + OWNER_FILE, _LONGEST_OWNER))).get("owner"))
    except (ValueError, RecursionError):
        raise _failure(f"{OWNER_FILE} is not valid JSON") from None
    except s3.Failed as error:
        if error.status != 404:
            raise
    return ""


def _judge(plan: Plan, where: str, owner: str, me: ObjectOwner) -> StepResult:
    """Return what the owner of a folder means for a job."""
    is_foreign = bool(owner) and (not me.mark or owner.rpartition("/")[2] != me.mark.rpartition("/")[2])
    if not is_foreign:
        return StepResult()
    called = plain(me.called(owner[:_LONGEST_NAME]))
    if plan.job.adopt:
        return StepResult(notes=[f"{where} belongs to {called} and is taken over"])
    hint = "give another to=, or take the folder over with adopt=True on the TrainJob, as after `pulumi destroy`"
    return StepResult(problems=[Problem("checkpoint.to", f"{where} belongs to {called}", hint)])
