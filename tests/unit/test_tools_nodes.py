"""Parts of real nodes that need neither Linux nor root: addresses and images."""

from __future__ import annotations

import hashlib
import io
import ipaddress
import json
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.cluster import images, nodes, ports
from tools.cluster.network import MOST, Network

STARTS = range(ports.FIRST, ports.LAST, ports.BLOCK)


def test_no_two_clusters_have_an_address_in_common() -> None:
    seen: set[Any] = set()
    for start in STARTS:
        whole = ipaddress.ip_network(Network(start).all)
        assert whole not in seen and whole.is_private
        seen.add(whole)


@pytest.mark.parametrize("start", [STARTS[0], STARTS[7], STARTS[-1]])
def test_nodes_and_pods_have_their_own(start: int) -> None:
    network = Network(start)
    pods = [ipaddress.IPv4Network(network.pods(index)) for index in range(1, MOST + 1)]
    addresses = [network.machine, network.hub, *(network.node(index) for index in range(1, MOST + 1))]
    assert len(set(pods)) == len(pods) and len(set(addresses)) == len(addresses)
    assert all(pod.subnet_of(ipaddress.IPv4Network(network.all)) for pod in pods)
    assert not [a for a in addresses for pod in pods if ipaddress.ip_address(a) in pod]


def test_the_name_of_a_link_is_short_enough() -> None:
    assert len(nodes.stem(Path("/a/long/path") / ("x" * 200))) <= 15


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    pause = tmp_path / "pause"
    pause.write_bytes(b"program")
    images.write(tmp_path / "registry", {"PATH": "/layer/bin:/usr/bin", "PYTHONPATH": "/layer/lib"}, pause)

    class Handler(images.Registry):
        folder = tmp_path / "registry"

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v2"
        server.shutdown()
        thread.join()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
        return content


def test_an_image_of_the_catalogue_is_pulled_in_any_version(registry: str) -> None:
    for tag in ("2.13.0-cuda13.0-cudnn9-runtime", "latest"):
        manifest = json.loads(get(f"{registry}/pytorch/pytorch/manifests/{tag}?ns=docker.io"))
        config = json.loads(get(f"{registry}/pytorch/pytorch/blobs/{manifest['config']['digest']}?ns=docker.io"))
        assert config["config"]["Env"][0].startswith("PATH=/layer/bin:") and "Entrypoint" not in config["config"]
        (layer,) = manifest["layers"]
        content = get(f"{registry}/pytorch/pytorch/blobs/{layer['digest']}?ns=docker.io")
        assert layer["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}" and layer["size"] == len(content)
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            assert {"etc/passwd", "tmp", "workspace"} <= set(archive.getnames())


def test_initializers_begin_by_themselves(registry: str) -> None:
    name = "kubeflow/trainer/dataset-initializer"
    manifest = json.loads(get(f"{registry}/{name}/manifests/v2.3.0?ns=ghcr.io"))
    config = json.loads(get(f"{registry}/{name}/blobs/{manifest['config']['digest']}?ns=ghcr.io"))["config"]
    assert config["Entrypoint"][-1] == "dataset" and "OUTPUT_DIR=/workspace/dataset" in config["Env"]


@pytest.mark.parametrize(
    "path", ["nobody/nothing/manifests/1", "pytorch/pytorch/blobs/sha256:0", "a/blobs/..%2Findex.json"]
)
def test_anything_else_is_not_found(registry: str, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{registry}/{path}")


def test_containers_see_folders_of_this_machine_once_and_cannot_write_them() -> None:
    found = images.mounts({"PATH": "/usr/layer/bin:/bin"})
    assert all("ro" in mount["options"] for mount in found)
    places = [mount["destination"] for mount in found]
    assert "/usr" in places and "/usr/layer" not in places and len(set(places)) == len(places)
