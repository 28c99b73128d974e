"""Objects of others that have the names of ours: said in the plan, never changed, never deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, CONFIG_MAP, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Conflict
from pulumi_trainer.provider.targets import generated_secrets
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import jobset, submission, until
from .storage_support import storage_class
from .test_deleted import DATA, GANG, IMPORTS, JOB, JOBS, PARTS, all_run, end_pods, remove, remove_claims, uids, up
from .test_owners import opened
from .test_up import Lab, head, lab  # noqa: F401 (a fixture)

ENDS = {"secret": "Secret/secret-env", "code": "ConfigMap/code-code"}
"""Jobs of `test_deleted.PARTS`, and the object beside each that gets lost."""


def make(client: Client, kind: Kind, namespace: str, name: str, **more: Any) -> dict[str, Any]:
    """A stranger's object."""
    about = {"metadata": {"name": name, "namespace": namespace}}
    return client.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **about, **more})


def claim(lab: Lab, name: str) -> dict[str, Any]:  # noqa: F811
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return make(lab.root_client, CLAIM, lab.namespace, name, spec=spec)


def is_untouched(client: Client, kind: Kind, made: dict[str, Any]) -> bool:
    """What was made is there as it was, but for its status and who looks after it."""
    found = client.get(kind, made["metadata"]["namespace"], made["metadata"]["name"])

    def said(each: dict[str, Any]) -> Any:
        meta = {k: each["metadata"].get(k) for k in ("uid", "labels", "ownerReferences", "deletionTimestamp")}
        return meta, each.get("data"), (each["metadata"].get("annotations") or {}).keys() & {"pulumi-trainer.dev/owner"}

    return found is not None and said(found) == said(made)


MINE = {"stringData": {"STRANGER": "mine"}}


def test_of_a_new_job(lab: Lab) -> None:  # noqa: F811
    secret = make(lab.root_client, SECRET, lab.namespace, "secret-env", **MINE)
    code = make(lab.root_client, CONFIG_MAP, lab.namespace, "code-code", data={"STRANGER": "mine"})
    lab.program(JOBS.format(parts=("secret", "code")), head())
    for run in (lab.preview, lab.up, lab.preview):
        refused = run(ok=False).out
        for key in ENDS.values():
            assert f"{key}: exists and was not created by this program" in refused, refused
    assert uids(lab, JOBSET) == {}
    lab.destroy()
    assert is_untouched(lab.root_client, SECRET, secret) and is_untouched(lab.root_client, CONFIG_MAP, code)


def test_of_running_jobs(lab: Lab) -> None:  # noqa: F811
    up(lab, "outcome: forever", *PARTS)
    before = all_run(lab)
    remove(lab, ENDS)
    secret = make(lab.root_client, SECRET, lab.namespace, "secret-env", **MINE)
    code = make(lab.root_client, CONFIG_MAP, lab.namespace, "code-code", data={"STRANGER": "mine"})
    shown = lab.preview().out
    for part, key in ENDS.items():
        assert f"{lab.namespace}/{part}: somebody has deleted its {key}, and another object has that name" in shown, (
            shown
        )
    assert "created again" not in shown
    refused = lab.up(ok=False).out
    assert "exists and was not created by this program" in refused and "Traceback" not in refused, refused
    assert all_run(lab) == before
    assert is_untouched(lab.root_client, SECRET, secret) and is_untouched(lab.root_client, CONFIG_MAP, code)
    remove(lab, ENDS)
    lab.up()
    lab.preview("--expect-no-changes")
    assert all_run(lab) == before
    remove(lab, ["secret"])
    secret = make(lab.root_client, SECRET, lab.namespace, "secret-env", **MINE)
    lab.destroy()
    assert is_untouched(lab.root_client, SECRET, secret)


def test_of_a_pod_group(lab: Lab) -> None:  # noqa: F811
    lab.program(GANG.format(sim={"sim/outcome": "forever"}), IMPORTS)
    group = make(lab.root_client, POD_GROUP, lab.namespace, "job", spec={"minMember": 1})
    assert "PodGroup/job: exists and was not created by this program" in lab.preview(ok=False).out
    lab.root_client.delete(POD_GROUP, lab.namespace, "job", propagation="Background")
    lab.up()
    lab.root_client.delete(POD_GROUP, lab.namespace, "job", propagation="Background")
    until(lambda: lab.root_client.get(POD_GROUP, lab.namespace, "job") is None)
    group = make(lab.root_client, POD_GROUP, lab.namespace, "job", spec={"minMember": 1})
    assert "deleted its PodGroup/job, and another object has that name" in lab.preview().out
    assert "exists and was not created by this program" in lab.up(ok=False).out
    lab.destroy()
    assert is_untouched(lab.root_client, POD_GROUP, group)


