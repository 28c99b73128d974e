"""Datasets and outputs on a cluster, as far as no cluster is needed: what travels, who mounts what, what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pulumi
import pulumi_trainer as trainer
import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from pulumi_trainer import datasets
from pulumi_trainer.args import sources
from pulumi_trainer.plan import dataset_configmap
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.plan.volume_claims import MANY, ONE, VolumeArgs, count_mounting_pods
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.targets.kubernetes.storage.claims import claims_of, output_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "a.txt").write_bytes(b"\x00\xffA")
    (made / "deep" / "er" / "a b.txt").write_text("B")
    (made / "notes.md").write_text("C")
    return made


def unpacked(packed: dataset_configmap.DatasetConfigMap, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """What a pod does: the ConfigMap's items under their paths, then the script."""
    document, volume = packed.config_map("m", "ns"), packed.volume("m")
    texts = {k: v.encode() for k, v in document["data"].items()}
    held = {**texts, **{k: base64.b64decode(v) for k, v in document["binaryData"].items()}}
    mounted = tmp_path / "mounted"
    for item in volume["configMap"]["items"]:
        place = mounted / item["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(held[item["key"]])
    script = mounted / Path(dataset_configmap.COMMAND[1]).name
    env = {**os.environ, "OUTPUT_DIR": str(tmp_path / "out")}
    return subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=False)


def test_files_arrive_as_they_are(folder: Path, tmp_path: Path) -> None:
    packed = dataset_configmap.pack(f"file://{folder}", ["*.md"])
    assert packed.problems == () and set(packed.digests) == {"a.txt", "deep/er/a b.txt"}
    for _ in range(2):  # a repeated run does no harm
        done = unpacked(packed, tmp_path)
        assert done.returncode == 0 and json.loads(done.stdout)["trainerStatus"]["progressPercentage"] == 100
    out = tmp_path / "out"
    assert (out / "a.txt").read_bytes() == b"\x00\xffA" and (out / "deep/er/a b.txt").read_text() == "B"
    assert sorted(p.name for p in out.rglob("*") if p.is_file()) == ["a b.txt", "a.txt"]


def test_a_single_file_keeps_its_name(folder: Path) -> None:
    assert set(dataset_configmap.pack(f"file://{folder / 'a.txt'}", []).digests) == {"a.txt"}


def test_keys_are_fit_for_a_config_map_and_the_command_is_where_it_is_mounted(folder: Path) -> None:
    packed = dataset_configmap.pack(f"file://{folder}", [])
    assert set(packed.config_map("m", "ns")["binaryData"]) == {"file-0", "file-1", "file-2"}
    assert ["python3", f"{code.CODE_PATH}/unpack.py"] == dataset_configmap.COMMAND


def test_damaged_files_are_not_put_there(folder: Path, tmp_path: Path) -> None:
    whole = dataset_configmap.pack(f"file://{folder}", [])
    damaged = dataset_configmap.DatasetConfigMap(whole.digests, {**whole.contents, "a.txt": b"other"})
    done = unpacked(damaged, tmp_path)
    assert done.returncode == 1 and "a.txt is not what was sent" in done.stderr
    assert not (tmp_path / "out" / "a.txt").exists()


def test_what_cannot_travel_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(dataset_configmap.LIMIT + 1))
    (folder / "large").write_bytes(bytes(dataset_configmap.LIMIT + 1))
    for uri, ignore, why in (
        (tmp_path / "big", [], "the most that can travel with a job"),
        (folder, [], "the most that can travel with a job"),
        (folder, ["*"], "has no files"),
    ):
        (problem,) = dataset_configmap.pack(f"file://{uri}", ignore).problems
        assert why in problem.why
    (folder / "large").unlink()


@pytest.mark.parametrize(
    ("name", "target", "why"),
    [
        ("out", "../big", "out: is a symbolic link that leads out of the folder"),
        ("alias", "deep", "alias: is a symbolic link to a folder"),
        ("broken", "nowhere", "broken: No such file or directory"),
    ],
)
def test_a_link_that_a_fetch_would_refuse_is_refused(
    folder: Path, tmp_path: Path, name: str, target: str, why: str
) -> None:
    (tmp_path / "big").write_text("small")
    (folder / name).symlink_to(target)
    (problem,) = dataset_configmap.pack(f"file://{folder}", []).problems
    assert problem.where == "storage_uri" and problem.why == f"file://{folder}/{why}" and problem.hint
    assert [*dataset_configmap.pack(f"file://{folder}", [name, "deep/"]).digests] == ["a.txt", "notes.md"]


