"""Where a resource is: the input `target` with the connection to it, the label of its stack, and a root folder that has moved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pulumi_trainer.provider.jobs.identity import program_of
from pulumi_trainer.provider.jobs.submission import WORKERS
from pulumi_trainer.provider.kubernetes.values.accessors import only, section, text, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.lifecycle.resource import Props, Stored

LOCATION = (
    "kind",
    "host",
    "root",
    "cluster",
    "namespace",
    "mode",
    "kubeconfig",
    "context",
    "content",
    WORKERS,
    "sweep",
)
"""Keys of `target` that identify where a job is, the connection, and the stack that the job belongs to."""
CONNECTION = ("kubeconfig", "context", "content", WORKERS)
"""Keys of `target` that only describe the connection. A change is stored; only the identity of the cluster is checked."""
MAX_PARALLEL = "maxParallel"
"""Key of the `target` of a Target resource on this machine: how many jobs run at once. Absent: the default."""
LOG_BYTES = "logBytes"
"""Key of `target` on this machine: bytes of the log that is kept of each container. Absent: the default."""
ISOLATION = "isolation"
"""Key of `target` on this machine: what isolates containers. Absent: nothing does."""
_LOCAL_SETTINGS = ("python", MAX_PARALLEL, LOG_BYTES, ISOLATION)


@dataclass(frozen=True, kw_only=True)
class Located(Stored):
    """Inputs or outputs of what is in a target.

    Attributes:
        target: Where it is: kind, identity, connection, sweep label; not known before the connection is.
    """

    target: Any

    @property
    def label(self) -> str:
        """Return the label of the stack's target; empty if it has none or is not known yet."""
        return text(self.target.get("sweep"))

    @property
    def root(self) -> str:
        """Return the root folder of a local target; empty for another target, or if it is not known yet."""
        return text(self.target.get("root"))

    @property
    def is_local(self) -> bool:
        return bool(self.target.get("kind") == "local")

    @property
    def workers(self) -> Props:
        """Return the worker clusters of MultiKueue, by name; empty on this machine."""
        return section(self.target, WORKERS)

    @property
    def connection(self) -> Props:
        return {k: self.target[k] for k in CONNECTION if self.target.get(k) is not None}

    @property
    def known_target(self) -> Props | None:
        """Return the known part of `target`, or None if the connection is not known yet."""
        if isinstance(self.target, Unknown) or any_unknown(only(self.target, CONNECTION).values()):
            return None
        return {k: v for k, v in self.target.items() if not isinstance(v, Unknown)}

    @property
    def location(self) -> Props:
        """Return what outputs keep of the target."""
        return only(self.target, LOCATION)


@dataclass(frozen=True, kw_only=True)
class Inputs(Located):
    component: Any = ""

    @property
    def program(self) -> str:
        """Return "project/stack" of the component; empty if it is not known."""
        return program_of(str(self.component or ""))

    @property
    def resource(self) -> str:
        """Return the name of the component in the program; empty if it is not known."""
        return str(self.component or "").rpartition("::")[2]


AnyLocated = TypeVar("AnyLocated", bound=Located)
AnyInputs = TypeVar("AnyInputs", bound=Inputs)


def with_label(located: AnyLocated, label: Any) -> AnyLocated:
    """Return inputs or outputs with another label of the stack's target."""
    if located.target.get("sweep") == label:
        return located
    return replace(located, target={**located.target, "sweep": label})


def with_current_label(olds: Inputs, news: Inputs, inputs: AnyInputs) -> AnyInputs:
    """Return inputs with the current label and component, if the resource came from another stack (`pulumi state move`)."""
    before, now = olds.label, news.target.get("sweep")
    if not olds.program or not news.program or olds.program == news.program:
        return inputs
    if not before or not now or before == now:
        return inputs
    return replace(with_label(inputs, now), component=news.component)


def has_other_label(outputs: Located, inputs: Located) -> bool:
    """Return whether what is in the target is to get another label, perhaps one that is not known yet."""
    label = inputs.target.get("sweep")
    return bool(label and outputs.label) and label != outputs.label


def with_current_connection(olds: AnyLocated, news: Located) -> AnyLocated:
    """Return the previous inputs or outputs with the current connection settings.

    No previous setting may stay: the engine encrypts what is secret in the new inputs, so the content of a kubeconfig that these
    no longer have would be stored in clear. Interpreter and limit always come from the program, never from a state.
    """
    current = {**news.connection, **_local_settings(news), **_moved_root(olds, news)}
    if not olds.connection and not current and not _local_settings(olds):
        return olds
    kept = without(olds.target, *CONNECTION, *_LOCAL_SETTINGS)
    return replace(olds, target={**kept, **current})


def connection_changed(olds: Located, news: Located) -> bool:
    """Return whether the connection settings differ from the stored ones."""
    if olds.target.get(MAX_PARALLEL) != news.target.get(MAX_PARALLEL):
        return True
    return olds.connection != news.connection or (olds.root != news.root and bool(olds.root and news.root))


def _local_settings(located: Located) -> Props:
    return {k: located.target[k] for k in _LOCAL_SETTINGS if located.target.get(k)}


def _moved_root(olds: Located, news: Located) -> Props:
    """Return the current root folder if the previous one no longer exists: it was moved or removed."""
    before, now = olds.root, news.root
    same_host = olds.target.get("host") == news.target.get("host")
    if not same_host or not before or not now or before == now or Path(before).exists():
        return {}
    return {"root": now}


def keep_root_hint(olds: Located, news: Located) -> str:
    """Return what to do if the program names another root folder while the previous one still exists."""
    hint = f"keep target=Local(root={olds.root!r})"
    if Path(news.root).exists():
        return f"{hint}; the folder cannot be moved because {news.root} already exists"
    return f"{hint}, or end its jobs and move the folder to {news.root!r}"


def moved_root_note(located: Located) -> str:
    """Return why a local resource may be in another folder now; empty if the parent of its root folder exists."""
    was = located.root
    if not was or Path(was).parent.exists():
        return ""
    return (
        f"is unchanged in the state of this stack: {Path(was).parent} does not exist. If it was moved with the"
        " program, `pulumi up` continues in its new place; if it was removed, `pulumi up` creates it again"
    )
