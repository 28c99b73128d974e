"""Objects that somebody changes by hand: what a plan says, and what an update does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kubernetes.client import CustomObjectsApi
from kubernetes.config import new_client_from_config
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, RESOURCE_FLAVOR

from tools.cluster.cluster import Cluster

from .jobs import until
from .queue_lab import Lab
from .test_doctor import doctor as run_doctor
from .test_queues import lab, pulumi_home  # noqa: F401 (fixtures)

TEAM = """
trainer.GpuQueues(
    "{name}", teams={{"{name}": trainer.Team(gpus={cpus}, namespace="{namespace}")}}, resource="cpu", priorities=(),
    others={{"memory": "1Gi"}}{more},
)
"""


def edit(cluster: Cluster, name: str, spec: dict[str, Any]) -> None:
    """Change a ClusterQueue as `kubectl edit` does."""
    group, _, version = CLUSTER_QUEUE.api_version.partition("/")
    with new_client_from_config(str(cluster.kubeconfig)) as client:
        CustomObjectsApi(client).patch_cluster_custom_object(
            group, version, CLUSTER_QUEUE.plural, name, {"spec": spec}, field_manager="kubectl-edit"
        )


def with_quota(queue: dict[str, Any], quota: str) -> dict[str, Any]:
    """The spec that sets the quota of the first resource."""
    (group,) = queue["spec"]["resourceGroups"]
    group["flavors"][0]["resources"][0]["nominalQuota"] = quota
    return {"resourceGroups": [group]}


def test_a_change_by_hand_is_said_and_put_back(lab: Lab, cluster: Cluster) -> None:  # noqa: F811
    queue = f"{lab.prefix}-{lab.prefix}"
    lab.up_of(lab.text(TEAM, cpus=16))
    lab.preview("--expect-no-changes")
    edit(cluster, queue, {**with_quota(lab.objects("ClusterQueue")[queue], "3"), "stopPolicy": "Hold"})
    said = " ".join(lab.preview().out.split())
    assert f"ClusterQueue {queue} was changed by hand (kubectl-edit at 20" in said
    assert "resourceGroups[0].flavors" in said and "resources[cpu].nominalQuota 16 -> 3" in said
    assert "stopPolicy None -> Hold" in said
    assert "an update puts it back" in said
    found = " ".join(run_doctor(lab).stdout.split())
    assert f"ClusterQueue {queue}" in found and "nominalQuota 16 -> 3" in found and "exist and belong" not in found
    lab.up()
    spec = lab.objects("ClusterQueue")[queue]["spec"]
    assert spec["stopPolicy"] == "None"
    assert spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == "16"
    lab.preview("--expect-no-changes", "--refresh")
    lab.up_of(lab.text(TEAM, cpus=8))  # no conflict with what has put it back
    edit(cluster, queue, with_quota(lab.objects("ClusterQueue")[queue], "3"))
    lab.up("--refresh")
    assert "nominalQuota': '8'" in str(lab.objects("ClusterQueue")[queue]["spec"])
    lab.preview("--expect-no-changes")


def test_a_change_by_hand_that_concerns_jobs_is_refused_unless_the_program_decides(lab: Lab, cluster: Cluster) -> None:  # noqa: F811
    queue = f"{lab.prefix}-{lab.prefix}"
    lab.up_of(lab.text(TEAM, cpus=16))
    lab.job("first")
    until(lambda: lab.running() == {"first"})
    edit(cluster, queue, {"stopPolicy": "Hold"})
    for told in (lab.preview(ok=False).out, lab.up(ok=False).out):
        said = " ".join(told.split())
        assert f'GpuQueues("{lab.prefix}") (__main__.py:4).drift: ClusterQueue {queue} was changed by hand' in said
        assert (
            "stopPolicy None -> Hold. These jobs are affected: " in said
            and f"(JobSet {lab.namespace}/first) holds 1 cpu" in said
        )
        assert 'Hint: drift="restore" puts it back' in said
    kept = lab.up_of(lab.text(TEAM, cpus=16, more=', drift="keep"'))
    assert "; stays so" in kept
    assert lab.objects("ClusterQueue")[queue]["spec"]["stopPolicy"] == "Hold"
    lab.up_of(lab.text(TEAM, cpus=16, more=', drift="restore"'))
    assert lab.objects("ClusterQueue")[queue]["spec"]["stopPolicy"] == "None" and lab.running() == {"first"}
    lab.preview("--expect-no-changes")


def test_controllers_and_labels_of_others_are_no_change(lab: Lab, cluster: Cluster) -> None:  # noqa: F811
    name = f"{lab.prefix}-{lab.prefix}"
    lab.up_of(lab.text(TEAM, cpus=16))
    lab.root_client.patch(
        CLUSTER_QUEUE, "", name, {"metadata": {"labels": {"cost-center": "7"}, "annotations": {"a": "b"}}}
    )
    lab.preview("--expect-no-changes")
    assert "by hand" not in lab.preview().out


QUEUE = """
trainer.ClusterQueue("{name}", labels={labels}, resource_groups=[]{more})
"""


def test_what_a_refresh_has_taken_into_the_state_is_put_back_too(lab: Lab, cluster: Cluster) -> None:  # noqa: F811
    lab.up_of(lab.text(QUEUE, labels={}))
    edit(cluster, lab.prefix, {"stopPolicy": "Hold"})
    lab.refresh()
    said = " ".join(lab.preview().out.split())
    assert f"ClusterQueue {lab.prefix} was changed by hand (kubectl-edit at 20" in said
    assert "stopPolicy nothing -> Hold" in said
    lab.up()
    assert lab.objects("ClusterQueue")[lab.prefix]["spec"]["stopPolicy"] == "None"
    lab.preview("--expect-no-changes")


def test_what_was_put_back_can_be_left_out_of_the_program(lab: Lab, cluster: Cluster) -> None:  # noqa: F811
    lab.up_of(lab.text(QUEUE, labels={"team": "rl"}, more=', stop_policy="Hold"'))
    edit(cluster, lab.prefix, {"stopPolicy": "HoldAndDrain"})
    lab.up()
    assert lab.objects("ClusterQueue")[lab.prefix]["spec"]["stopPolicy"] == "Hold"
    lab.up_of(lab.text(QUEUE, labels={}))
    found = lab.objects("ClusterQueue")[lab.prefix]
    assert (found["spec"]["stopPolicy"], found["metadata"].get("labels", {}).get("team")) == ("None", None)
    print(found["metadata"]["managedFields"])


def test_what_is_kept_stays_beside_a_change_of_the_program(lab: Lab, cluster: Cluster) -> None:  # noqa: F811
    """Of one field and of another one, also in the updates after it, and until the program takes it back."""
    queue = f"{lab.prefix}-{lab.prefix}"

    def state() -> tuple[str, str]:
        found = lab.objects("ClusterQueue")[queue]
        quota = found["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"]
        return quota, found["spec"]["stopPolicy"]

    lab.up_of(lab.text(TEAM, cpus=16))
    edit(cluster, queue, {"stopPolicy": "Hold"})
    kept = ', drift="keep"'
    lab.program(lab.text(TEAM, cpus=20, more=kept))
    for said in (lab.preview().out, lab.up().out):
        assert "stopPolicy None -> Hold; stays so, and no update changes stopPolicy" in " ".join(said.split())
    assert state() == ("20", "Hold")
    lab.preview("--expect-no-changes")
    edit(cluster, queue, with_quota(lab.objects("ClusterQueue")[queue], "3"))
    said = " ".join(lab.up_of(lab.text(TEAM, cpus=24, more=kept)).split())
    assert "nominalQuota 20 -> 3" in said and "no update changes resourceGroups, stopPolicy" in said, said
    assert state() == ("3", "Hold")
    lab.preview("--expect-no-changes", "--refresh")
    said = " ".join(lab.up_of(lab.text(TEAM, cpus=28, more=kept)).split())
    assert "nominalQuota 28 -> 3" in said and state() == ("3", "Hold")
    lab.up_of(lab.text(TEAM, cpus=28))
    assert state() == ("28", "None")
    lab.preview("--expect-no-changes")


def test_what_somebody_has_removed_is_kept_too(lab: Lab, cluster: Cluster) -> None:  # noqa: F811
    lab.up_of(lab.text(QUEUE, labels={"team": "rl", "site": "a"}))
    lab.root_client.patch(CLUSTER_QUEUE, "", lab.prefix, {"metadata": {"labels": {"team": None}}})
    for site in ("b", "c"):
        lab.up_of(lab.text(QUEUE, labels={"team": "rl", "site": site}, more=', drift="keep"'))
        assert lab.objects("ClusterQueue")[lab.prefix]["metadata"]["labels"] == {"site": site}
    lab.preview("--expect-no-changes")
    lab.up_of(lab.text(QUEUE, labels={"team": "rl", "site": "c"}))
    assert lab.objects("ClusterQueue")[lab.prefix]["metadata"]["labels"] == {"team": "rl", "site": "c"}


FLAVOR = """
trainer.ResourceFlavor("{name}-alone")
"""


def test_doctor_reaches_queues_whose_kubeconfig_is_not_here(lab: Lab, cluster: Cluster) -> None:  # noqa: F811
    """As in the Pod of its CronJob: the state of a platform has the path of another machine."""
    elsewhere = Path(shutil.copy(cluster.kubeconfig, lab.folder / "elsewhere"))
    lab.config("trainer:kubeconfig", str(elsewhere))

    def compared() -> str:
        hidden = elsewhere.rename(lab.folder / "hidden")
        try:
            done = run_doctor(lab, "--kubeconfig", str(cluster.kubeconfig))
        finally:
            hidden.rename(elsewhere)
        assert not done.stderr
        return done.stdout

    for program in (TEAM, FLAVOR):  # with a ClusterQueue, whose guard has the cluster, and without
        lab.up_of(lab.text(program, cpus=16))
        assert lab.prefix not in compared()
    lab.root_client.delete(RESOURCE_FLAVOR, "", f"{lab.prefix}-alone")
    assert f"ResourceFlavor {lab.prefix}-alone" in compared()
