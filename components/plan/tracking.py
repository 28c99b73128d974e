"""What `TrainJob(tracking=)` adds to a job: variables of its nodes, what it lacks for the tracker, and what the link needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
from pulumi_trainer.args.tracking import Tracker
from pulumi_trainer.code.user_code import tool_packages
from pulumi_trainer.plan.job_plan import PlacedJob, StepResult
from pulumi_trainer.plan.packages import lacks
from pulumi_trainer.plan.written_job import WrittenJob
from pulumi_trainer.program import targets
from pulumi_trainer.provider.jobs.lineage import RUN_ID_ENV
from pulumi_trainer.provider.jobs.tracking import FILES, FOLDERS, OFFLINE, run_name
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, mappings
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.pod import code as paths

_RUN = f"$({RUN_ID_ENV})"
"""Stands for the id of the run, which Kubernetes fills in: it is known when the run is created."""


_PROJECTS = {"mlflow": "MLFLOW_EXPERIMENT_NAME", "wandb": "WANDB_PROJECT", "trackio": "TRAINER_TRACKING_PROJECT"}
"""Kind of a tracker -> variable with the name that groups its runs."""


def tracking_variables(tracking: Mapping[str, Any], job: str) -> list[dict[str, Any]]:
    """Return the environment variables of the nodes, behind that of the run's id, which they refer to.

    Args:
        tracking: Kind of the tracker and the variables that its fields set; empty for a job without one.
        job: Name of the job.
    """
    if not tracking:
        return []
    kind, run, project = tracking["kind"], run_name(job, _RUN), pulumi.get_project()
    values = {"TRAINER_TRACKING": kind, "TRAINER_TRACKING_NAME": run}
    if kind == "mlflow":
        values["MLFLOW_EXPERIMENT_NAME"] = project
    elif kind == "wandb":
        values |= {"WANDB_MODE": tracking["mode"], "WANDB_PROJECT": project, "WANDB_RUN_ID": run, "WANDB_NAME": run}
        values |= {"WANDB_RUN_GROUP": job, "WANDB_JOB_TYPE": "train", "WANDB_TAGS": f"{job},{_RUN}"}
        values |= {"WANDB_DIR": paths.OUTPUT_PATH} if tracking["mode"] == OFFLINE else {"WANDB_RESUME": "allow"}
    elif kind == "tensorboard":
        values["TENSORBOARD_LOGGING_DIR"] = f"{paths.OUTPUT_PATH}/{FOLDERS[kind]}/{run}"
    else:
        values |= {"TRACKIO_DIR": f"{paths.OUTPUT_PATH}/{FOLDERS[kind]}", "TRAINER_TRACKING_PROJECT": project}
    given = listed(tracking["env"])
    names = {each["name"] for each in given}
    return [*({"name": name, "value": value} for name, value in values.items() if name not in names), *given]


def variables_set_in_pods(tracking: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the names of the variables that a Pod sets before the program starts: MLflow gives a run its id."""
    if tracking.get("kind") != "mlflow":
        return []
    return [{"name": "MLFLOW_RUN_ID"}, {"name": "TRAINER_TRACKING_RUN"}]


def judge_tracking(
    tracker: Tracker | None, written: WrittenJob, job: PlacedJob, jobsets: Iterable[Document]
) -> StepResult:
    """Return what the rendered job lacks for its tracker."""
    if tracker is None:
        return StepResult()
    return StepResult(problems=_problems(tracker, written, job, jobsets))


def _problems(tracker: Tracker, written: WrittenJob, job: PlacedJob, jobsets: Iterable[Document]) -> list[Problem]:
    code = written.fields["code"]
    if not code and tracker.kind == "mlflow":
        why = "MLflow requires func, script, module or source: with an image's own command nothing makes the run of the job"
        return [Problem("tracking", why, "use script=, or set MLFLOW_RUN_ID and MLFLOW_TRACKING_URI in env")]
    forwards = written.compiled.training and tracker.kind == "mlflow"
    if not code or forwards or first_unknown(code) is not None:
        return []
    if code.get("tool"):
        code = {**code, "packages": tool_packages(code["tool"], code.get("packages"), code.get("server"))}
    here = isinstance(job.destination, targets.Local)
    if here and getattr(job.destination, "python", None) is not None:
        return []
    if not lacks(tracker.packages, code, written.runtime["metadata"]["name"], jobsets, here=here):
        return []
    name = tracker.packages[0]
    why = f"{tracker.title} requires {name}, which neither the packages of the job nor its image have"
    if here:
        why = f"{tracker.title} requires {name}, which neither the packages of the job nor this Python have"
    return [Problem("tracking", why, f'packages_to_install=["{name}"] of the trainer installs it')]


def describe_tracking(tracking: Mapping[str, Any], env: Any) -> str:
    """Return kind, place and project of a job's tracker; empty without one, or if its place is not known.

    Args:
        env: The environment variables of the nodes: those that the user has set count.
    """
    kind = tracking.get("kind", "")
    values = {each.get("name"): each.get("value") for each in mappings(env)}
    if not kind or first_unknown(values) is not None:
        return str(kind)
    project = values.get(_PROJECTS.get(kind, ""))
    if kind == "mlflow":
        place = values.get("MLFLOW_TRACKING_URI") or ""
    elif kind == "wandb" and values.get("WANDB_MODE") != OFFLINE:
        place = values.get("WANDB_BASE_URL") or "https://wandb.ai"
        project = "/".join(filter(None, [values.get("WANDB_ENTITY"), project]))
    else:
        place = OFFLINE if kind == "wandb" else FILES
    return " ".join(filter(None, [kind, place, project]))
