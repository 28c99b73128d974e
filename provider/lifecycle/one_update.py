"""Jobs, volumes, runtimes and targets of a stack during one update: what the update of one resource means for the others.

A process serves one update. It remembers the labels that jobs and volumes use, and the runtimes that resources have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pulumi_trainer.provider.jobs.identity import digest
from pulumi_trainer.provider.lifecycle import crud, runtime_crud, volumes
from pulumi_trainer.provider.lifecycle.crud import Checked, Diff

Props = dict[str, Any]


class Target(Protocol):
    """The methods of a target that a target resource needs."""

    def identity(self) -> dict[str, str]: ...
    def sweep(self, label: str, note: Callable[[str], None], /) -> Sequence[str]: ...


class UsedLabels(set[str]):
    """Labels of the program's jobs and volumes.

    Jobs keep the label of the target with which they were created, and that target may leave the program before them.
    """

    def use(self, *inputs: Props) -> None:
        """Add the labels of a job or volume, current and previous."""
        self.update({crud.label_of(each) for each in inputs if each} - {""})


class Jobs:
    """Jobs, as `crud`. labels: Labels in use; those of jobs are added."""

    diff = staticmethod(crud.diff)
    create = staticmethod(crud.create)
    update = staticmethod(crud.update)
    read = staticmethod(crud.read)

    def __init__(self, labels: UsedLabels) -> None:
        self._labels = labels
        self._runs: dict[str, Props] = {}
        self._replaced = set[tuple[str, str]]()

    def check(self, olds: Props, news: Props, connect: crud.Connect) -> Checked:
        """Return the inputs to store.

        The engine checks a replacement again, without its old inputs. Its record has the runs before it; if that is gone, those
        of the first check count.

        Args:
            olds: Previous inputs; empty for a new job.
            news: Current inputs; leaves may be unknown.
            connect: Returns the target of an input `target`.
        """
        self._labels.use(olds)
        component = str(news.get("component"))
        if not olds:
            news = {**news, **self._runs.get(component, {})}
        found = crud.check(olds, news, connect, self._labels)
        self._runs[component] = crud.recorded_runs(olds, found.inputs)
        self._labels.use(found.inputs)
        if not olds and found.inputs.get("earlierRuns"):
            self._replaced.add((found.inputs["namespace"], found.inputs["name"]))
        return found

    def delete(self, outputs: Props, connect: crud.Connect) -> list[str]:
        """Delete a job, as `crud.delete` does. A job that was checked as new before is followed by a new run.

        Args:
            outputs: Outputs of the job in the state.
            connect: Returns the target of an input `target`.
        """
        replaced = (outputs["namespace"], outputs["name"]) in self._replaced
        return crud.delete(outputs, connect, replaced=replaced)


class Volumes:
    """Volumes, as `volumes`. labels: Labels in use; those of volumes are added."""

    diff = staticmethod(volumes.diff)
    create = staticmethod(volumes.create)
    update = staticmethod(volumes.update)
    read = staticmethod(volumes.read)
    delete = staticmethod(volumes.delete)

    def __init__(self, labels: UsedLabels) -> None:
        self._labels = labels

    def check(self, olds: Props, news: Props, connect: volumes.Connect) -> Checked:
        """Return the inputs to store.

        Args:
            olds: Previous inputs; empty for a new volume.
            news: Current inputs; leaves may be unknown.
            connect: Returns the target of an input `target`.
        """
        self._labels.use(olds)
        found = volumes.check(olds, news, connect)
        self._labels.use(found.inputs)
        return found


class Runtimes:
    """Runtimes, as `runtime_crud`.

    A runtime that a resource of the program has is not deleted with the resource that had it before: another resource or a
    replacement.
    """

    check = staticmethod(runtime_crud.check)
    update = staticmethod(runtime_crud.update)
    read = staticmethod(runtime_crud.read)

    def __init__(self) -> None:
        self._uids: set[str] = set()

    def diff(self, olds: Props, news: Props) -> Diff:
        """Return whether the runtime changes.

        Args:
            news: Checked inputs; in a refresh, the stored inputs.
        """
        found = runtime_crud.diff(olds, news)
        if not found.replaces:
            self._uids.add(str(olds.get("uid")))
        return found

    def create(self, inputs: Props, connect: runtime_crud.Connect) -> tuple[str, Props]:
        """Apply the runtime.

        Args:
            inputs: Checked inputs; all values are known.
            connect: Returns the target of an input `target`.

        Raises:
            TrainerError: The target cannot be reached, or refuses.
        """
        id_, outputs = runtime_crud.create(inputs, connect)
        self._uids.add(str(outputs.get("uid")))
        return id_, outputs

    def delete(self, outputs: Props, connect: runtime_crud.Connect) -> list[str]:
        """Delete the runtime, unless another resource has it, and return notes for the user.

        Args:
            outputs: Outputs of the runtime in the state.
            connect: Returns the target of an input `target`.

        Raises:
            TrainerError: The target cannot be reached, or refuses.
        """
        if outputs.get("uid") in self._uids:
            return []
        return runtime_crud.delete(outputs, connect)


class Targets:
    """The targets of a stack; the delete of a target sweeps what a crash has left behind. labels: Labels in use."""

    def __init__(self, labels: UsedLabels) -> None:
        self._labels = labels

    def check(self, olds: Props, news: Props) -> Checked:
        """Return the inputs to store.

        Args:
            olds: Previous inputs; empty for a new target.
            news: Current inputs; leaves may be unknown.
        """
        if not olds:
            return Checked(news)
        return Checked(crud.with_current_connection(olds, news))

    def diff(self, olds: Props, news: Props) -> Diff:
        """Return whether the connection changes.

        Args:
            news: Checked inputs; in a refresh, the stored inputs.
        """
        return Diff(crud.connection_changed(olds, news))

    def create(
        self, inputs: Props, connect: Callable[[Mapping[str, Any]], Target], suffix: str
    ) -> tuple[str, dict[str, Any]]:
        """Return label and outputs of the target.

        Args:
            connect: Returns the target of an input `target`.
            suffix: Distinguishes two stacks of the same name: of two clones, or one after the other was renamed.
        """
        there = connect(inputs["target"])
        identity = there.identity()
        _limit_jobs(there, inputs["target"])
        label = f"{inputs['stack']}-{suffix}"
        where = {**inputs["target"], **identity}
        return label, {"target": where, "sweep": label, "cluster": identity.get("cluster")}

    def update(self, olds: Props, news: Props, connect: Callable[[Mapping[str, Any]], Target]) -> Props:
        """Return the outputs with the current connection.

        Args:
            news: Checked inputs; all values are known.
            connect: Returns the target of an input `target`.

        Raises:
            TrainerError: The connection leads to another cluster.
        """
        outputs = crud.with_current_connection(olds, news)
        there = connect(outputs["target"])
        there.identity()  # a connection to another cluster is not recorded
        _limit_jobs(there, outputs["target"])
        return outputs

    def delete(
        self, label: str, outputs: Props, connect: Callable[[Mapping[str, Any]], Target], note: Callable[[str], None]
    ) -> list[str]:
        """Delete what has the target's label, unless jobs or volumes use it, and return notes for the user.

        Args:
            connect: Returns the target of an input `target`.
        """
        if label in self._labels:
            return []
        swept = connect(outputs["target"]).sweep(label, note)
        return [f"{name} has the label {label} of this stack and is deleted" for name in swept]


def _limit_jobs(there: Any, target: Props) -> None:
    """Set how many jobs run at once on this machine; a cluster has its own limits."""
    if target.get("kind") == "local":
        there.limit_jobs(target.get(crud.MAX_PARALLEL))


def label_suffix(random: str, place: Sequence[str], *, checkpoints: bool) -> str:
    """Return what distinguishes the labels of two stacks of the same name. Only the state distinguishes such stacks.

    Args:
        checkpoints: Whether the engine writes the state before the end. If not, the `up` after one that was killed has to find
            the same label.
    """
    return random if checkpoints else digest(list(place))[:8]
