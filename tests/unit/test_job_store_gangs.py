"""PodGroups among what is remembered of jobs: they belong to whose pods name them, whatever they are called."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.kubernetes.client.api_resources import EVENT, POD
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import POD_GROUP_ANNOTATION, POD_GROUP_LABELS
from pulumi_trainer.provider.targets.kubernetes.observe.job_store import JobStore
from pulumi_trainer.provider.trainer.kinds import POD_GROUP, VOLCANO_POD_GROUP
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

Document = dict[str, Any]


def pod(name: str, group: str, *, node: str = "", job: str = "job", volcano: bool = False) -> Document:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata: Document = {"name": name, "uid": name, "creationTimestamp": now, "labels": {JOBSET_NAME: job}}
    if volcano:
        metadata["annotations"] = {POD_GROUP_ANNOTATION: group}
    else:
        metadata["labels"][POD_GROUP_LABELS[0]] = group
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}}


def group(name: str, phase: str = "Pending") -> Document:
    return {"metadata": {"name": name, "uid": name}, "status": {"phase": phase}}


def phase(store: JobStore, job: str = "job") -> str | None:
    found = store.job_view(job, frozenset()).pod_group
    return str(found["status"]["phase"]) if found is not None else None


def taken(store: JobStore) -> set[str]:
    found, store.changed = store.changed, set()
    return found


def test_the_group_of_the_pods_that_wait() -> None:
    store = JobStore("ns")
    store.replace(POD_GROUP, [group("job.data", "Finished"), group("job.node", "Scheduling"), group("of-others")])
    store.put(POD, pod("data", "job.data", node="gpu-0"))
    assert phase(store) is None
    store.put(POD, pod("node", "job.node"))
    assert phase(store) == "Scheduling"
    assert phase(store, "other") is None


def test_a_change_of_a_group_is_one_of_all_jobs_in_it() -> None:
    store = JobStore("ns")
    for job in ("a", "b"):
        store.put(POD, pod(f"{job}-0", "shared", job=job, volcano=True))
    store.put(POD, pod("c-0", "own", job="c"))
    taken(store)
    store.put(VOLCANO_POD_GROUP, group("shared"))
    assert taken(store) == {"a", "b"}
    store.put(VOLCANO_POD_GROUP, group("shared"))
    assert taken(store) == set()
    store.put(VOLCANO_POD_GROUP, group("shared", "Inqueue"), old=True)  # a look, later than the watch
    assert taken(store) == set() and phase(store, "a") == "Pending"
    store.put(VOLCANO_POD_GROUP, group("shared", "Inqueue"))
    assert taken(store) == {"a", "b"} and phase(store, "b") == "Inqueue"
    store.drop(VOLCANO_POD_GROUP, group("shared"))
    assert taken(store) == {"a", "b"} and phase(store, "a") is None
    store.drop(VOLCANO_POD_GROUP, group("shared"))


def test_what_a_list_does_not_have_is_gone() -> None:
    store = JobStore("ns")
    store.put(POD, pod("node", "job"))
    store.put(POD_GROUP, group("job"))
    store.put(VOLCANO_POD_GROUP, group("job", "Inqueue"))
    assert phase(store) == "Pending"
    taken(store)
    store.replace(POD_GROUP, [])
    assert taken(store) == {"job"} and phase(store) is None


def test_an_event_that_says_nothing_does_not_hide_one_that_does() -> None:
    """The gang scheduler tells most pods only that another one has no node."""
    store = JobStore("ns")
    store.put(POD, pod("job-node-0-0-abcde", "job"))
    about = {"kind": "Pod", "name": "job-node-0-0-abcde"}
    for message in ("0/8 nodes are available: 8 Insufficient nvidia.com/gpu.", "1 optimistic rejection in PostFilter."):
        event = {
            "metadata": {"name": message},
            "involvedObject": about,
            "reason": "FailedScheduling",
            "message": message,
        }
        store.put(EVENT, event)
    (kept,) = store.job_view("job", frozenset()).events
    assert "Insufficient" in kept["message"]
