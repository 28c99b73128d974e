"""The programs of the test cluster, and what their modules say of them: CRDs, webhooks.

A program comes from the official archive that `releases.sha512` pins, else it is built from pinned Go modules.
`built` is called by cluster.py, by nodes.py for what real nodes need, and by `python -m tools.cluster build`. A component lies
in ~/.cache/pulumi-trainer/cluster/NAME-HASH, whole or not at all, for every clone; the hash is that of its go.mod, go.sum and
recipe here, whichever way it came.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from .. import downloads, go_modules
from ..alone import alone

CACHE = Path.home() / ".cache" / "pulumi-trainer" / "cluster"
MODULES = Path(__file__).resolve().parent / "go"
RELEASES = Path(__file__).resolve().parent / "releases.sha512"
GO = "1.26"
"""The oldest Go that builds all of them."""


class Unavailable(Exception):
    """A component can be neither downloaded nor built; the text says why and what to do."""


@dataclass(frozen=True)
class Component:
    """One call of `go build`, or an archive that has the same programs."""

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
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of Go packages -> the values that the linker gives them."""
    archive: tuple[str, str] | None = None
    """What the name of the official archive begins with, and the folder in it that has the programs."""


PLUGIN = "pulumi-resource-kubernetes"
COMPONENTS: dict[str, Component] = {
    "etcd": Component("etcd", (".",), 1, archive=("envtest", "controller-tools/envtest")),
    "kubernetes": Component(
        "kubernetes",
        tuple(f"k8s.io/kubernetes/cmd/{n}" for n in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")),
        5,
        "1.36.3",
        archive=("kubernetes-server", "kubernetes/server/bin"),
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
        # Another one, here relative to the folder of the cluster.
        variables={"sigs.k8s.io/kueue/pkg/visibility.certDir": "pki"},
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
    "volcano": Component(
        "volcano",
        tuple(f"volcano.sh/volcano/cmd/{n}" for n in ("scheduler", "controller-manager")),
        6,
        keep={"volcano.sh/volcano": ("config/crd", "installer/helm/chart/volcano/config")},
    ),
    "kai": Component(
        "kai",
        tuple(f"github.com/kai-scheduler/KAI-scheduler/cmd/{n}" for n in ("scheduler", "podgrouper", "binder")),
        6,
        keep={
            "github.com/kai-scheduler/KAI-scheduler": (
                "deployments/kai-scheduler/crds",
                "deployments/kai-scheduler/templates/priorityclasses",
            )
        },
    ),
    "kubelet": Component(
        "kubernetes",
        tuple(f"k8s.io/kubernetes/cmd/{n}" for n in ("kubelet", "kube-proxy")),
        3,
        "1.36.3",
        archive=("kubernetes-node", "kubernetes/node/bin"),
    ),
    "coredns": Component("coredns", ("github.com/coredns/coredns",), 2),
    "pause": Component("pause", (".",), 0.1),
    "kubectl": Component("kubectl", (".",), 2.5, "1.36.3", archive=("kubernetes-client", "kubernetes/client/bin")),
    # For `make bench-cluster`, and for programs that make objects of a cluster beside jobs.
    PLUGIN: Component(PLUGIN, (".",), 6),
}

CONTROL_PLANE = ("etcd", "kubernetes", "jobset", "kwok", "kueue", "trainer", "scheduler-plugins")
GANGS = ("volcano", "kai")
"""Gang schedulers that a cluster has only where it is asked for them (control_plane.GANGS)."""
NODES = ("kubelet", "coredns", "pause")
"""What real nodes need."""


def built(names: Iterable[str], say: Callable[[str], None]) -> dict[str, Path]:
    """Component -> its folder: programs in bin/, what is kept of a module in module/. What is missing is got first.

    Raises: Unavailable.
    """
    folders = {name: folder(name) for name in names}
    missing = [name for name in folders if not folders[name].exists()]
    if missing:
        minutes = sum(COMPONENTS[name].minutes for name in missing)
        say(f"{len(missing)} of {len(folders)} components are missing: at most {minutes:g} minutes on 2 cores, once")
    for name in missing:
        lock = CACHE / "locks" / name
        lock.mkdir(parents=True, exist_ok=True)
        with alone(lock, say):  # who needs another component does not wait for this one
            if not folders[name].exists():  # unless another process has just built it
                _get(name, folders[name], say)
    if missing:
        _remove_go_cache()
    return folders


def _get(name: str, where: Path, say: Callable[[str], None]) -> None:
    """Download or build a component, with its lock held."""
    for leftover in CACHE.glob(f"building-{where.name}-*"):  # of a killed build
        shutil.rmtree(leftover, ignore_errors=True)
    if why := _download(name, where, say):
        with _go_cache(fcntl.LOCK_SH):
            _build(name, where, why, say)


@contextmanager
def _go_cache(lock: int) -> Iterator[None]:
    """Hold a lock on Go's cache: shared to build, exclusive to remove it.

    Raises: BlockingIOError.
    """
    descriptor = os.open(CACHE, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


def _remove_go_cache() -> None:
    """Remove gigabytes that only an unfinished build needs again, unless another process is building."""
    if all(folder(name).exists() for name in (*CONTROL_PLANE, *NODES)):
        with suppress(BlockingIOError), _go_cache(fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(CACHE / "go", ignore_errors=True)


def folder(name: str) -> Path:
    """Where a component lies once it is built."""
    component = COMPONENTS[name]
    files = sorted(path for path in (MODULES / component.module).iterdir() if path.suffix in (".go", ".mod", ".sum"))
    recipe: tuple[object, ...] = (component.packages, component.version, sorted(component.keep.items()), component.main)
    if component.variables:
        recipe += (sorted(component.variables.items()),)
    content = [repr(recipe).encode(), *(path.read_bytes() for path in files)]
    digest = hashlib.sha256(b"\0".join(content)).hexdigest()[:16]
    return CACHE / f"{name}-{digest}-{platform.system().lower()}-{platform.machine().lower()}"


def _release(component: Component) -> tuple[str, str] | None:
    """URL and checksum of the archive for this machine."""
    if not component.archive:
        return None
    name = re.compile(rf".*/{component.archive[0]}-(.*-)?{re.escape(downloads.system('amd64'))}\.tar\.gz")
    return next((release for release in downloads.checksums(RELEASES).items() if name.fullmatch(release[0])), None)


def _programs(name: str) -> list[str]:
    return [Path(package).name for package in COMPONENTS[name].packages if package != "."] or [name]


def _download(name: str, where: Path, say: Callable[[str], None]) -> str:
    """Gets the official archive; why that cannot be, where it cannot."""
    component, release = COMPONENTS[name], _release(COMPONENTS[name])
    if not component.archive or not release:
        return f"none is pinned for {downloads.system('amd64')}"
    url, checksum, inside = *release, component.archive[1]
    try:
        _make(where, lambda new, _: downloads.fetch(url, checksum, inside, new / "bin", say, _programs(name)))
    except (OSError, downloads.Failed) as error:
        say(f"no official archive of {name}: {error}")
        return f"{url}: {error}"
    return ""


def _build(name: str, where: Path, no_archive: str, say: Callable[[str], None]) -> None:
    component, begun = COMPONENTS[name], time.monotonic()
    minutes = f"about {component.minutes:g} minutes" if component.minutes > 1 else "about a minute"
    say(f"building {', '.join(_programs(name))}: {minutes}")
    try:
        _make(where, partial(_fill, component, say=partial(_progress, say, name)))
    except (OSError, go_modules.Failed) as error:
        raise Unavailable(
            f"{name} can be neither downloaded nor built:\n  - official archive: {no_archive}\n  - Go modules: {error}\n"
            f"Hint: install Go >= {GO} (https://go.dev/dl) so that `go` is on PATH, and give it a mirror of Go modules (GOPROXY)"
        ) from None
    say(f"built {name} ({time.monotonic() - begun:.0f} s)")


def _make(where: Path, fill: Callable[[Path, Path], None]) -> None:
    """A component's folder, there whole or not at all; `fill` gets the folder and one for what goes again."""
    with tempfile.TemporaryDirectory(prefix=f"building-{where.name}-", dir=CACHE) as temporary:
        new = Path(temporary, "new")
        (new / "bin").mkdir(parents=True)
        fill(new, Path(temporary))
        new.rename(where)


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
    go_modules.build(module, component.packages, _linker_flags(component), new / "bin", caches, say, added)
    for path, kept in component.keep.items():
        source = go_modules.source(module, path, caches, say)
        for name in kept:
            shutil.copytree(source / name, new / "module" / name, copy_function=shutil.copyfile)


def _linker_flags(component: Component) -> str:
    """Linker flags that set a component's variables, and give a program of Kubernetes its version."""
    values = {**component.variables}
    if component.version:
        major, minor, _ = component.version.split(".")
        words = {"gitVersion": f"v{component.version}", "gitMajor": major, "gitMinor": minor}
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            values |= {f"{package}.{name}": value for name, value in words.items()}
    return " ".join(f"-X {name}={value}" for name, value in values.items())
