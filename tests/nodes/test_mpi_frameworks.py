"""DeepSpeed and MLX in real Pods on two real nodes, by the runtimes of the catalogue: mpirun, ssh and sshd as in a cluster.

Pods reach no package index: they mount the packages that this machine has installed, so pip finds there what the job asks for.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pulumi_trainer.provider.pod import layer

from tests.engine.conftest import PINNED, eventually
from tests.frameworks import test_frameworks
from tests.frameworks.test_deepspeed import HEAD
from tests.frameworks.test_training import parameters

from .examples import Example, plain
from .test_quickstart import cgroup

SECONDS = 900
"""For a training on two cores, and the packages if they are not installed yet."""
pytestmark = [pytest.mark.whole, pytest.mark.timeout(2 * SECONDS)]
"""Minutes: `make test-frameworks` runs it, and `make test-nodes` does not."""

PACKAGES = {"deepspeed": ("deepspeed", "scikit-learn"), "mlx": ("mlx[cpu]", "scikit-learn")}
PATCH = """
def patch(name):
    folders = {{"packages": {home!r}, "compiled": {compiled!r}}}
    volumes = [{{"name": name, "hostPath": {{"path": path, "type": "Directory"}}}} for name, path in folders.items()]
    mounts = [{{"name": name, "mountPath": path}} for name, path in folders.items()]
    pod = trainer.PodPatch(volumes=volumes, containers=[trainer.ContainerPatch(name="node", volume_mounts=mounts)])
    return trainer.JobPatch(name=name, pod=pod)

patches = [trainer.RuntimePatch(manager="tests.dev/packages", jobs=[patch("node"), patch("launcher")])]
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the Pods keep the operation that DeepSpeed compiles on CPUs, so that it is compiled once."""
    folder = tmp_path_factory.mktemp("compiled")
    folder.chmod(0o777)
    return str(folder)


@pytest.fixture(params=PACKAGES)
def framework(request: pytest.FixtureRequest, examples: Callable[[str], Example], compiled: str) -> Example:
    """The example of a framework, whose Pods have its packages."""
    return prepared(request.param, examples, compiled)


def prepared(name: str, examples: Callable[[str], Example], compiled: str) -> Example:
    made = examples(f"frameworks/{name}")
    made.name = name
    packages = [sys.executable, layer.__file__, *PACKAGES[name]]
    done = subprocess.run(packages, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **PINNED})
    variables = dict(json.loads(done.stdout))
    first = variables["PATH"].partition(os.pathsep)[0]
    env = {**variables, "PATH": os.pathsep.join([first, "/usr/bin", "/bin"])}
    if name == "mlx":  # Trainer's image has the development package of Open MPI, with libmpi.so
        env["MLX_MPI_LIBNAME"] = "libmpi.so.40"
    else:
        env["TORCH_EXTENSIONS_DIR"] = compiled
    (made.folder / "patches.py").write_text(
        f"import pulumi_trainer as trainer\n{PATCH.format(home=str(Path(first).parent), compiled=compiled)}\nenv = {env!r}\n"
    )
    return made


def patched(text: str) -> str:
    """A program whose job has the packages."""
    head, _, rest = text.rpartition("import pulumi_trainer as trainer\n")
    rest = rest.replace('"DS_ACCELERATOR": "cpu"', '"DS_ACCELERATOR": "cpu", **patches.env')
    rest = rest.replace(
        '"scikit-learn"],\n    ),\n    wait_for', '"scikit-learn"], env=patches.env,\n    ),\n    wait_for'
    )
    rest = rest.replace("wait_for=", "runtime_patches=patches.patches, wait_for=")
    return f"{head}import patches\nimport pulumi_trainer as trainer\n{rest}"


def logs(project: Example, name: str) -> str:
    found: list[Any] = project.pods(f"{name}-")
    read = project.core.read_namespaced_pod_log
    return "\n".join(str(read(pod.metadata.name, project.namespace)) for pod in found)


def test_it_trains_in_pods_on_two_nodes(framework: Example) -> None:
    program = framework.folder / "__main__.py"
    program.write_text(patched(program.read_text()))
    up = framework.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{logs(framework, framework.name)}"
    events = framework.core.list_namespaced_event(framework.namespace, field_selector="reason=Scheduled").items
    assert {event.message.rpartition(" ")[2] for event in events} == {
        "node1",
        "node2",
    }  # Pods with sshd are gone by now
    outputs, printed = framework.outputs(), logs(framework, framework.name)
    assert "Successfully installed" not in printed, "no package is installed in a Pod"
    assert float(outputs["metrics"]["accuracy"]) >= test_frameworks.ACCURACY[framework.name], outputs
    test_frameworks.TOGETHER[framework.name](framework, outputs["metrics"], printed)
    assert "unchanged" in framework.up().out
    framework.destroy()


@pytest.mark.parametrize("stage", ["1", "3"])
def test_other_stages_of_zero_train_too(examples: Callable[[str], Example], compiled: str, stage: str) -> None:
    project = prepared("deepspeed", examples, compiled)
    program = project.folder / "__main__.py"
    program.write_text(patched(program.read_text()))
    project.config("stage", stage)
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{logs(project, 'deepspeed')}"
    test_frameworks.deepspeed(project, project.outputs()["metrics"], logs(project, "deepspeed"))
    project.destroy()


def test_a_killed_rank_of_deepspeed_costs_the_steps_since_the_last_checkpoint(
    examples: Callable[[str], Example], compiled: str, tmp_path: Path
) -> None:
    project = prepared("deepspeed", examples, compiled)
    (project.folder / "__main__.py").write_text(f'{patched(HEAD)}\njob("cut", 2, 0.3)\n')
    up = project.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{logs(project, 'cut')}"
    log = tmp_path / "log"
    follower = project.follow("cut", log)
    eventually(lambda: '"checkpoint": {"step": 10' in log.read_text(), SECONDS, "a first checkpoint")
    rank_of({pod.metadata.uid for pod in project.pods("cut-")}, "3").send_signal(signal.SIGKILL)
    assert follower.wait(SECONDS) == 0, log.read_text()
    printed = plain(log.read_text())
    starts = re.findall(r"rank (\d) starts at step (\d+) \(DeepSpeed: (\d+)\)", printed)
    assert sorted(starts)[::2] == [(rank, "0", "0") for rank in "0123"], starts
    (again,) = {(step, own) for _, step, own in sorted(starts)[1::2]}
    assert again[0] == again[1] in ("10", "20", "30"), starts
    assert len(parameters(printed)) == 1, printed
    (jobset,) = project.jobsets()
    assert jobset["status"]["restarts"] == 1
    project.destroy()


def rank_of(pods: set[str], rank: str) -> psutil.Process:
    """The process of a rank in these Pods; other clusters may run on this machine."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("RANK") == rank and pods & {*re.findall(r"pod([0-9a-f-]{36})", cgroup(process))}:
                return process
    pytest.fail(f"rank {rank} does not run")