def test_the_patterns_are_those_of_a_fetch_and_the_order_is_that_of_paths(folder: Path) -> None:
    (folder / "deep-1").write_text("")
    (folder / "link").symlink_to("a.txt")
    packed = dataset_configmap.pack(f"file://{folder}", [])
    assert [*packed.digests] == ["a.txt", "deep/er/a b.txt", "deep-1", "link", "notes.md"]
    assert packed.contents["link"] == packed.contents["a.txt"]
    assert [*dataset_configmap.pack(f"file://{folder}", ["deep/"]).digests] == ["a.txt", "deep-1", "link", "notes.md"]


@pytest.mark.parametrize(
    ("uri", "of_dataset", "of_model"),
    [
        ("hf://a/b@v1", "do not support @REVISION", "do not support @REVISION"),
        ("hf://a/b@v1/x", "do not support @REVISION", "do not support @REVISION"),
        ("hf://a/b/x", "all of hf://a/b would be fetched", "would look for a model 'a/b/x'"),
        ("hf://a/b", "", ""),
        ("hf://a/b/", "", "would look for a model 'a/b/'"),
        ("hf://b", "names no repository", ""),
        ("hf://user@a/b", "has text before the owner", "has text before the owner"),
        ("s3://a/b/c@d", "", ""),
        (Unknown("uri"), "", ""),
    ],
)
def test_what_upstreams_initializers_do_not_know(uri: Any, of_dataset: str, of_model: str) -> None:
    for kind, why in (("dataset", of_dataset), ("model", of_model)):
        found = sources.upstream_problems(uri, kind)
        assert [why in p.why for p in found] == ([True] if why else [])
        if isinstance(uri, str) and uri.startswith("hf://"):
            assert _ends_with_an_error(uri, kind) is bool(why and "all of" not in why)


def _ends_with_an_error(uri: str, kind: str) -> bool:
    """Return whether the hub's library refuses the name that Trainer's initializer makes of a URI."""
    parsed = urlparse(uri)
    try:
        if kind == "model":
            validate_repo_id(parsed.netloc + parsed.path)
        else:
            validate_repo_id(parsed.netloc + "/" + parsed.path.split("/")[1])
    except (HFValidationError, IndexError):
        return True
    return False


def test_the_access_mode_follows_the_nodes_unless_it_is_given() -> None:
    assert VolumeArgs().claim(several=False) == {"accessMode": ONE}
    assert VolumeArgs(size="1Gi").claim(several=True) == {"accessMode": MANY, "size": "1Gi"}
    chosen = VolumeArgs(access_mode=ONE, storage_class="nfs").claim(several=True)
    assert chosen == {"accessMode": ONE, "storageClass": "nfs", "chosen": True}


@pytest.mark.parametrize(("given", "where"), [({"size": "much"}, "size"), ({"access_mode": "RWX"}, "access_mode")])
def test_wrong_values_are_told(given: dict[str, str], where: str) -> None:
    assert [p.where for p in VolumeArgs(**given).check()] == [where]
    assert [p.where for p in trainer.OutputVolume(**given).check()] == [where]


def job(**given: Any) -> TrainJobArgs:
    return TrainJobArgs("job", **{"runtime": "torch-distributed", **given})


@pytest.mark.parametrize(
    ("given", "pods"),
    [
        ({}, 1),
        ({"trainer": trainer.Trainer(num_nodes=3)}, 3),
        ({"trainer": trainer.CustomTrainer(command=["x"])}, 1),
        ({"trainer": trainer.BuiltinTrainer(config=trainer.TorchTuneConfig(num_nodes=2))}, 2),
        ({"runtime": "deepspeed-distributed"}, 2),  # the launcher is a pod as well
        ({"runtime": "no-such"}, 1),
        ({"runtime": None}, 1),
    ],
)
def test_how_many_pods_a_consumer_has(given: dict[str, Any], pods: int) -> None:
    assert datasets._pods(job(**given)) == pods


