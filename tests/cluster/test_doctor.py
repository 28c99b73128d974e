"""`doctor` of a stack in a cluster: what was deleted, left behind, and given to another stack."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml
from kubernetes import utils
from kubernetes.client import ApiClient, CoreV1Api, RbacAuthorizationV1Api
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, CONFIG_MAP
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import jobset, slip, submission, until
from .test_up import Lab, head, lab, program  # noqa: F401 (a fixture)

JOB = program("), name='digits', output=True,")


def doctor(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:  # noqa: F811
    argv = ["pulumi-trainer", "doctor", "-s", lab.stack, *arguments]
    return subprocess.run(argv, cwd=lab.folder, env=lab.environment, capture_output=True, text=True, check=False)


def findings(lab: Lab) -> dict[tuple[str, str], dict[str, Any]]:  # noqa: F811
    done = doctor(lab, "-o", "json")
    found = json.loads(done.stdout or "null")
    assert found is not None, done.stderr
    assert done.returncode == bool(found["findings"])
    return {(each["kind"], each["name"]): each for each in found["findings"]}


def test_each_difference_has_the_command_that_settles_it(lab: Lab) -> None:  # noqa: F811
    lab.program(JOB, head())
    lab.up()
    done = doctor(lab)
    assert done.returncode == 0 and "All 2 objects in the state of" in done.stdout, done.stderr
    record = lab.root_client.get(CONFIG_MAP, lab.namespace, "digits")
    assert record is not None
    label = record["metadata"]["labels"][owner_labels.STACK]
    slip(lab.root_client, submission(lab.namespace, jobset("left"), sweep=label, code=False))
    slip(lab.root_client, submission(lab.namespace, jobset("clone"), sweep=f"{label.partition('-')[0]}-0", code=False))
    slip(lab.root_client, submission(lab.namespace, jobset("other"), sweep="ffff-0", code=False))
    other = {"metadata": {"labels": {owner_labels.STACK: "ffff-0"}}}
    (claim,) = (each["metadata"]["name"] for each in lab.root_client.list(CLAIM, lab.namespace)[0])
    lab.root_client.patch(CLAIM, lab.namespace, claim, other)
    found = findings(lab)
    codes = {name: each["code"] for (_, name), each in found.items()}
    assert codes == {"left": "not-in-state", "clone": "namesake", claim: "other-owner"}
    take = found["Volume", claim]["settle"][0]["command"]
    assert take.endswith(f" label --overwrite pvc -n {lab.namespace} {claim} {owner_labels.STACK}={label}")
    lab.root_client.patch(CLAIM, lab.namespace, claim, {"metadata": {"labels": {owner_labels.STACK: label}}})
    delete = found["Job", "left"]["settle"][-1]["command"]
    assert delete.endswith(f" delete jobset,configmap -n {lab.namespace} left")
    for name in ("left", "clone"):
        lab.root_client.delete(CONFIG_MAP, lab.namespace, name)
    until(lambda: lab.root_client.get(CONFIG_MAP, lab.namespace, "clone") is None)
    until(lambda: not findings(lab))


def test_the_cron_job_of_doctor_has_the_rights_that_it_needs(lab: Lab, admin: ApiClient, tmp_path: Path) -> None:  # noqa: F811
    """Its command runs here, with the printed kubeconfig, whose address and token are those of the Pod."""
    lab.program(JOB, head())
    lab.up()
    stack = f"organization/{yaml.safe_load((lab.folder / 'Pulumi.yaml').read_text())['name']}/{lab.stack}"
    words = ["pulumi-trainer", "deploy", "doctor", "image", "-n", lab.namespace, "--stack", stack]
    words += ["--backend", "s3://states", "--secret", "backend"]
    printed = subprocess.run(words, env=lab.environment, capture_output=True, text=True, check=True).stdout
    made = {each["kind"]: each for each in yaml.safe_load_all(printed)}
    for document in made.values():
        utils.create_from_dict(admin, document)
    try:
        name = made["ServiceAccount"]["metadata"]["name"]
        token = CoreV1Api(admin).create_namespaced_service_account_token(name, lab.namespace, {"spec": {}}).status.token
        folder = made["ConfigMap"]["data"]["config"].partition('"tokenFile": "')[2].partition("/token")[0]
        (tmp_path / "token").write_text(token)
        (tmp_path / "ca.crt").write_text(Path(admin.configuration.ssl_ca_cert).read_text())
        config = made["ConfigMap"]["data"]["config"].replace(folder, str(tmp_path))
        (tmp_path / "config").write_text(config.replace("https://kubernetes.default.svc", admin.configuration.host))
        (container,) = made["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        argv = [each.replace("/etc/pulumi-trainer", str(tmp_path)) for each in container["args"]]
        elsewhere = {**lab.environment, "KUBECONFIG": "/nonexistent"}

        def run() -> subprocess.CompletedProcess[str]:
            argv_ = ["pulumi-trainer", *argv]
            return subprocess.run(argv_, cwd=tmp_path, env=elsewhere, capture_output=True, text=True, check=False)

        def findings_here() -> list[str]:
            """With -A jobs of other tests are found too: their stacks have the same name."""
            return [line for line in run().stdout.splitlines() if f" {lab.namespace}/" in line]

        done = run()
        assert "not seen" not in done.stdout and not done.stderr, done.stdout + done.stderr
        assert findings_here() == []
        lab.root_client.delete(CONFIG_MAP, lab.namespace, "digits", propagation="Orphan")
        until(findings_here)
        assert run().returncode == 1
    finally:
        rbac = RbacAuthorizationV1Api(admin)
        rbac.delete_cluster_role(made["ClusterRole"]["metadata"]["name"])
        rbac.delete_cluster_role_binding(made["ClusterRoleBinding"]["metadata"]["name"])


def test_a_job_and_its_record_that_somebody_has_deleted(lab: Lab) -> None:  # noqa: F811
    lab.program(JOB, head())
    lab.up()
    lab.root_client.delete(CONFIG_MAP, lab.namespace, "digits", propagation="Orphan")
    until(lambda: lab.root_client.get(CONFIG_MAP, lab.namespace, "digits") is None)
    assert findings(lab)["Job", "digits"]["code"] == "no-record"
    lab.root_client.delete(JOBSET, lab.namespace, "digits")
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "digits") is None)
    gone = findings(lab)["Job", "digits"]
    assert (gone["code"], gone["resource"]) == ("gone", "train")
    lab.refresh()
    lab.up()
    assert findings(lab) == {}


def test_a_jobset_that_somebody_has_deleted(lab: Lab) -> None:  # noqa: F811
    lab.program(JOB, head("outcome: forever"))
    lab.up()
    assert findings(lab) == {}
    lab.root_client.delete(JOBSET, lab.namespace, "digits")
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "digits") is None)
    until(lambda: findings(lab) != {})  # a job follows its record within seconds
    (gone,) = findings(lab).values()
    assert (gone["code"], gone["name"]) == ("gone", "digits") and "it is not known whether it had ended" in gone[
        "message"
    ]
    assert [each["command"] for each in gone["settle"]] == ["pulumi-trainer rerun train"]
