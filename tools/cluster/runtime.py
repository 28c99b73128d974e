"""Configuration of what runs on a real node: containerd, kubelet, kube-proxy, the pods' network; names and images for all nodes.

Called by nodes.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import images
from .control_plane import Place
from .network import Network

REGISTRY_PORT = 5000
SOCKET = "/run/containerd/containerd.sock"
CORES = 1.5
"""Processors of a node that pods can have: two pods that ask for one each do not share a node, on any machine."""


def kubeconfig(place: Place) -> Path:
    """The administrator's, from a node."""
    return place.conf / "nodes.kubeconfig"


def write_shared(place: Place, network: Network, debs: Path, mounts: Sequence[Mapping[str, Any]]) -> None:
    """What all nodes have in common. debs: the unpacked packages. mounts: what every container sees of this machine."""
    content = json.loads(place.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://{network.machine}:{place.ports['apiserver']}"
    kubeconfig(place).touch(mode=0o600)
    kubeconfig(place).write_text(json.dumps(content))
    specification = json.loads(
        subprocess.run([debs / "usr/bin/ctr", "oci", "spec"], capture_output=True, check=True).stdout
    )
    specification["mounts"] += mounts
    (place.conf / "container.json").write_text(json.dumps(specification))
    (place.conf / "debs").symlink_to(debs)
    (place.conf / "Corefile").write_text(_corefile(place, network))
    hosts = place.conf / "registries" / "_default" / "hosts.toml"
    hosts.parent.mkdir(parents=True)
    registry = f"http://{network.hub}:{REGISTRY_PORT}"
    hosts.write_text(f'server = "{registry}"\n[host."{registry}"]\ncapabilities = ["pull", "resolve"]\n')


def write(place: Place, network: Network, index: int) -> None:
    """The files of one node."""
    name = f"node{index}"
    cni = place.conf / f"{name}.cni"
    cni.mkdir(exist_ok=True)
    (cni / "pods.conflist").write_text(json.dumps(_cni(network.pods(index))))
    (place.conf / f"{name}.containerd.toml").write_text(_containerd(place, cni))
    (place.conf / f"{name}.kubelet.json").write_text(json.dumps(_kubelet(place, network, index), indent=1))
    (place.conf / f"{name}.proxy.json").write_text(json.dumps(_proxy(place, network, index), indent=1))


def _corefile(place: Place, network: Network) -> str:
    """A name that is not there yet is asked for again at once: ranks look for each other as they start."""
    return f"""
.:53 {{
    bind {network.hub}
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig(place)}
        pods insecure
        ttl 5
    }}
    cache 5 {{
        denial 1000 1
    }}
}}
"""


def _cni(pods: str) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0", "name": "pods",
        "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
            "ipam": {
                "type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    }  # fmt: skip


def _containerd(place: Place, cni: Path) -> str:
    debs = place.conf / "debs"
    return f"""
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "{SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{images.PAUSE}"
disable_apparmor = true
restrict_oom_score_adj = true
disable_hugetlb_controller = true
tolerate_missing_hugetlb_controller = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{debs}/usr/lib/cni"
conf_dir = "{cni}"

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{place.conf}/registries"

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{place.conf}/container.json"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{debs}/usr/sbin/runc"
"""


def _kubelet(place: Place, network: Network, index: int) -> dict[str, Any]:
    reserved = max(0.0, (os.cpu_count() or 1) - CORES)
    (place.conf / "resolv.conf").write_text(f"nameserver {network.hub}\n")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}", "clusterDNS": [network.hub], "clusterDomain": "cluster.local",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"}, "address": network.node(index), "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1", "resolvConf": str(place.conf / "resolv.conf"), "podLogsDir": "/var/log/pods",
        "volumePluginDir": "/var/lib/plugins",
        "cgroupDriver": "cgroupfs", "cgroupRoot": "/", "failCgroupV1": False, "failSwapOn": False,
        "featureGates": {"KubeletInUserNamespace": True}, "makeIPTablesUtilChains": False,
        "systemReserved": {"cpu": f"{reserved * 1000:.0f}m"}, "maxPods": 100, "serializeImagePulls": False,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s", "nodeStatusReportFrequency": "30s", "syncFrequency": "2s",
    }  # fmt: skip


def _proxy(place: Place, network: Network, index: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig(place))}, "hostnameOverride": f"node{index}",
        "clusterCIDR": network.all, "bindAddress": network.node(index), "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        # Two pods of one node talk over its bridge, so an answer would not come back the way it went.
        "nftables": {"masqueradeAll": True},
    }  # fmt: skip
