"""Why a job does not run, outside Kueue: what the plan and `why` say, held against the real API server, scheduler and Kueue."""

from __future__ import annotations

import re
from typing import Any

from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose, explain
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot, with_node_reason

from .jobs import until
from .teams_support import Teams, made_teams  # noqa: F401 (the fixture teams)


def refused(teams: Teams, pod: dict[str, Any]) -> str:
    """The server's words about a Pod."""
    container = {"name": "node", "image": "example.com/a:1", **pod}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {"containers": [container]}}
    try:
        teams.root.create(kinds.POD, document | {"metadata": {"name": "pod", "namespace": teams.namespace}})
    except ApiError as error:
        return error.message
    teams.root.delete(kinds.POD, teams.namespace, "pod")
    return ""


def planned(teams: Teams, **given: Any) -> str:
    """Errors and warnings of a plan that sees the cluster as it is: by a user with the least rights, or if the job has a queue by
    one who may read queues."""
    made = teams.seeing(None if "queue" in given else teams.own).plan("job", **given)
    problems, noted = made.review()
    return "\n".join(map(str, [*made.problems, *problems, *made.warnings, *noted]))


def used(teams: Teams) -> dict[str, str]:
    """What the status of the namespace's quota says."""
    found = teams.root.get(kinds.RESOURCE_QUOTA, teams.namespace, "quota") or {}
    return dict(found.get("status", {}).get("used", {}))


def test_limit_ranges_and_quotas_in_the_servers_words(teams: Teams) -> None:
    teams.nodes(1)
    limits = {"type": "Container", "max": {"cpu": "1"}, "maxLimitRequestRatio": {"memory": "2"}}
    teams.make(kinds.LIMIT_RANGE, "limits", spec={"limits": [limits]})
    for resources, words in (
        ({"limits": {"cpu": "2", "memory": "1Gi"}}, "maximum cpu usage per Container is 1, but limit is 2"),
        ({"limits": {"memory": "3Gi"}, "requests": {"memory": "1Gi"}}, "but provided ratio is 3.000000"),
        ({"limits": {"memory": "1Gi"}, "requests": {"cpu": "2"}}, "must be less than or equal to cpu limit of 1"),
    ):
        assert words in refused(teams, {"resources": resources})
        assert words in planned(teams, resources=resources), resources
    fine = {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert refused(teams, {"resources": fine}) == ""
    assert "Container" not in planned(teams, resources=fine)

    teams.root.delete(kinds.LIMIT_RANGE, teams.namespace, "limits")
    teams.make(kinds.RESOURCE_QUOTA, "quota", spec={"hard": {"limits.cpu": "2"}})
    until(lambda: "must specify" in refused(teams, {}))
    words = "failed quota: quota: must specify limits.cpu for: node"
    assert words in refused(teams, {})
    assert words in planned(teams, gpus=1)
    assert "PT301" in planned(teams, nodes=3, resources={"cpu": 1})
    assert "PT301" not in planned(teams, nodes=2, resources={"cpu": 1})


def test_a_gang_larger_than_the_quota_and_one_that_waits_for_others(teams: Teams) -> None:
    teams.nodes(2)
    teams.make(kinds.RESOURCE_QUOTA, "quota", spec={"hard": {f"requests.{teams.gpu}": "8"}})
    resource = f"requests.{teams.gpu}"
    until(lambda: used(teams).get(resource) == "0")
    assert "PT301" in planned(teams, nodes=2)
    teams.submit("job", 2)
    teams.says(
        "job", rf"FailedCreate.*exceeded quota: quota.*kubectl describe resourcequota -n {teams.namespace} quota"
    )
    until(lambda: used(teams).get(resource) == "8")
    teams.seeing(teams.own)
    made = teams.plan("other", 1)
    _, noted = made.review()
    assert any("8 of the 8 that ResourceQuota quota allows are in use" in str(p) for p in noted)


def test_no_node_and_the_closest_miss(teams: Teams) -> None:
    teams.nodes(1)
    told = planned(teams, gpus=16)
    assert "PT302" in told and f"no node has 16 {teams.gpu}: the largest has 8" in told
    assert "PT302" not in planned(teams, gpus=8)
    teams.submit("job", gpus=16)
    teams.becomes("job", "Starting", "Unschedulable")
    seen = with_node_reason(teams.client, snapshot(teams.client, teams.namespace, "job"))
    paragraph = explain(seen, diagnose(seen, 0), 0)
    assert re.search(rf"no node has 16 {re.escape(teams.gpu)}: the largest has 8, even when nothing runs", paragraph)
    assert "by itself" not in paragraph


def test_a_namespace_selector_by_labels(teams: Teams) -> None:
    teams.flavor()
    selector = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["red"]}]}
    teams.queue("red", 8, namespaceSelector=selector)
    teams.ready("red")
    assert "PT209" in planned(teams, queue="red") and "team In (red)" in planned(teams, queue="red")
    teams.submit("job", queue="red")
    teams.says("job", "will never admit it as it is .*does not admit jobs from this namespace")
    teams.root.patch(kinds.NAMESPACE, "", teams.namespace, {"metadata": {"labels": {"team": "red"}}})
    assert "PT209" not in planned(teams, queue="red")
    assert teams.root.get(CLUSTER_QUEUE, "", teams.name("red")) is not None
