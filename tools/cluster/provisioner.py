"""Gives claims a folder of this machine, which all of a cluster's real nodes see: a program of a cluster, as a storage driver is.

StorageClass `shared`, the default one: any access mode. The data goes with its claim. Started by nodes.py as
`python -m tools.cluster.provisioner KUBECONFIG FOLDER`.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .api import Api, Refused

NAME = "pulumi-trainer.dev/folder"
CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": NAME, "volumeBindingMode": "Immediate",
    "metadata": {"name": "shared", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
}  # fmt: skip
VOLUMES = "/api/v1/persistentvolumes"
OFTEN = 0.2
"""Seconds between two looks."""


def provision(api: Api, folder: Path) -> None:
    """A volume for each claim that waits for one of ours, and the end of volumes whose claim is gone."""
    volumes = {volume["metadata"]["name"]: volume for volume in api.call("GET", VOLUMES)["items"]}
    for claim in api.call("GET", "/api/v1/persistentvolumeclaims")["items"]:
        name = f"pvc-{claim['metadata']['uid']}"
        if (
            claim["spec"].get("storageClassName") == CLASS["metadata"]["name"]
            and name not in volumes
            and not claim["spec"].get("volumeName")
        ):
            place = folder / name
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(0o777)
            with suppress(Refused):
                api.call("POST", VOLUMES, _volume(name, claim, place))
    for name, volume in volumes.items():
        mine = volume["metadata"].get("annotations", {}).get("pv.kubernetes.io/provisioned-by") == NAME
        if mine and volume["status"].get("phase") == "Released":
            api.call("DELETE", f"{VOLUMES}/{name}")
            shutil.rmtree(folder / name, ignore_errors=True)


def _volume(name: str, claim: dict[str, Any], place: Path) -> dict[str, Any]:
    meta = claim["metadata"]
    return {
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": NAME}},
        "spec": {
            "capacity": claim["spec"]["resources"]["requests"], "accessModes": claim["spec"]["accessModes"],
            "hostPath": {"path": str(place), "type": "Directory"}, "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS["metadata"]["name"],
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                **{key: meta[key] for key in ("name", "namespace", "uid")},
            },
        },
    }  # fmt: skip


def main(kubeconfig: str, folder: str) -> None:
    """Until it is ended; a server that does not answer is asked again."""
    content = json.loads(Path(kubeconfig).read_text())
    server = content["clusters"][0]["cluster"]
    api = Api(
        int(server["server"].rpartition(":")[2]),
        Path(server["certificate-authority"]),
        content["users"][0]["user"]["token"],
    )
    while True:
        try:
            provision(api, Path(folder))
        except (OSError, Refused) as error:
            print(error, flush=True)
        time.sleep(OFTEN)


if __name__ == "__main__":
    main(*sys.argv[1:])
