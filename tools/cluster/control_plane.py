"""Command line, configuration and health of each component of a control plane.

Pure but for `configure`, which writes the files that the command lines name. Called by cluster.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PORTS = (
    "etcd", "etcd_peer", "apiserver", "tokens", "kcm", "scheduler", "jobset", "jobset_webhook", "kueue", "kueue_webhook",
    "kueue_visibility", "trainer", "trainer_webhook", "trainer_status", "kwok", "sp_controller", "sp_scheduler",
    "vc_controllers", "vc_scheduler", "kai_podgrouper", "kai_binder", "kai_scheduler",
)  # fmt: skip
PROGRAMS = {
    "etcd": ("etcd", "etcd"), "apiserver": ("kubernetes", "kube-apiserver"), "kcm": ("kubernetes", "kube-controller-manager"),
    "scheduler": ("kubernetes", "kube-scheduler"), "jobset": ("jobset", "jobset"), "kueue": ("kueue", "kueue"),
    "trainer": ("trainer", "trainer-controller-manager"), "kwok": ("kwok", "kwok"),
    "sp_controller": ("scheduler-plugins", "controller"), "sp_scheduler": ("scheduler-plugins", "scheduler"),
    "vc_controllers": ("volcano", "controller-manager"), "vc_scheduler": ("volcano", "scheduler"),
    "kai_podgrouper": ("kai", "podgrouper"), "kai_binder": ("kai", "binder"), "kai_scheduler": ("kai", "scheduler"),
}  # fmt: skip
"""Component of a cluster -> what is built, and its program there. In the order of starting."""
GANGS = ("vc_controllers", "vc_scheduler", "kai_podgrouper", "kai_binder", "kai_scheduler")
"""Gang schedulers that are built and started only where a cluster is asked for them: they take minutes to build."""
ALL = tuple(name for name in PROGRAMS if name not in GANGS)
CORE = ("etcd", "apiserver")
"""Without these nothing else can be started."""
LOCAL = "127.0.0.1"
VOLCANO_CONF = "installer/helm/chart/volcano/config/volcano-scheduler.conf"
"""What its chart configures, in Volcano's module."""


@dataclass(frozen=True)
class Place:
    """Where a cluster lies on this machine."""

    folder: Path
    ports: Mapping[str, int]
    address: str = LOCAL
    """Where nodes reach the API server; not 127.0.0.1 where nodes have networks of their own."""

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.folder / "pki"

    @property
    def conf(self) -> Path:
        """Configuration of the components."""
        return self.folder / "conf"

    @property
    def logs(self) -> Path:
        """NAME.log of each component."""
        return self.folder / "logs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    def run(self, name: str) -> Path:
        """Data and temporary files of a component."""
        return self.folder / "run" / name


def needed(components: Iterable[str]) -> list[str]:
    """What has to be built (build.py) for these components and CORE."""
    started = {*components, *CORE}
    return list(dict.fromkeys(built for name, (built, _) in PROGRAMS.items() if name in started))


def health(place: Place, name: str) -> str:
    """Where a component tells whether it is ready."""
    port = place.ports[name]
    if name == "etcd":
        return f"http://{LOCAL}:{port}/health"
    secure = name in ("apiserver", "kcm", "scheduler", "sp_scheduler", "kwok")
    healthz, metrics = ("kcm", "vc_controllers", "vc_scheduler"), ("kai_binder", "kai_scheduler")
    word = "healthz" if name in healthz else "metrics" if name in metrics else "readyz"  # those have no other
    return f"{'https' if secure else 'http'}://{LOCAL}:{port}/{word}"


def environment(place: Place, name: str) -> dict[str, str]:
    """What a component finds in its environment."""
    run = str(place.run(name))
    env = {"KUBECONFIG": str(place.kubeconfig), "HOME": run, "TMPDIR": run}
    if name == "kueue":
        env |= {"POD_NAMESPACE": "kueue-system", "KUEUE_METRICS_CERTS": str(place.pki)}
    return env


def command(place: Place, name: str) -> list[str]:
    """The arguments of a component."""
    flags = _flags(place, name)
    return [f"--{key}={one}" for key, value in flags.items() for one in (value if isinstance(value, list) else [value])]


