"""TrainJobStatus: where trainers report to, if the controller's feature gate is on."""

from __future__ import annotations

from plugin_support import container, env, job, main, pod, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

FOLDER = "/var/run/secrets/kubeflow/trainer"


def test_what_the_runtime_has_of_these_names_is_replaced() -> None:
    mount = {"name": "mine", "mountPath": FOLDER}
    volumes = [{"name": "kubeflow-trainer-token", "emptyDir": {}}]
    node = job("node", None, container(volumeMounts=[mount]), volumes=volumes)
    objects = rendered(runtime({}, node), train_job({}), status_server_ca="CA")
    assert [volume["name"] for volume in pod(objects)["volumes"]] == ["kubeflow-trainer-token"]
    assert "emptyDir" not in pod(objects)["volumes"][0]
    assert [mount["name"] for mount in main(objects)["volumeMounts"]] == ["kubeflow-trainer-token"]


def test_the_jobs_env_wins() -> None:
    tj = train_job({"env": [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "mine"}]})
    assert env(main(rendered(runtime({}), tj, status_server_ca="CA")))["KUBEFLOW_TRAINER_SERVER_URL"] == "mine"


def test_unknown_namespace() -> None:
    tj, unknown = train_job(), Unknown("ns")
    tj["metadata"]["namespace"] = unknown
    objects = rendered(runtime({}), tj, status_server_ca="CA")
    assert env(main(objects))["KUBEFLOW_TRAINER_SERVER_URL"] is unknown
    assert pod(objects)["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["audience"] is unknown
