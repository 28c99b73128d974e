"""The rules of a job's life through the real Pulumi engine on a real API server, as a user with the least role."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, EVENT, POD, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

from tests.engine.conftest import HEAD, Project, pulumi_home  # noqa: F401 (a fixture)

from .jobs import left, send, until


class Lab(Project):
    """A project whose stack runs on the cluster, in a namespace of the test."""

    namespace: str
    root_client: Client

    def jobs(self) -> dict[str, dict[str, Any]]:
        found, _ = self.root_client.list(JOBSET, self.namespace)
        return {j["metadata"]["name"].rpartition("-")[0]: j for j in found}

    def pods(self, count: int) -> set[str]:
        """uids of the pods, once there are that many and all run."""

        def running() -> set[str]:
            found, _ = self.root_client.list(POD, self.namespace)
            uids = {p["metadata"]["uid"] for p in found if p["status"].get("phase") == "Running"}
            return uids if len(uids) == len(found) == count else set()

        return until(running)

    def edit(self, name: str, change: dict[str, Any]) -> None:
        path = JOBSET.path(self.namespace, self.jobs()[name]["metadata"]["name"])
        query = {"fieldManager": "kubectl-edit"}
        send(self.root_client, "PATCH", path, query, change)


@pytest.fixture
def lab(
    tmp_path: Path,
    pulumi_home: Path,  # noqa: F811
    cluster: Any,
    namespace: str,
    user_kubeconfig: Path,
) -> Iterator[Lab]:
    folder = tmp_path / "lab"
    (folder / "state").mkdir(parents=True)
    made = Lab(folder, pulumi_home)
    made.namespace = namespace
    made.root_client = open_client({"kubeconfig": str(cluster.kubeconfig)})
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": made.name, "runtime": "python", "main": "."}))
    assert made.run("stack", "init").code == 0
    for key, value in (("target", "kubernetes"), ("kubeconfig", str(user_kubeconfig)), ("namespace", namespace)):
        made.config(f"trainer:{key}", value)
    yield made


def head(sim: str = "outcome: forever", ttl: int | None = None) -> str:
    """A runtime whose pods do what `sim` says."""
    notes = {f"sim/{k.strip()}": v.strip() for k, _, v in (pair.partition(":") for pair in sim.split(","))}
    lifetime = f"ttl_seconds_after_finished={ttl}," if ttl is not None else ""
    text = HEAD.replace('"plain",', '"simulated",').replace("plain = ", "simulated = ")
    text = text.replace("pod_spec={", f"pod_annotations={json.dumps(notes)}, pod_spec={{")
    return text.replace("template=trainer.JobSetTemplate(", f"template=trainer.JobSetTemplate({lifetime}")


def program(args: str = "", *, name: str = "train", options: str = "", more: str = "") -> str:
    """One job of two nodes. args: further ones of the TrainJob; options: of the resource."""
    return f"""
