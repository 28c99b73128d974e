"""Records a release of Kubeflow Trainer: its schemas, Go types and answers to the golden cases. `make record TRAINER=v2.3.0`.

A release is a version of its Go module, or a folder with a checkout, for example of a commit. Needs Go and the module proxy.
It builds the Go program beside this file with that release, which takes some minutes, and runs it.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

from pulumi_trainer.provider.trainer.releases import DEFAULT

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODULE = "github.com/kubeflow/trainer/v2"
SCHEMAS = Path(__file__).with_name("crd_schemas.py")
CRDS = {
    MODULE: "manifests/base/crds/trainer.kubeflow.org_*.yaml",
    "sigs.k8s.io/jobset": "config/components/crd/bases/*.yaml",
}
"""Module -> its CRDs."""
ANSWERS = "expected.json"


def main(trainer: str) -> None:
    """Record a release. trainer: `v2.3.0`, or the folder of a checkout."""
    version, package = _names(trainer)
    build = ROOT / "build" / "recorder" / version
    _write_module(build, trainer)
    _go(build, "mod", "tidy")
    _go(build, "build", "-o", "recorder", ".")
    patterns = [f"{_go(build, 'list', '-m', '-f', '{{.Dir}}', module)}/{crds}" for module, crds in CRDS.items()]
    release = ROOT / "provider" / "trainer" / "releases" / package
    release.mkdir(exist_ok=True)
    files = [file for pattern in patterns for file in sorted(glob.glob(pattern))]  # noqa: PTH207 - absolute
    subprocess.run([sys.executable, SCHEMAS, release / "schemas.json", *files], check=True)
    names = ["-name", ANSWERS] if version == DEFAULT.version else ["-name", f"{version}.json", "-base", ANSWERS]
    given = ["-crds", ",".join(patterns), "-types", str(release / "go_types.txt"), "-cases", str(HERE.parent / "cases")]
    subprocess.run([build / "recorder", *given, *names], check=True)


def _names(trainer: str) -> tuple[str, str]:
    """Return the version of a release, and the name of its package."""
    if not Path(trainer).is_dir():
        version = trainer.removeprefix("v")
        return version, "v" + version.replace(".", "_").replace("-", "_")
    git = ["git", "-C", trainer, "rev-parse", "--short=9", "HEAD"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    return commit, f"commit_{commit}"


def _write_module(build: Path, trainer: str) -> None:
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    for file in HERE.glob("*.go"):
        shutil.copy(file, build)
    lines = ["module recorder", "go 1.26.0"]
    if Path(trainer).is_dir():
        lines += [f"require {MODULE} v2.0.0", f"replace {MODULE} => {Path(trainer).resolve()}"]
    else:
        lines.append(f"require {MODULE} {trainer}")
    (build / "go.mod").write_text("\n".join(lines) + "\n")


def _go(build: Path, *arguments: str) -> str:
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    done = subprocess.run(["go", *arguments], cwd=build, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main(*sys.argv[1:])
