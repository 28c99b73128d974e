"""A job of MultiKueue and worker clusters that do not answer: nothing is deleted here while it may go on there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import plain_jobs
import pytest
from pulumi_trainer.provider.jobs.status import JobStatus, Owner
from pulumi_trainer.provider.jobs.submission import WORKERS
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, CONFIG_MAP, Kind
from pulumi_trainer.provider.kubernetes.client.client import Unreachable
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.lifecycle.diagnosis import best_finding, diagnose
from pulumi_trainer.provider.service import jobs
from pulumi_trainer.provider.service.reach import ReachedJob
from pulumi_trainer.provider.targets.kubernetes import operations
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot
from pulumi_trainer.provider.targets.kubernetes.preflight import server_review
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.trainer.kinds import JOBSET
from test_kubernetes_operations import OWNER, Server, end, submission, target
from test_lifecycle import Target, checked, first, inputs, objects
from test_missing_referents import Cluster, draft, told

SILENT = "worker cluster west: it cannot be asked, and may still run team/job: connection refused"
IF_GONE = "If it is gone for good, remove it from the MultiKueueConfig of the queue and from workers"


class Manager(Server):
    """The manager cluster."""

    def delete(self, kind: Kind, namespace: str, name: str, **_: Any) -> bool:
        return self.objects.pop((kind.kind, namespace, name), None) is not None

    def with_workers(self, workers: dict[str, Any]) -> Manager:
        made = copy.copy(self)
        made.workers = workers  # type: ignore[misc]
        return made


class Silent:
    """A worker cluster whose API server is down."""

    def within(self, _: float) -> Silent:
        return self

    def __getattr__(self, _: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            raise Unreachable("GET", "connection refused")

        return refuse


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    monkeypatch.setattr(server_review, "missing", lambda *_: [])
    made = Manager()
    target(made).jobs.create(submission())
    made.workers = {"west": Silent()}  # type: ignore[misc]
    return made


def left(manager: Server) -> set[str]:
    return {kind for kind, _, _ in manager.objects}


@pytest.mark.parametrize(
    "change",
    [
        lambda manager: target(manager).jobs.delete("team", "job", uid="uid-1", owner=OWNER),
        lambda manager: target(manager).sweep("stack"),
        lambda manager: operations.stop(manager, "team", "job", OWNER, "stopped by ann"),
    ],
    ids=["delete", "sweep", "stop"],
)
def test_nothing_is_deleted_while_a_worker_does_not_answer(
    manager: Manager, change: Callable[[Manager], object]
) -> None:
    before = copy.deepcopy(manager.objects)
    with pytest.raises(TargetFault) as refused:
        change(manager)
    message = str(refused.value)
    assert message.startswith("worker cluster west: it cannot be asked, and may still run ") and IF_GONE in message
    assert manager.objects == before


def test_a_run_that_has_ended_keeps_its_job_if_a_worker_does_not_answer(manager: Manager) -> None:
    end(manager, "Failed")
    before = copy.deepcopy(manager.objects)
    with pytest.raises(TargetFault, match="worker cluster west: it cannot be asked"):
        operations.rerun(manager, submission())  # type: ignore[arg-type]
    assert manager.objects == before


def test_a_volume_stays_in_all_clusters_while_one_does_not_answer(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[Any] = []
    monkeypatch.setattr(claims, "delete", lambda *place: deleted.append(place))
    manager.workers = {"east": Server(), "west": Silent()}  # type: ignore[misc]
    monkeypatch.setattr(Server, "read", lambda *_: {}, raising=False)
    with pytest.raises(TargetFault, match="worker cluster west: it cannot be asked, and may still run team/data"):
        target(manager).volumes.delete("team", "data", "g1")
    assert deleted == [] and CLAIM.kind not in left(manager)


def test_a_job_that_another_stack_has_adopted_needs_no_worker(manager: Manager) -> None:
    found = target(manager).jobs.delete("team", "job", uid="uid-1", owner=Owner("other", "theirs"))
    assert found is not None and found.id == OWNER.id and left(manager) == {"ConfigMap", "JobSet"}


class TestPlan:
    """Of a change that ends a run."""

    KUBERNETES = {"kind": "kubernetes", "sweep": "s", WORKERS: {"west": {"kubeconfig": "/west"}}}

    def target(self) -> Any:
        made: Any = Target("Running")
        made.check_workers = target(self.manager).jobs.check_workers
        return made

    @pytest.fixture(autouse=True)
    def with_manager(self, manager: Manager) -> None:
        self.manager = manager

    @pytest.mark.parametrize("phase", ["Running", "Succeeded"])
    def test_is_refused_while_a_worker_does_not_answer(self, phase: str) -> None:
        there = self.target()
        given = inputs(target=self.KUBERNETES, interrupt="allow", namespace="team", name="job")
        made = checked({}, given, there).inputs
        _, outputs = plain_jobs.create(made, lambda _: there)
        there.made["job"].phase = phase
        news = {**given, "digest": "d2"}
        (failure,) = checked(made, {**news, "objects": objects(image="x:2")}, there).failures
        assert failure.startswith(f"team/job is not replaced: {SILENT}") and IF_GONE in failure
        in_place = checked(made, {**news, "objects": objects(suspend=True)}, there)
        assert in_place.failures == (), "only a new run deletes anything"
        (note,) = plain_jobs.removal_notes(outputs, lambda _: there)
        assert note.startswith(f"team/job was removed from the program, but this update cannot delete it: {SILENT}")

    def test_is_not_refused_without_workers(self) -> None:
        there = self.target()
        made, _ = first(there, interrupt="allow")
        assert not checked(made, inputs(interrupt="allow", digest="d2", objects=objects(image="x:2")), there).failures


def test_workers_are_reviewed_if_a_change_may_end_the_run() -> None:
    here = Cluster(there=["Secret/s"])
    here.workers = {"west": Cluster()}  # type: ignore[misc]
    missing = "worker cluster west: Secret s does not exist in namespace ns"
    (refusal,), _ = told(here, draft("Secret/s", interrupts=True), unfinished=True)
    assert missing in refusal
    assert told(here, draft("Secret/s"), unfinished=True) == ([], []), "a run that goes on has its copies"


class TestStatus:
    """Of a job that is gone in the manager cluster."""

    def shown(self, manager: Manager) -> tuple[JobStatus, str]:
        view = snapshot(manager, "team", "job")  # type: ignore[arg-type]
        found = best_finding(view, 1.0)
        return diagnose(view, 1.0), f"{found.why}. {found.hint}"

    @pytest.mark.parametrize("record", ["with", "without"])
    def test_names_a_worker_that_still_has_it(self, manager: Manager, record: str) -> None:
        west = Server()
        west.objects = copy.deepcopy(manager.objects)
        manager.workers = {"west": west}  # type: ignore[misc]
        del manager.objects["JobSet", "team", "job"]
        if record == "without":
            del manager.objects["ConfigMap", "team", "job"]
        status, why = self.shown(manager)
        there = "worker cluster west: its JobSet is still there, and may run"
        assert status.phase == "Deleted" and there in status.message and there in why
        if record == "with":
            assert why.endswith("delete it in that cluster, or wait until Kueue has, before it runs again")
        end(west, "Completed")
        assert "worker cluster" not in self.shown(manager)[0].message, "it has ended there"

    def test_names_a_worker_that_does_not_answer(self, manager: Manager) -> None:
        manager.objects.clear()
        status, why = self.shown(manager)
        assert SILENT in status.message and SILENT in why and IF_GONE not in why

    def test_of_a_job_that_has_ended_asks_no_worker(self, manager: Manager) -> None:
        manager.patch(CONFIG_MAP, "team", "job", {"data": {"phase": "Succeeded"}})
        del manager.objects["JobSet", "team", "job"]
        assert self.shown(manager)[0].phase == "Succeeded" and "worker" not in self.shown(manager)[0].message

    def test_of_many_jobs_of_a_stack_asks_too(self, manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are listed together, and one that is gone is in no list."""
        manager.objects.clear()
        names = ("a", "b", "job")
        stack = [ReachedJob("team", name, client=manager, owner=OWNER) for name in names]  # type: ignore[arg-type]
        monkeypatch.setattr(jobs, "_list_group", lambda *_: {})
        messages = [state.status.message for state in jobs.read_states(stack) if state.status]
        assert len(messages) == 3 and SILENT in messages[-1]


def test_a_run_with_jobset_of_another_job_is_not_ours(manager: Manager) -> None:
    west = Server()
    west.create(JOBSET, {**submission().main})
    manager.workers = {"west": west}  # type: ignore[misc]
    manager.objects.clear()
    view = snapshot(manager, "team", "job")  # type: ignore[arg-type]
    assert view.left == []