def test_the_image_of_a_consumer() -> None:
    assert datasets._image(job()) == ("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime", None)
    assert datasets._image(job(trainer=trainer.Trainer(image="own:1")))[0] == "own:1"
    assert datasets._image(job(runtime=None)) == (None, None)


def jobset(**counts: int) -> dict[str, Any]:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "emptyDir": {}}]
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/workspace/output", "subPath": "x"}]}
    pod = {"spec": {"volumes": volumes, "containers": [container]}}
    jobs = [
        {"name": "with", "replicas": counts.get("replicas", 1),
         "template": {"spec": {"parallelism": counts.get("pods", 1), "template": pod}}},
        {"name": "without", "template": {"spec": {"parallelism": 5, "template": {"spec": {"containers": []}}}}},
    ]  # fmt: skip
    return {"kind": "JobSet", "metadata": {"name": "j"}, "spec": {"replicatedJobs": jobs}}


def test_who_mounts_a_claim_and_where_its_output_is() -> None:
    assert count_mounting_pods(jobset(replicas=2, pods=3), "data") == 6
    assert count_mounting_pods(jobset(), "other") == 0
    assert claims_of(jobset()) == {"data"}
    assert output_path(jobset()) == "pvc://data/x"
    patch = {"trainingRuntimeSpec": {"template": {"spec": jobset()["spec"]}}}
    train_job = {"kind": "TrainJob", "metadata": {"name": "j"}, "spec": {"runtimePatches": [{"manager": "m"}, patch]}}
    assert output_path(train_job) == "pvc://data/x" and claims_of(train_job) == {"data"}
    assert output_path({"kind": "TrainJob", "metadata": {}, "spec": {}}) == ""


def test_fields_of_a_scheme_go_with_an_address_that_is_an_output() -> None:
    async def kinds() -> list[type]:
        uri = pulumi.Output.from_input("hf://org/data")
        chosen = trainer.DatasetInitializer._source_class
        own = trainer.DatasetInitializer.__new__(trainer.DatasetInitializer)
        return [
            chosen(own, {"storage_uri": uri, "access_token": uri}),
            chosen(own, {"storage_uri": uri, "region": "x"}),
            chosen(own, {"storage_uri": uri, "region": "x", "access_token": uri}),
            chosen(own, {"storage_uri": uri, "env": {}}),
            chosen(own, {"storage_uri": "s3://bucket/x"}),
        ]

    expected = [
        trainer.HuggingFaceDatasetInitializer, trainer.S3DatasetInitializer, trainer.DataSource, trainer.DataSource,
        trainer.S3DatasetInitializer,
    ]  # fmt: skip
    assert asyncio.run(kinds()) == expected


class Contested:
    """A cluster where somebody changes a claim whenever it is read."""

    def __init__(self) -> None:
        self.asked = 0

    def get(self, *_: object) -> dict[str, Any]:
        annotations = {claims.GENERATION: "g1", claims.owner_labels.OWNER: "urn"}
        meta = {"name": "data", "namespace": "team", "resourceVersion": "1", "uid": "u", "annotations": annotations}
        return {"metadata": {**meta, "labels": {claims.owner_labels.STACK: "s"}}, "spec": {"accessModes": [ONE]}}

    def patch(self, *_: object) -> None:
        self.asked += 1
        raise ApiError(Problem("", "the object has been modified"), 409, {"reason": "Conflict"})


@pytest.mark.parametrize(
    "change",
    [
        lambda client: claims.create(client, "team", "data", "urn", "s", {"accessMode": ONE}),
        lambda client: claims.update(client, "team", "data", "g1", {"retain": True}),
        lambda client: claims.relabel(client, "team", "data", "g1", "urn", "s-2"),
    ],
    ids=["create", "update", "relabel"],
)
def test_a_claim_that_others_keep_changing_is_given_up(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(claims.time, "sleep", pauses.append)
    client = Contested()
    with pytest.raises(TargetFault, match="volume team/data: has changed during each of 10 attempts to change it"):
        change(client)
    assert client.asked == claims.ATTEMPTS == len(pauses) + 1
