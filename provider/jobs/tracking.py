"""Where the metrics of a run are shown: the link to its run on the tracker, or the command that opens the tracker's files."""

from __future__ import annotations

import re
import shlex
from urllib.parse import quote

from pulumi_trainer.provider.jobs.lineage import folder_of
from pulumi_trainer.provider.jobs.status import JobStatus

TRACKING = "tracking"
"""Input of a run with a tracker: its kind, its place and its project, separated by spaces."""
FOLDERS = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}
"""Kind of a tracker -> the folder in the output volume that it writes to."""
OFFLINE = "offline"
FILES = "files"
"""Places of a tracker without a server."""
_ADDRESS = re.compile(r"https?://[^\s/]\S*")


def run_name(job: str, run: str) -> str:
    """Return the name of a run on its tracker: run ids are unique among those of one job."""
    return f"{job}-{run}"


def where_tracked(status: JobStatus) -> str:
    """Return the link to the run of a job on its tracker, or how to open the tracker's files; empty if that is not known."""
    kind, _, rest = status.inputs.get(TRACKING, "").partition(" ")
    place, _, project = rest.partition(" ")
    if place in (OFFLINE, FILES):
        return _files(kind, project, status)
    if not _ADDRESS.fullmatch(place) or not status.identity.id:
        return ""
    if kind == "mlflow":
        experiment, _, run = str((status.progress or {}).get("tracking", "")).partition("/")
        return f"{place.rstrip('/')}/#/experiments/{experiment}/runs/{run}" if run else ""
    entity, slash, name = project.partition("/")
    run = quote(run_name(status.name, status.identity.id))
    return f"{place.rstrip('/')}/{quote(entity)}/{quote(name)}/runs/{run}" if slash and kind == "wandb" else ""


def _files(kind: str, project: str, status: JobStatus) -> str:
    """Return the command that opens the files of a tracker on this machine; of a cluster, their place in the output volume."""
    if kind not in FOLDERS or not status.output or not status.identity.lineage:
        return ""
    folder = f"{folder_of(status.output, status.identity.lineage)}/{FOLDERS[kind]}"
    if "://" in folder:
        return folder
    path = shlex.quote(folder)
    name = run_name(status.name, status.identity.id)
    return {
        "tensorboard": f"tensorboard --logdir {path}",
        "trackio": f"TRACKIO_DIR={path} trackio show --project {shlex.quote(project)}",
        "wandb": f"wandb sync {path}/offline-run-*-{name}",
    }[kind]
