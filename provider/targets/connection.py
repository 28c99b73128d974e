"""From the `target` input of a resource to the target itself."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.api.extras import missing, not_installed
from pulumi_trainer.provider.kube.errors import Problem, Refused
from pulumi_trainer.provider.lifecycle.calls import WAY
from pulumi_trainer.provider.targets.local import LocalTarget, host_id

if TYPE_CHECKING:
    from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

CONFIGURED = ("kubeconfig", "context")
"""What the stack's configuration says of it."""

_stack: dict[str, str] = {}
_warn: list[Callable[[Problem], None]] = []
_lock = threading.Lock()


class Reach(dict[str, Any]):
    """A `target` input in a program: what is secret or not known yet is an Output. plain: with the values of those that are
    known, which `connect` takes instead. needs: resources that say where it is."""

    plain: Mapping[str, Any]
    needs: Sequence[Any] = ()


def configure(config: Mapping[str, Any]) -> None:
    """The stack's configuration, for all targets of this process: it wins over what was recorded of a cluster."""
    _stack.clear()
    _stack.update({k: str(config[k]) for k in CONFIGURED if config.get(k)})


def warn_with(show: Callable[[Problem], None]) -> None:
    """Shows what is unwise about the access to a cluster, such as insecure-skip-tls-verify, in every call of this process."""
    _warn[:] = [show]


def connect(target: Mapping[str, Any]) -> LocalTarget | KubernetesTarget:
    """The target that `target` describes; nothing is asked of it yet."""
    if isinstance(target, Reach):
        target = target.plain
    if target.get("kind") == "local":
        return _local(str(target.get("root", "")), str(target.get("python", "")))
    names = (*WAY, "cluster", "mode", "namespace")
    known = {k: target[k] for k in names if isinstance(target.get(k), str)}
    known["unknown"] = next((k for k in WAY if k in target and k not in known and target[k] is not None), "")
    with _lock:  # lru_cache lets threads that ask at once make one each, and each would ask the cluster anew
        return _kubernetes(json.dumps(known, sort_keys=True), json.dumps(_stack, sort_keys=True))


@lru_cache(maxsize=16)
def _local(root: str, python: str) -> LocalTarget:
    _check_root(Path(root))
    return LocalTarget(Path(root), python=python) if python else LocalTarget(Path(root))


def _check_root(root: Path) -> None:
    """Refuses a folder in which somebody else can write: what lies there says what is run and ended. A state names it."""
    if not root.is_absolute() or "\0" in str(root):
        raise Refused(
            Problem(f"root {root}", "is not an absolute path without NUL, so somebody has changed the stack's state")
        )
    with suppress(FileNotFoundError):
        found = root.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise Refused(Problem(f"root {root}", "is not a folder", "name another one in Local(root=...)"))
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
            who = "belongs to another user" if found.st_uid != os.geteuid() else "can be changed by every user"
            raise Refused(
                Problem(f"root {root}", f"{who} of this machine", "name a folder of your own in Local(root=...)")
            )


@lru_cache(maxsize=64)
def _kubernetes(target: str, overrides: str) -> KubernetesTarget:
    if missing("kubernetes"):
        raise not_installed("kubernetes", "the Kubernetes target")
    from pulumi_trainer.provider.kube.client.access import cluster_id, open_client
    from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget

    known = json.loads(target)
    client = open_client(known, overrides=json.loads(overrides), warn=_warn[0] if _warn else None)
    return KubernetesTarget(
        client,
        cluster=lambda: cluster_id(client),
        mode=known.get("mode") or "jobset",
        namespace=known.get("namespace") or "default",
    )


def local(root: str, python: str) -> dict[str, Any]:
    """The description of this machine as a target."""
    python = str(Path(python).expanduser().absolute()) if os.sep in python else python
    return {"kind": "local", "host": host_id(), "root": str(Path(root).expanduser().absolute()), "python": python}
