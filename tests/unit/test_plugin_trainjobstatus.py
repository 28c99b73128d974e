"""TrainJobStatus: where trainers report to, if the controller's feature gate is on."""

from __future__ import annotations

from plugin_support import container, env, job, main, pod, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

FOLDER = "/var/run/secrets/kubeflow/trainer"
AUDIENCE = "trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/digits/status"
SERVER = "https://kubeflow-trainer-controller-manager.kubeflow-system.svc:10443"


def test_off_by_default() -> None:
    assert list(rendered(runtime({}), train_job({}))) == ["JobSet/digits"]


def test_environment_mount_and_volume() -> None:
    first = job("node", None, container(), container("side"), initContainers=[container("init")])
    objects = rendered(runtime({"torch": {}}, first, job("more"), job("aux", "")), train_job(), status_server_ca="CA")
    for each in pod(objects)["containers"]:
        assert env(each) == {
            "KUBEFLOW_TRAINER_SERVER_URL": f"{SERVER}/apis/{AUDIENCE}",
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": f"{FOLDER}/ca.crt",
            "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{FOLDER}/token",
        }
        assert each["volumeMounts"] == [{"name": "kubeflow-trainer-token", "mountPath": FOLDER, "readOnly": True}]
    token = {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}}
    certificate = {"configMap": {"name": "digits-tls-config", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    volume = {"name": "kubeflow-trainer-token", "projected": {"sources": [token, certificate]}}
    assert pod(objects)["volumes"] == [volume]
    assert "env" not in pod(objects)["initContainers"][0]
    for other in ("more", "aux"):  # of several trainers only the first
        assert "env" not in main(objects, other)
        assert "volumes" not in pod(objects, other)


def test_certificate() -> None:
    objects = rendered(runtime({}, job("aux", "")), train_job({}), status_server_ca="CA")
    assert list(objects) == ["ConfigMap/digits-tls-config", "JobSet/digits"]
    assert objects["ConfigMap/digits-tls-config"] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "digits-tls-config", "namespace": "ns"},
        "data": {"ca.crt": "CA"},
    }


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
