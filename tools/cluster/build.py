"""The programs of the test cluster, built from pinned Go modules, and what their modules say of them: CRDs, webhooks.

`built` is called by cluster.py, by nodes.py for what real nodes need, and by `python -m tools.cluster build`. A component lies
in ~/.cache/pulumi-trainer/cluster/NAME-HASH, whole or not at all, for every clone; the hash is that of its go.mod, go.sum and
recipe here.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .. import go_modules
from ..alone import alone

CACHE = Path.home() / ".cache" / "pulumi-trainer" / "cluster"
MODULES = Path(__file__).resolve().parent / "go"
GO = "1.26"
"""The oldest Go that builds all of them."""


class Unavailable(Exception):
    """A component cannot be built; the text says why and what to do."""


@dataclass(frozen=True)
class Component:
    """One call of `go build`."""

    module: str
    """Folder below go/ with its go.mod and go.sum."""
    packages: tuple[str, ...]
    minutes: float
    """How long it takes on two cores when nothing is cached, download included."""
    version: str = ""
    """What Kubernetes' programs call themselves; without it they are v0.0.0, which other programs refuse."""
    keep: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Module -> its folders that are read when a cluster starts."""
    main: tuple[str, str, str, str] | None = None
    """Module, file of its main package, text, text in its place: the package `.` is that file with one change."""


PLUGIN = "pulumi-resource-kubernetes"
COMPONENTS: dict[str, Component] = {
    "etcd": Component("etcd", (".",), 1),
    "kubernetes": Component(
        "kubernetes",
        tuple(f"k8s.io/kubernetes/cmd/{n}" for n in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")),
        5,
        "1.36.3",
    ),
    "jobset": Component(
        "jobset",
        ("sigs.k8s.io/jobset",),
        1.5,
        keep={"sigs.k8s.io/jobset": ("config/components/crd/bases", "config/components/webhook")},
    ),
    "kueue": Component(
        "kueue",
        (".",),
        3.5,
        keep={"sigs.k8s.io/kueue": ("config/components/crd/bases", "config/components/webhook")},
        # A folder that only root may make, and that no setting moves.
        main=(
            "sigs.k8s.io/kueue",
            "cmd/kueue/main.go",
            '"/etc/kueue/metrics/certs"',
            'os.Getenv("KUEUE_METRICS_CERTS")',
        ),
    ),
    "trainer": Component(
        "trainer",
        ("github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",),
        1.5,
        keep={
            "github.com/kubeflow/trainer/v2": (
                "manifests/base/crds",
                "manifests/base/webhook",
                "manifests/base/runtimes",
            )
        },
    ),
    "kwok": Component(
        "kwok",
        ("sigs.k8s.io/kwok/cmd/kwok",),
        1.5,
        keep={"sigs.k8s.io/kwok": ("kustomize/crd/bases", "kustomize/stage/node")},
    ),
    "scheduler-plugins": Component(
        "scheduler-plugins",
        tuple(f"sigs.k8s.io/scheduler-plugins/cmd/{n}" for n in ("scheduler", "controller")),
        3,
        "1.34.4",
        keep={"sigs.k8s.io/scheduler-plugins": ("config/crd/bases",)},
    ),
    "kubelet": Component(
        "kubernetes", tuple(f"k8s.io/kubernetes/cmd/{n}" for n in ("kubelet", "kube-proxy")), 3, "1.36.3"
    ),
    "coredns": Component("coredns", ("github.com/coredns/coredns",), 2),
    "pause": Component("pause", (".",), 0.1),
    "kubectl": Component("kubectl", (".",), 2.5, "1.36.3"),
    # For `make bench-cluster`, and for programs that make objects of a cluster beside jobs.
    PLUGIN: Component(PLUGIN, (".",), 6),
}

CONTROL_PLANE = ("etcd", "kubernetes", "jobset", "kueue", "trainer", "kwok", "scheduler-plugins")
NODES = ("kubelet", "coredns", "pause")
"""What real nodes need."""


def built(names: Iterable[str], say: Callable[[str], None]) -> dict[str, Path]:
    """Component -> its folder: programs in bin/, what is kept of a module in module/. What is missing is built first.

    Raises: Unavailable.
    """
    folders = {name: folder(name) for name in names}
    missing = [name for name in folders if not folders[name].exists()]
    if missing:
        CACHE.mkdir(parents=True, exist_ok=True)
        with alone(CACHE, say):
            missing = [name for name in missing if not folders[name].exists()]  # somebody else was at it
            _leftovers()
            for name in missing:
                _build(name, folders[name], say)
            if all(folder(name).exists() for name in (*CONTROL_PLANE, *NODES)):
                shutil.rmtree(CACHE / "go", ignore_errors=True)  # gigabytes that only an unfinished build needs again
    return folders


def folder(name: str) -> Path:
    """Where a component lies once it is built."""
    component = COMPONENTS[name]
    files = sorted(path for path in (MODULES / component.module).iterdir() if path.suffix in (".go", ".mod", ".sum"))
    recipe = (component.packages, component.version, sorted(component.keep.items()), component.main)
    content = [repr(recipe).encode(), *(path.read_bytes() for path in files)]
    digest = hashlib.sha256(b"\0".join(content)).hexdigest()[:16]
    return CACHE / f"{name}-{digest}-{platform.system().lower()}-{platform.machine().lower()}"


def _build(name: str, where: Path, say: Callable[[str], None]) -> None:
    component, begun = COMPONENTS[name], time.monotonic()
    programs = ", ".join(Path(p).name for p in component.packages if p != ".") or name
    minutes = f"about {component.minutes:g} minutes on 2 cores" if component.minutes > 1 else "about a minute"
    say(f"building {programs} from Go modules: {minutes}, once")
    try:
        with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as temporary:
            new = Path(temporary, "new")
            (new / "bin").mkdir(parents=True)
            _fill(component, new, Path(temporary), partial(_progress, say, name))
            new.rename(where)
    except (OSError, go_modules.Failed) as error:
        raise Unavailable(
            f"{name} cannot be built: {error}\n"
            f"Needed are Go >= {GO} on PATH (https://go.dev/dl) and a mirror of Go modules (GOPROXY)"
        ) from None
    say(f"built {name} ({time.monotonic() - begun:.0f} s)")


def _progress(say: Callable[[str], None], name: str, text: str) -> None:
    say(f"{name}: {text}")


def _fill(component: Component, new: Path, temporary: Path, say: Callable[[str], None]) -> None:
    module, caches, added = MODULES / component.module, CACHE / "go", {}
    if component.main:
        path, file, old, text = component.main
        content = (go_modules.source(module, path, caches, say) / file).read_text()
        if content.count(old) != 1:
            raise go_modules.Failed(f"{path}/{file} holds {old} {content.count(old)} times, not once")
        added[module / "main.go"] = temporary / "main.go"
        added[module / "main.go"].write_text(content.replace(old, text))
    go_modules.build(module, component.packages, _version(component.version), new / "bin", caches, say, added)
    for path, kept in component.keep.items():
        source = go_modules.source(module, path, caches, say)
        for name in kept:
            shutil.copytree(source / name, new / "module" / name, copy_function=shutil.copyfile)


def _version(version: str) -> str:
    """Linker flags that give a program of Kubernetes its version."""
    if not version:
        return ""
    major, minor, _ = version.split(".")
    words = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in words.items())


def _leftovers() -> None:
    """What a killed build has left; called with the lock held, so none is at work."""
    for path in CACHE.glob("building-*"):
        shutil.rmtree(path, ignore_errors=True)
