"""Connects to the target that the `target` input of a resource describes."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.jobs.submission import WORKERS
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused
from pulumi_trainer.provider.kubernetes.values.accessors import only, section, without
from pulumi_trainer.provider.lifecycle.connection import CONNECTION, ISOLATION, LOG_BYTES, MAX_PARALLEL
from pulumi_trainer.provider.machine.extras import missing, not_installed
from pulumi_trainer.provider.targets.local import LocalTarget, host_id

if TYPE_CHECKING:
    from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

CONFIGURED = ("kubeconfig", "context")
"""Connection settings that the stack's configuration may set."""

_stack: dict[str, str] = {}
_warn: list[Callable[[Problem], None]] = []
_lock = threading.Lock()


class TargetInput(dict[str, Any]):
    """A `target` input in a program; secret or unknown values are Outputs.

    Args:
        plain: The same settings with plain values, which `connect` uses.
    """

    plain: Mapping[str, Any]
    needs: Sequence[Any] = ()


def configure(config: Mapping[str, Any]) -> None:
    """Set the stack's configuration for all targets of this process; it overrides recorded settings."""
    _stack.clear()
    for setting in CONFIGURED:
        if config.get(setting):
            _stack[setting] = str(config[setting])


def warn_with(show: Callable[[Problem], None]) -> None:
    """Set the function that receives warnings about the access to a cluster, such as insecure-skip-tls-verify."""
    _warn[:] = [show]


def connect(
    target: Mapping[str, Any], check_kubeconfig: Callable[[str], None] | None = None
) -> LocalTarget | KubernetesTarget:
    """Return the target that `target` describes, without a request.

    Args:
        check_kubeconfig: Called with the path of each kubeconfig that the target or the stack's configuration names; it raises
            TargetFault for one that must not be used. Default: all are used.
    """
    if isinstance(target, TargetInput):
        target = target.plain
    if target.get("kind") == "local":
        return _local(
            str(target.get("root", "")),
            str(target.get("python", "")),
            target.get(LOG_BYTES),
            str(target.get(ISOLATION, "")),
        )
    names = (*CONNECTION, "cluster", "mode", "namespace")
    known: dict[str, Any] = {k: target[k] for k in names if isinstance(target.get(k), str)}
    known["unknown"] = _first_unknown(target, known)
    workers = {name: only(section(given), CONFIGURED) for name, given in section(target.get(WORKERS)).items()}
    if workers:
        known[WORKERS] = workers
    if check_kubeconfig is not None:
        for each in (known, _stack, *known.get(WORKERS, {}).values()):
            if each.get("kubeconfig"):
                check_kubeconfig(str(each["kubeconfig"]))
    with _lock:  # lru_cache alone would let concurrent calls open a client each
        return _kubernetes(json.dumps(known, sort_keys=True), json.dumps(_stack, sort_keys=True))


def _first_unknown(target: Mapping[str, Any], texts: Collection[str]) -> str:
    """Return the first setting of the connection whose value is not a text yet; empty if not found."""
    for setting in CONNECTION:
        if setting in target and setting not in (*texts, WORKERS) and target[setting] is not None:
            return setting
    return ""


@lru_cache(maxsize=16)
def _local(root: str, python: str, log_bytes: Any, isolation: str) -> LocalTarget:
    _check_root(Path(root))
    made = LocalTarget(Path(root), python=python or sys.executable)
    if isinstance(log_bytes, (int, float)):  # the engine has no integers
        made.jobs.tuning = made.jobs.tuning.with_log_bytes(int(log_bytes))
    made.jobs.isolation = isolation
    return made


def _check_root(root: Path) -> None:
    """Raise Refused for a folder that other users can write to: its files determine which processes are started and killed."""
    if not root.is_absolute() or "\0" in str(root):
        raise Refused(Problem(f"root {root}", "not a valid absolute path: somebody has changed the stack's state"))
    try:
        found = root.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
        raise Refused(Problem(f"root {root}", why, "name another one in Local(root=...)")) from None
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(Problem(f"root {root}", "is not a folder", "name another one in Local(root=...)"))
    if found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
        who = "can be changed by every user"
        if found.st_uid != os.geteuid():
            who = "belongs to another user"
        raise Refused(Problem(f"root {root}", f"{who} of this machine", "name a folder of your own in Local(root=...)"))


@lru_cache(maxsize=64)
def _kubernetes(target: str, overrides: str) -> KubernetesTarget:
    if missing("kubernetes"):
        raise not_installed("kubernetes", "the Kubernetes target")
    from pulumi_trainer.provider.kubernetes.client.access import open_client
    from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

    known = json.loads(target)
    warn = next(iter(_warn), None)
    client = open_client(known, overrides=json.loads(overrides), warn=warn)
    workers = {name: open_client(each, warn=warn) for name, each in known.get(WORKERS, {}).items()}
    if workers:
        client = client.with_workers(workers)
    return KubernetesTarget(
        client,
        cluster=client.cluster_id,
        mode=known.get("mode") or "jobset",
        namespace=known.get("namespace") or "default",
    )


def of_job(target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `target` input of a job. How many jobs run at once belongs to the target, so a change of it changes no job."""
    return without(target, MAX_PARALLEL)


def local(
    root: str, python: str, max_parallel: int | None = None, log_bytes: int | None = None, isolation: str | None = None
) -> dict[str, Any]:
    """Return the `target` input for this machine.

    Args:
        python: Name or path of the interpreter that replaces the images.
        max_parallel: How many jobs run at once; None: the default.
        log_bytes: Bytes of the log that is kept of each container; None: the default.
        isolation: `bwrap`; None: processes see the whole machine.
    """
    if os.sep in python:
        python = str(Path(python).expanduser().absolute())
    root = str(Path(root).expanduser().absolute())
    target: dict[str, Any] = {"kind": "local", "host": host_id(), "root": root, "python": python}
    settings = {MAX_PARALLEL: max_parallel, LOG_BYTES: log_bytes, ISOLATION: isolation}
    for name, value in settings.items():
        if value is not None:
            target[name] = value
    return target
