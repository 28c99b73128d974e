"""What a rendered job warns of: the rules of Trainer and queues, and the needs of a fine-tuning tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pulumi_trainer.args.fine_tuning import table
from pulumi_trainer.plan import mounts
from pulumi_trainer.plan.gpu_precision import precision_problems
from pulumi_trainer.plan.job_plan import PlacedJob, RenderedJob, StepResult
from pulumi_trainer.plan.review import classified_warnings, queue_refusals
from pulumi_trainer.plan.tool_job import (
    batch_problems,
    lost_output_problems,
    missing_paths,
    nodes_have_gpus,
    parallel_problems,
    path_warnings,
)
from pulumi_trainer.plan.tool_needs import Needs
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.plan.written_job import WrittenJob
from pulumi_trainer.program import queue_lints, session
from pulumi_trainer.provider.jobs.gpu_memory import Training
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import listed
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.admission.warnings import Warning, subdomain


def find_warnings(
    args: TrainJobArgs, runtime: dict[str, Any], train_job: dict[str, Any], rendered: RenderedJob, job: PlacedJob,
    queues: Queues, training: Training | None,
) -> StepResult:  # fmt: skip
    """Return the known problems that pass admission and fail later."""
    siblings = _share_subdomains(rendered.jobsets.values())
    refused, warned = classified_warnings(
        runtime, train_job, rendered.made, siblings, job.release, cluster=job.cluster, queues=queues, mode=job.mode,
        opens_network=session.current().has_network_policies, training=training,
    )  # fmt: skip
    problems = by_arguments(refused, args)
    if job.cluster:
        for key, document in rendered.jobsets.items():
            problems += problems_below(key, queue_refusals(train_job, document))
    placed = by_arguments(warned, args)
    notes = [each for each in placed if isinstance(each, Warning) and each.is_note]
    remaining = [each for each in placed if each not in notes]
    return StepResult(problems=problems, warnings=remaining, notes=[*map(str, notes)])


def judge_tool(
    written: WrittenJob, args: TrainJobArgs, job: PlacedJob, jobsets: list[dict[str, Any]], queues: Queues
) -> StepResult:
    """Return what the rendered job lacks for the fields of a fine-tuning tool."""
    trainer, arguments = written.tool, written.func_args.visible
    if trainer is None:
        return StepResult()
    config = None
    if isinstance(arguments, Mapping):
        config = arguments.get("config")
    batch = table(trainer.tool).get("batches", {}).get(trainer.method_name(), {})
    needs = Needs(trainer, config, jobsets, cluster=job.cluster)
    found = [
        *trainer.gpu_problems(on_gpu=nodes_have_gpus(jobsets)),
        *needs.problems(),
        *batch_problems(config, batch, jobsets),
        *parallel_problems(config, jobsets),
        *lost_output_problems(config, jobsets, cluster=job.cluster),
    ]
    problems = [*problems_below("trainer", found), *precision_problems(config, jobsets, queues)]
    warnings = problems_below("trainer", needs.warnings())
    inputs = trainer.model, trainer.dataset
    if job.cluster:
        warnings += path_warnings(inputs, config, jobsets)
    elif args.opts is None or args.opts.depends_on is None:  # else what it depends on may write them
        problems += problems_below("trainer", missing_paths(inputs, config, jobsets))
    return StepResult(problems=problems, warnings=warnings)


def _share_subdomains(jobsets: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the JobSets of the program with the same subdomain, and remember these for later jobs."""
    known, siblings = session.current().jobsets, []
    documents = [*jobsets]
    names = [name for name in map(subdomain, documents) if isinstance(name, str)]
    for name in names:
        siblings += known.get(name, [])
    for name in names:
        known.setdefault(name, []).extend(documents)
    return siblings


def by_arguments(problems: Sequence[Problem], args: TrainJobArgs) -> list[Problem]:
    """Return problems of documents by the paths of the arguments. Those of a queue keep theirs."""
    found = []
    for problem in problems:
        if not problem.where.startswith(queue_lints.ABOUT_QUEUES):
            problem = replace(problem, where=args.place(problem.where), hint=_python_hint(problem))
        found.append(problem)
    return found


def _python_hint(problem: Problem) -> str:
    """Return the hint of a problem of a document, for the author of a program."""
    for kind in ("dataset", "model"):
        if problem.where == "spec.runtimeRef" and problem.why.startswith(f"must have {kind}-initializer job"):
            before = f"initializer=Initializer({kind}={kind.capitalize()}Initializer(...))"
            return f"fetch the {kind} before the job: {before}; or {problem.hint}"
    return problem.hint


CACHED = "initializer.dataset.storage_uri"


NO_CACHE = Problem(
    CACHED,
    "the data cache runs as pods in a cluster, which the Local target does not have",
    "use the Kubernetes target, or hf://, s3:// or file:// here",
)


CACHE_NEEDS_TOKEN = Problem(
    "hardening",
    "the initializer of the data cache cannot be restricted: it creates Pods with the token of its service account",
    'use hf:// or s3:// instead of cache://, or hardening="none" for this job',
)


def cache_warnings(job: PlacedJob, source: dict[str, Any], runtime: dict[str, Any]) -> list[Problem]:
    """Return later failures of the data cache's initializer (pkg/initializers/dataset/cache.py)."""
    found = []
    if job.mode == "jobset":
        why = (
            "the data cache needs a TrainJob object, which mode jobset does not create: the job would start without"
            " a cache"
        )
        found.append(Problem(CACHED, why, "use mode trainer"))
    container = mounts.containers_of(runtime, mounts.INITIALIZER).get(mounts.INITIALIZER, {})
    env = [*listed(source.get("env")), *listed(container.get("env"))]
    others = [source.get("secretRef"), container.get("envFrom"), not isinstance(source.get("env", []), list)]
    if not any(others) and "IAM_ROLE" not in {e.get("name") for e in env}:
        why = "the initializer does not start without IAM_ROLE"
        found.append(Problem("initializer.dataset.iam_role", why, "give iam_role, or set IAM_ROLE in the runtime"))
    return found