job = trainer.TrainJob(
    "{name}", runtime=simulated, trainer=trainer.Trainer(image="trainer:1", command=["train"], num_nodes=2, {args}
    opts=pulumi.ResourceOptions({options}),
)
pulumi.export("phase", job.phase)
pulumi.export("reason", job.reason)
{more}
"""


PLAIN = program("),")


def second(lab: Project) -> None:
    """Goes on with another stack, of the same configuration."""
    configuration = (lab.folder / "Pulumi.test.yaml").read_text()
    lab.stack = "second"
    assert lab.run("stack", "init").code == 0
    there = yaml.safe_load((lab.folder / "Pulumi.second.yaml").read_text())
    there["config"] = yaml.safe_load(configuration)["config"]
    (lab.folder / "Pulumi.second.yaml").write_text(yaml.safe_dump(there))


@pytest.mark.smoke
def test_a_job_is_made_once_and_all_of_it_goes(lab: Lab) -> None:
    lab.program(PLAIN, head())
    lab.up()
    pods = lab.pods(2)
    assert "2 unchanged" in (again := lab.up()).out or "unchanged" in again.out
    preview = lab.preview("--expect-no-changes")
    assert preview.code == 0
    assert lab.pods(2) == pods
    lab.destroy()
    assert left(lab.root_client, lab.namespace) == []


@pytest.mark.smoke
def test_a_change_of_running_work_is_refused_with_reasons_and_made_when_asked(lab: Lab) -> None:
    lab.program(PLAIN, head())
    lab.up()
    pods = lab.pods(2)
    lab.program(program('env={"A": "1"}),'), head())
    refused = lab.preview(ok=False)
    assert "is Running since" in refused.out and 'interrupt="allow"' in refused.out and "env" in refused.out
    lab.up(ok=False)
    assert lab.pods(2) == pods
    lab.program(program('env={"A": "1"}), interrupt="allow",'), head())
    lab.up()
    until(lambda: not pods & lab.pods(2))


def test_a_creation_that_was_refused_halfway_is_refused_in_the_next_plan_too(lab: Lab) -> None:
    quota = Kind("v1", "ResourceQuota", "resourcequotas")
    made = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one", "namespace": lab.namespace}}
    lab.root_client.create(quota, {**made, "spec": {"hard": {"count/jobsets.jobset.x-k8s.io": "1"}}})
    until(lambda: "hard" in (lab.root_client.get(quota, lab.namespace, "one") or {}).get("status", {}))
    second = 'trainer.TrainJob("second", runtime=simulated, trainer=trainer.Trainer(command=["train"]))\n'
    lab.program(PLAIN + second, head())
    lab.preview()
    for refused in (lab.up(ok=False).out, lab.preview(ok=False).out, lab.up(ok=False).out):
        assert "exceeded quota: one" in refused, refused
    lab.root_client.delete(quota, lab.namespace, "one")
    lab.preview()
    lab.up()
    lab.preview("--expect-no-changes")


@pytest.mark.smoke
def test_suspend_is_an_update_in_place(lab: Lab) -> None:
    lab.program(PLAIN, head())
    lab.up()
    lab.pods(2)
    uid = lab.jobs()["train"]["metadata"]["uid"]
    lab.program(program("), suspend=True,"), head())
    assert "replac" not in lab.up().out
    until(lambda: lab.root_client.list(POD, lab.namespace)[0] == [])
    assert lab.jobs()["train"]["metadata"]["uid"] == uid
    lab.program(PLAIN, head())
    lab.up()
    lab.pods(2)
    assert lab.jobs()["train"]["metadata"]["uid"] == uid


def test_a_human_s_change_is_shown_by_a_refresh_and_taken_back_by_the_next_up(lab: Lab) -> None:
    lab.program(PLAIN, head())
    lab.up()
    lab.pods(2)
    lab.preview("--expect-no-changes", "--refresh")
    lab.edit("train", {"spec": {"ttlSecondsAfterFinished": 77, "suspend": True}})
    shown = lab.run("preview", "--refresh", "--diff")
    assert shown.code == 0, shown
    assert "spec.ttlSecondsAfterFinished" in shown.out and "spec.suspend" in shown.out
    lab.up("--refresh")
    job = lab.jobs()["train"]
    assert job["spec"].get("suspend") is False and "ttlSecondsAfterFinished" not in job["spec"]
    lab.preview("--expect-no-changes", "--refresh")


def test_one_that_somebody_has_deleted_is_said_in_the_plan_and_made_again_if_asked(lab: Lab) -> None:
    lab.program(program('), interrupt="allow",'), head())
    lab.up()
    pods = lab.pods(2)
    name = lab.jobs()["train"]["metadata"]["name"]
    lab.root_client.delete(JOBSET, lab.namespace, name)
    until(lambda: lab.jobs() == {})
    for _ in range(2):
        shown = lab.preview()
        assert "it is not known whether it had ended; it is created again, as interrupt= allows" in shown.out
    lab.up()
    assert not pods & lab.pods(2)
    lab.preview("--expect-no-changes")
    lab.root_client.delete(JOBSET, lab.namespace, name)
    until(lambda: lab.jobs() == {})
    lab.refresh()
    lab.up()
    lab.pods(2)


def test_a_finished_job_that_its_ttl_has_removed_does_not_run_again(lab: Lab) -> None:
    lab.program(program('), wait_for="complete",'), head("run: 1s", ttl=1))
    lab.up()
    assert lab.outputs()["phase"] == "Succeeded"
    until(lambda: lab.jobs() == {})
    assert "unchanged" in lab.up().out
    lab.refresh()
    lab.up()
    assert lab.jobs() == {} and lab.outputs()["phase"] == "Succeeded"
    lab.program(program('), wait_for="complete", run="2",'), head("run: 1s", ttl=60))
    lab.up()
    assert lab.jobs()["train"]["status"]["terminalState"] == "Completed"


def test_a_failed_job_is_told_again_and_how_to_run_it_again(lab: Lab) -> None:
    lab.program(program('), wait_for="complete",'), head("outcome: fail, run: 1s, exit-code: 3"))
    failed = lab.up(ok=False)
    assert "Failed" in failed.out and "exit code 3" in failed.out and "another run= key" in failed.out
    again = lab.up(ok=False)
    assert "another run= key" in again.out
    assert len(lab.jobs()) == 1


def test_renames_keep_the_job(lab: Lab) -> None:
    lab.program(PLAIN, head())
    lab.up()
    pods = lab.pods(2)
    lab.program(program("),", name="other", options='aliases=[pulumi.Alias(name="train")]'), head())
    lab.up()
    assert lab.run("stack", "rename", "renamed").code == 0
    lab.stack = "renamed"
    lab.up()
    assert lab.pods(2) == pods and len(lab.jobs()) == 1
    lab.destroy()
    until(lambda: lab.jobs() == {})


def test_retain_on_delete_outlives_the_stack(lab: Lab) -> None:
    """And is found again by a later life of it."""
    lab.program(program("),", options="retain_on_delete=True"), head())
    lab.up()
    pods = lab.pods(2)
    lab.destroy()
    assert lab.pods(2) == pods
    lab.program(PLAIN, head())
    lab.up()
    assert lab.pods(2) == pods
    lab.destroy()
    assert left(lab.root_client, lab.namespace) == []


def test_a_job_that_somebody_made_by_hand_is_adopted_with_its_pods(lab: Lab) -> None:
    lab.program(PLAIN, head())
    lab.up()
    lab.pods(2)
    made = lab.jobs()["train"]
    lab.destroy()
    meta = {"name": made["metadata"]["name"], "namespace": lab.namespace}
    by_hand = {k: made[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": meta}
    path, query = JOBSET.path(lab.namespace), {"fieldManager": "kubectl-create"}
    send(lab.root_client, "POST", path, query, by_hand)
    pods = lab.pods(2)
    refused = lab.up(ok=False)
    assert "kubectl-create" in refused.out and "adopt=True" in refused.out
    lab.program(program("), adopt=True,"), head())
    lab.up()
    assert lab.pods(2) == pods
    lab.preview("--expect-no-changes")
    lab.destroy()
    until(lambda: left(lab.root_client, lab.namespace) == [])


def test_destroy_goes_by_the_credentials_of_the_stack_s_configuration(
    lab: Lab, user_kubeconfig: Path, tmp_path: Path
) -> None:
    lab.program(PLAIN, head())
    lab.up()
    newer = tmp_path / "newer"
    user_kubeconfig.rename(newer)
    refused = lab.destroy(ok=False)
    assert "trainer:kubeconfig" in refused.out and "pulumi destroy --run-program" in refused.out
    assert lab.jobs()
    lab.config("trainer:kubeconfig", str(newer))
    lab.destroy("--run-program")
    assert left(lab.root_client, lab.namespace) == []


@pytest.mark.parametrize("kind", [JOBSET, TRAIN_JOB], ids=["jobset", "trainer"])
def test_a_secret_output_is_in_the_cluster_s_secret_alone(lab: Lab, kind: Kind) -> None:
    canary = "canary-5c1d9e"
    secret = f'env={{"TOKEN": pulumi.Output.secret("{canary}")}}'
    if kind is TRAIN_JOB:
        lab.config("trainer:mode", "trainer")
    lab.program(program(f"{secret}),"), head().replace('"simulated"', f'"plain-{lab.namespace}"'))
    made = lab.up("--diff", "--show-config")
    state = "".join(p.read_text(errors="replace") for p in (lab.folder / "state").rglob("*") if p.is_file())
    for text in (
        made.out,
        state,
        json.dumps([lab.root_client.list(each, lab.namespace)[0] for each in (kind, JOBSET, CONFIG_MAP)]),
    ):
        assert canary not in text
    assert len(lab.root_client.list(SECRET, lab.namespace)[0]) == 1
    lab.pods(2)
    assert canary not in json.dumps([lab.root_client.list(each, lab.namespace)[0] for each in (POD, EVENT)])
    lab.destroy()


@pytest.mark.parametrize(
    ("kind", "sim", "phase"),
    [(JOBSET, "outcome: forever", "Running"), (TRAIN_JOB, "run: 1s", "Succeeded")],
    ids=["jobset", "trainer"],
)
def test_a_rotated_secret_changes_the_secret_in_place(lab: Lab, kind: Kind, sim: str, phase: str) -> None:
    if kind is TRAIN_JOB:
        lab.config("trainer:mode", "trainer")
    wait = "running" if phase == "Running" else "complete"
    text = program(f'env={{"TOKEN": pulumi.Config().require_secret("token")}}), wait_for="{wait}",')
    lab.program(text, head(sim).replace('"simulated"', f'"plain-{lab.namespace}"'))
    lab.config("token", "first-canary", "--secret")
    lab.up()

    def there(each: Kind) -> dict[str, str]:
        return {d["metadata"]["name"]: d["metadata"]["uid"] for d in lab.root_client.list(each, lab.namespace)[0]}

    before = [there(each) for each in (kind, JOBSET, POD, SECRET, CONFIG_MAP)]
    lab.config("token", "second-canary", "--secret")
    plan = lab.preview("--diff").out
    assert f"the job is {phase}: applies at the next run" in plan
    assert re.search(r"\+ \S+-env/trainer\.TOKEN *: 1", plan) and "replace" not in plan
    done = lab.up("--diff").out
    assert "1 updated" in done and "-canary" not in plan + done
    assert [there(each) for each in (kind, JOBSET, POD, SECRET, CONFIG_MAP)] == before
    (secret,) = lab.root_client.list(SECRET, lab.namespace)[0]
    assert [base64.b64decode(value) for value in secret["data"].values()] == [b"second-canary"]
    lab.preview("--expect-no-changes")
    lab.refresh("--expect-no-changes")
    lab.destroy()


def test_two_stacks_do_not_collide_and_destroy_leaves_the_other(lab: Lab) -> None:
    lab.program(PLAIN, head())
    lab.up()
    first = lab.jobs()
    second(lab)
    lab.up()
    assert len(lab.root_client.list(JOBSET, lab.namespace)[0]) == 2
    lab.destroy()
    assert lab.jobs().keys() == first.keys()
    assert len(lab.root_client.list(JOBSET, lab.namespace)[0]) == 1