def test_of_mpi_s_keys(user_kubeconfig: Any, root: Client, namespace: str) -> None:
    """Keys that somebody else knows are none; those of an attempt that was cut off are this run's own."""
    target = KubernetesTarget(opened(user_kubeconfig), cluster=lambda: "", namespace=namespace)
    made = make(root, SECRET, namespace, "a-mpi-ssh-auth", **MINE)
    wanted = submission(namespace, jobset("a", suspend=True))
    wanted.objects["Secret/a-mpi-ssh-auth"] = keys_secret("a-mpi-ssh-auth")
    for _ in range(2):
        with pytest.raises(Conflict, match="exists and was not created by this program"):
            target.jobs.create(wanted)
    assert is_untouched(root, SECRET, made)
    root.delete(SECRET, namespace, "a-mpi-ssh-auth")
    target.jobs.create(wanted)
    before = root.get(SECRET, namespace, "a-mpi-ssh-auth")
    root.delete(JOBSET, namespace, "a")
    until(lambda: root.get(JOBSET, namespace, "a") is None)
    target.jobs.create(wanted)
    after = root.get(SECRET, namespace, "a-mpi-ssh-auth")
    assert before and after and before["data"] == after["data"]


def keys_secret(name: str) -> dict[str, Any]:
    data = {"ssh-privatekey": generated_secrets.SSH_PRIVATE_KEY, "ssh-publickey": generated_secrets.SSH_PUBLIC_KEY}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": data}


@pytest.fixture
def storage(lab: Lab) -> Iterator[str]:  # noqa: F811
    with storage_class(lab.root_client, lab.namespace, volumes=4) as name:
        yield name


def replace_claims(lab: Lab) -> list[dict[str, Any]]:  # noqa: F811
    """Strangers' claims in the place of all that jobs mount, whose pods have ended."""
    names = list(uids(lab, CLAIM))
    remove_claims(lab)
    for job in uids(lab, JOBSET):
        end_pods(lab, job)
    until(lambda: lab.root_client.list(CLAIM, lab.namespace)[0] == [])
    return [claim(lab, name) for name in names]


def test_of_fetched_data(lab: Lab, storage: str) -> None:  # noqa: F811
    (lab.folder / "digits.csv").write_text("1,2,3")
    lab.program(DATA.format(storage=storage), head("run: 1s"))
    lab.up()
    until(lambda: all(j.get("status", {}).get("terminalState") for j in lab.root_client.list(JOBSET, lab.namespace)[0]))
    lab.refresh()
    lab.up()
    before = uids(lab, JOBSET)
    (stranger,) = replace_claims(lab)
    another = 'trainer.TrainJob("u", name="u", runtime=simulated, initializer=trainer.Initializer(dataset=digits))\n'
    lab.program(DATA.format(storage=storage) + another, head("run: 1s"))
    _refused(lab)
    assert uids(lab, JOBSET) == before
    lab.refresh()
    _refused(lab)
    assert is_untouched(lab.root_client, CLAIM, stranger)
    lab.root_client.delete(CLAIM, lab.namespace, stranger["metadata"]["name"])
    lab.up()
    assert "u" in uids(lab, JOBSET)
    lab.preview("--expect-no-changes")


def _refused(lab: Lab) -> None:  # noqa: F811
    for run in (lab.preview, lab.up):
        refused = run(ok=False).out
        assert "exists and was not created by this program" in refused, refused


def test_of_an_output(lab: Lab, storage: str) -> None:  # noqa: F811
    lab.program(JOB.format(more="", storage=storage), head("outcome: forever"))
    lab.up()
    lab.root_client.delete(JOBSET, lab.namespace, "job")
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "job") is None)
    (stranger,) = replace_claims(lab)
    _refused(lab)
    assert uids(lab, JOBSET) == {}
    made_by_it = 'made = pulumi.Output.from_input("x")\n'
    lab.program(JOB.format(more="", storage=storage) + made_by_it, head("outcome: forever"))
    _refused(lab)
    lab.destroy()
    assert is_untouched(lab.root_client, CLAIM, stranger)