def _flags(place: Place, name: str) -> dict[str, Any]:
    pki, conf, port = place.pki, place.conf, place.ports[name]
    served = {
        "bind-address": LOCAL, "secure-port": port, "tls-cert-file": pki / "tls.crt", "tls-private-key-file": pki / "tls.key",
    }  # fmt: skip
    if name == "etcd":
        client, peer = (f"http://{LOCAL}:{place.ports[p]}" for p in ("etcd", "etcd_peer"))
        return {
            "name": "etcd", "data-dir": place.run("etcd") / "data", "unsafe-no-fsync": "true", "log-level": "warn",
            "listen-client-urls": client, "advertise-client-urls": client, "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer, "initial-cluster": f"etcd={peer}", "quota-backend-bytes": 4 << 30,
            "auto-compaction-mode": "periodic", "auto-compaction-retention": "10m",
        }  # fmt: skip
    if name == "apiserver":
        return {**_apiserver(place), **served, **_addresses(place)}
    if name == "kcm":
        off = (
            "nodeipam",
            "cloud-node-lifecycle",
            "service-lb-controller",
            "node-route-controller",
            "ttl",
            "attachdetach",
        )
        return {
            **served, "kubeconfig": place.kubeconfig, "controllers": ",".join(["*", *(f"-{o}" for o in off)]),
            "leader-elect": "false", "service-account-private-key-file": pki / "sa.key", "root-ca-file": pki / "ca.crt",
            "use-service-account-credentials": "false", "kube-api-qps": 300, "kube-api-burst": 500,
            "concurrent-job-syncs": 10, "profiling": "false",
        }  # fmt: skip
    if name in ("scheduler", "sp_scheduler"):
        return {**served, "config": conf / f"{name}.json"}
    if name == "kueue":
        return {"config": conf / "kueue.json", "kubeconfig": place.kubeconfig, "zap-log-level": 2}
    if name in ("jobset", "trainer"):
        return {"config": conf / f"{name}.json", "zap-log-level": "info"}
    if name == "kwok":
        return {
            "kubeconfig": place.kubeconfig, "server-address": f"{LOCAL}:{port}", "enable-crds": "Logs,ClusterLogs",
            "config": [conf / "kwok.json", conf / "stages.yaml"],
        }  # fmt: skip
    if name in GANGS:
        return _gang_scheduler(place, name)
    return {"metricsAddr": 0, "probeAddr": f"{LOCAL}:{port}", "qps": 100, "burst": 200, "workers": 5}  # sp_controller


def _gang_scheduler(place: Place, name: str) -> dict[str, Any]:
    """As their charts install them, but for the pace: a cycle begins soon after the last one."""
    address = f"{LOCAL}:{place.ports[name]}"
    if name.startswith("vc_"):
        flags = {
            "kubeconfig": place.kubeconfig, "leader-elect": "false", "enable-healthz": "true", "healthz-address": address,
            "kube-api-qps": 500, "kube-api-burst": 500,
        }  # fmt: skip
        if name == "vc_scheduler":
            return {
                **flags,
                "scheduler-conf": place.conf / Path(VOLCANO_CONF).name,
                "schedule-period": "200ms",
                "cache-dumper": "false",
            }
        return flags
    client = {"qps": 500, "burst": 500}
    if name == "kai_scheduler":
        return {**client, "listen-address": address, "plugin-server-port": 0, "schedule-period": "200ms", "v": 1}
    if name == "kai_binder":
        return {**client, "metrics-bind-address": address, "health-probe-bind-address": 0}
    return {**client, "metrics-bind-address": 0, "health-probe-bind-address": address}


def _apiserver(place: Place) -> dict[str, Any]:
    pki = place.pki
    return {
        "etcd-servers": f"http://{LOCAL}:{place.ports['etcd']}", "cert-dir": pki, "client-ca-file": pki / "ca.crt",
        "service-account-key-file": pki / "sa.pub", "service-account-signing-key-file": pki / "sa.key",
        "service-account-issuer": "https://kubernetes.default.svc", "authorization-mode": "RBAC",
        "token-auth-file": pki / "tokens.csv", "authentication-token-webhook-config-file": place.conf / "tokens.json",
        "authentication-token-webhook-version": "v1", "authentication-token-webhook-cache-ttl": "1s",
        "service-cluster-ip-range": "10.0.0.0/24", "allow-privileged": "true", "profiling": "false",
        # Whom the API server shows aggregated APIs, such as Kueue's, which takes no other client with that name.
        "proxy-client-cert-file": pki / "tls.crt", "proxy-client-key-file": pki / "tls.key",
        "requestheader-client-ca-file": pki / "ca.crt", "requestheader-allowed-names": LOCAL,
        "requestheader-username-headers": "X-Remote-User", "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "max-requests-inflight": 1200, "max-mutating-requests-inflight": 600,
        # The lock of a killed one would hold up the next; the Service `kubernetes` has no use without nodes.
        "endpoint-reconciler-type": "none",
    }  # fmt: skip


def _addresses(place: Place) -> dict[str, Any]:
    if place.address == LOCAL:
        return {"advertise-address": LOCAL}
    return {
        "bind-address": "0.0.0.0",  # noqa: S104 (nodes are in networks of their own; nobody gets in without a token)
        "advertise-address": place.address, "kubelet-preferred-address-types": "InternalIP",
        "endpoint-reconciler-type": "master-count",
    }  # fmt: skip


