"""What a program's TrainJob is made into, without Pulumi's engine: the plan of the component, for the tests to send."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.plan import runtime_ref, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.outputs import restore_outputs
from pulumi_trainer.provider.jobs.submission import Submission

Document = dict[str, Any]


def plan(patch: pytest.MonkeyPatch, runtime: Document, namespace: str, mode: Any = "jobset", **given: Any) -> Plan:
    """Of a TrainJob called `job`, on a runtime document; without problems."""
    patch.setattr(pulumi.runtime.settings, "SETTINGS", pulumi.runtime.Settings(project="project", stack="stack"))
    for finder in ("_runtime_by_name", "from_catalogue"):
        patch.setattr(runtime_ref, finder, lambda *_: (copy.deepcopy(runtime), []))

    async def planning() -> Plan:
        where = trainer.Kubernetes(mode=mode, namespace=namespace)
        args = trainjob_plan.TrainJobArgs("job", **{"runtime": "r", "target": where, "name": "job", **given})
        return await trainjob_plan.plan(args)

    made = asyncio.run(planning())
    assert [str(p) for p in made.problems] == []
    return made


def sent(made: Plan, *, owner: str = "owner", digest: str = "digest") -> Submission:
    """What the provider sends of it; claims have their own names."""
    return Submission(made.namespace, made.name, owner, digest, named(made, made.objects), sweep="stack")


def named(made: Plan, documents: Any) -> Any:
    """Documents with the names of the plan's claims in them."""
    claims: Any = {token: claim.name for token, claim in made.claims.items()}
    return restore_outputs(documents, claims)
