"""TRL in real Pods on two real nodes: SFT and GRPO train one model together, with data and model that travel.

Pods reach no package index. This machine installs the packages of TRL that `trl-distributed` pins, and the Pods mount them:
pip finds there what the job asks for, and installs nothing.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.args.fine_tuning import table
from pulumi_trainer.provider.pod import layer

from tests.fine_tuning.methods import HEAD, METHODS, Method
from tests.fine_tuning.test_methods import logged, name_of

from .examples import ROOT, Example, plain

SECONDS = 900
"""For two trainings on two cores, and the packages if they are not installed yet."""
pytestmark = [pytest.mark.whole, pytest.mark.timeout(2 * SECONDS)]
"""Minutes: `make test-fine-tuning` runs it, and `make test-nodes` does not."""

PATCH = """
MOUNTED = {home!r}
PACKAGES = trainer.RuntimePatch(manager="tests.dev/packages", jobs=[trainer.JobPatch(name="node", pod=trainer.PodPatch(
    volumes=[{{"name": "packages", "hostPath": {{"path": MOUNTED, "type": "Directory"}}}}],
    containers=[trainer.ContainerPatch(
        name="node", volume_mounts=[{{"name": "packages", "mountPath": MOUNTED, "readOnly": True}}]
    )],
))])
NODES["env"] = {env!r}
"""


@pytest.fixture(scope="module")
def packages() -> dict[str, str]:
    """The variables that put TRL's packages in front."""
    argv = [sys.executable, layer.__file__, *table("trl")["packages"]]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    variables = dict(json.loads(done.stdout))
    first = variables["PATH"].partition(os.pathsep)[0]
    return {**variables, "PATH": os.pathsep.join([first, "/usr/bin", "/bin"])}


@pytest.fixture
def training(examples: Callable[[str], Example], packages: dict[str, str], tmp_path: Path) -> Example:
    """A project whose program is to be written: the lines before its jobs are in `head`."""
    made = examples("quickstart")
    tiny = runpy.run_path(str(ROOT / "examples" / "fine-tuning" / "tiny_model.py"))
    (tmp_path / "model").mkdir()
    tiny["write_model"](tmp_path / "model")
    tiny["write_data"](tmp_path / "data")
    home = str(Path(packages["PATH"].partition(os.pathsep)[0]).parent)
    head = HEAD.format(files=str(tmp_path)) + PATCH.format(home=home, env=packages)
    (made.folder / "head").write_text(
        head.replace("checkpoint=checkpoint,", "checkpoint=checkpoint, runtime_patches=[PACKAGES],")
    )
    return made


@pytest.mark.parametrize("method", [method for method in METHODS if method.pods], ids=name_of)
def test_trl_trains_in_pods_on_two_nodes(method: Method, training: Example, tmp_path: Path) -> None:
    (program,) = training.folder.rglob("__main__.py")
    program.write_text(f"{(training.folder / 'head').read_text()}\n{method.program}\n")
    up = training.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{logs_of(training)}"

    name = name_of(method)
    pods = training.pods(f"{name}-")
    assert {pod.spec.node_name for pod in pods} == {"node1", "node2"}
    assert {pod.status.phase for pod in pods} == {"Succeeded"}
    log = tmp_path / "log"
    assert training.follow(name, log).wait(SECONDS) == 0
    printed = plain(log.read_text())
    assert "world size 2, from step 0" in printed, printed[-3000:]
    assert "Successfully installed" not in printed, "no package is installed in a Pod"
    values = logged(printed, method.rises or "loss")
    assert len(values) >= 12, values
    before, after = sum(values[:4]) / 4, sum(values[-4:]) / 4
    assert after > before if method.rises else after < before, values
    assert "unchanged" in training.up().out
    training.destroy()


def logs_of(training: Example) -> str:
    found: list[Any] = training.pods()
    read = training.core.read_namespaced_pod_log
    return "\n".join(str(read(pod.metadata.name, training.namespace))[-3000:] for pod in found)