def configure(place: Place, token: str) -> None:
    """Writes the kubeconfig of the administrator, who has this token, and all that the command lines name."""
    place.conf.mkdir(parents=True, exist_ok=True)
    place.logs.mkdir(exist_ok=True)
    for name in PROGRAMS:
        place.run(name).mkdir(parents=True, exist_ok=True)
    certificates = place.run("trainer") / "k8s-webhook-server" / "serving-certs"  # the only place where it looks
    certificates.parent.mkdir(exist_ok=True)
    if not certificates.is_symlink():
        certificates.symlink_to(place.pki)
    files = {
        place.kubeconfig: kubeconfig(place, {"token": token}),
        place.conf / "tokens.json": _tokens(place),
        **{place.conf / f"{name}.json": content for name, content in _configurations(place).items()},
    }
    for file, content in files.items():
        file.touch(mode=0o600)
        file.write_text(json.dumps(content, indent=1))


def kubeconfig(place: Place, user: Mapping[str, str], name: str = "admin") -> dict[str, Any]:
    """A kubeconfig; JSON is YAML. user: how the client shows who it is, in the words of a kubeconfig."""
    server = {
        "server": f"https://{LOCAL}:{place.ports['apiserver']}",
        "certificate-authority": str(place.pki / "ca.crt"),
    }
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": server}], "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
    }  # fmt: skip


def _tokens(place: Place) -> dict[str, Any]:
    """How the API server asks tokens.py."""
    server = {"server": f"https://{LOCAL}:{place.ports['tokens']}", "certificate-authority": str(place.pki / "ca.crt")}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "tokens", "clusters": [{"name": "tokens", "cluster": server}],
        "users": [{"name": "apiserver", "user": {}}],
        "contexts": [{"name": "tokens", "context": {"cluster": "tokens", "user": "apiserver"}}],
    }  # fmt: skip


def _configurations(place: Place) -> dict[str, dict[str, Any]]:
    alone: dict[str, Any] = {"leaderElection": {"leaderElect": False}}
    busy = {"qps": 500, "burst": 500}
    client = {"clientConnection": {**busy, "kubeconfig": str(place.kubeconfig)}}
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **alone,
        **client,
    }
    plugins = {
        "schedulerName": "scheduler-plugins-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "PrioritySort"}]}},
        "pluginConfig": [
            {"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10, "podGroupBackoffSeconds": 0}}
        ],
    }
    return {
        "scheduler": scheduler,
        "sp_scheduler": {**scheduler, "profiles": [plugins]},
        "jobset": {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration", **alone,
            "internalCertManagement": {"enable": False}, **_served(place, "jobset"), "clientConnection": busy,
        },
        "kueue": {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **alone,
            "internalCertManagement": {"enable": False}, **_served(place, "kueue"), "clientConnection": busy,
            "visibilityServer": {"bindAddress": LOCAL, "bindPort": place.ports["kueue_visibility"]},
            "controller": {"groupKindConcurrency": {
                "Job.batch": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5, "Cohort.kueue.x-k8s.io": 1,
                "ClusterQueue.kueue.x-k8s.io": 5, "ResourceFlavor.kueue.x-k8s.io": 1,
            }},
            "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]},
        },
        "trainer": {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration", **alone,
            "certManagement": {"enable": False}, "health": {"healthProbeBindAddress": f"{LOCAL}:{place.ports['trainer']}"},
            "metrics": {"bindAddress": "0"}, "webhook": {"host": LOCAL, "port": place.ports["trainer_webhook"]},
            "statusServer": {"port": place.ports["trainer_status"]}, "clientConnection": busy,
            "controller": {"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": 5}},
        },
        "kwok": {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration",
            "options": {
                "manageAllNodes": False, "manageNodesWithAnnotationSelector": "kwok.x-k8s.io/node=fake",
                "enableDebuggingHandlers": True, "cidr": "10.244.0.0/16", "nodeIP": LOCAL, "nodePort": place.ports["kwok"],
                "tlsCertFile": str(place.pki / "tls.crt"), "tlsPrivateKeyFile": str(place.pki / "tls.key"),
                "podPlayStageParallelism": 16, "nodePlayStageParallelism": 4, "nodeLeaseDurationSeconds": 40,
                "nodeLeaseParallelism": 4, "podsOnNodeSyncParallelism": 4,
            },
        },
    }  # fmt: skip


def _served(place: Place, name: str) -> dict[str, Any]:
    return {
        "health": {"healthProbeBindAddress": f"{LOCAL}:{place.ports[name]}"}, "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOCAL, "port": place.ports[f"{name}_webhook"], "certDir": str(place.pki)},
    }  # fmt: skip
