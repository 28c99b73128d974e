"""TensorFlow and PaddlePaddle in real Pods on two real nodes: the examples, and the roles of TensorFlow of the guide.

Pods reach no package index. This machine installs the packages, and the Pods mount them: pip finds there what the job asks for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.pod import layer

from tests.documented import all_blocks
from tools.cluster.images import MACHINE

from .examples import ROOT, Example, plain

SECONDS = 900
"""For a training on two cores, and the packages if they are not installed yet."""
pytestmark = [pytest.mark.whole, pytest.mark.timeout(2 * SECONDS)]
"""Minutes: `make test-frameworks` runs it, and `make test-nodes` does not."""

PACKAGES = {"tensorflow": ["tensorflow-cpu", "tf-keras", "scikit-learn"], "paddle": ["paddlepaddle", "scikit-learn"]}
MOUNT = """
MOUNTED = {home!r}
PACKAGES = trainer.RuntimePatch(manager="tests.dev/packages", jobs=[trainer.JobPatch(name="node", pod=trainer.PodPatch(
    volumes=[{{"name": "packages", "hostPath": {{"path": MOUNTED, "type": "Directory"}}}}],
    containers=[trainer.ContainerPatch(
        name="node", volume_mounts=[{{"name": "packages", "mountPath": MOUNTED, "readOnly": True}}]
    )],
))])
"""


def installed(framework: str) -> dict[str, str]:
    """The variables that put a framework's packages in front."""
    constraints = {"PIP_CONSTRAINT": str(ROOT / "tests/constraints.txt")}
    argv = [sys.executable, layer.__file__, *PACKAGES[framework]]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **constraints})
    variables = dict(json.loads(done.stdout))
    first = variables["PATH"].partition(os.pathsep)[0]
    path = os.pathsep.join([variables["PYTHONPATH"], f"/etc/{framework}"])  # what the catalogue's runtime has there
    return {**variables, "PYTHONPATH": path, "PATH": os.pathsep.join([first, "/usr/bin", "/bin"])}


def guide(framework: str) -> str:
    """The program of the guide."""
    test = f"tests/frameworks/test_{framework}.py"
    (code,) = (block.text for block in all_blocks("docs/guides/frameworks.md") if test in block.tests)
    return code


def in_pods(code: str, framework: str) -> str:
    """A program whose Pods have this machine's Python and the framework's packages, and train on a CPU."""
    env = installed(framework)
    home = str(Path(env["PATH"].partition(os.pathsep)[0]).parent)
    head, found, rest = code.partition("\ndef train(")
    assert found and rest.count("func=train") == 1 and rest.count("checkpoint=trainer.CheckpointPolicy()") == 1
    rest = rest.replace("func=train", f"func=train, image={MACHINE!r}, env={env!r}")
    rest = rest.replace(
        "checkpoint=trainer.CheckpointPolicy()", "checkpoint=trainer.CheckpointPolicy(), runtime_patches=[PACKAGES]"
    )
    return f"{head}{MOUNT.format(home=home)}{found}{rest}"


@pytest.mark.parametrize(
    ("name", "framework", "words", "tasks"),
    [
        ("digits", "tensorflow", "has trained 10 epochs", {"chief-0-0", "node-0-0", "node-0-1", "ps-0-0"}),
        ("line", "paddle", "ends with loss 0.00", {"node-0-0", "node-0-1"}),
        ("tensorflow", "tensorflow", "ranks sum up to 3", {"node-0-0", "node-0-1"}),
        ("paddle", "paddle", "ranks sum up to 3", {"node-0-0", "node-0-1"}),
    ],
)
def test_it_trains_in_pods_on_two_nodes(
    examples: Callable[[str], Example], name: str, framework: str, words: str, tasks: set[str], tmp_path: Path
) -> None:
    training = examples(f"frameworks/{framework}")
    program = training.folder / "__main__.py"
    code = program.read_text()
    if name != framework:
        code = guide(framework)
    program.write_text(in_pods(code, framework))
    up = training.run("up", "--yes", "--skip-preview", timeout=SECONDS)
    assert up.code == 0, f"{up}\n{logs_of(training)}"
    pods = training.pods(f"{name}-")
    found = {pod.metadata.name.partition("-")[2].partition("-")[2].rpartition("-")[0] for pod in pods}
    if (
        "chief-0-0" in tasks
    ):  # the chief ends the job, and JobSet deletes the Pods of other roles that are still running
        assert "chief-0-0" in found <= tasks
    else:
        assert found == tasks and {pod.spec.node_name for pod in pods} == {"node1", "node2"}
    log = tmp_path / "log"
    assert training.follow(name, log).wait(SECONDS) == 0
    printed = plain(log.read_text())
    assert words in printed and "Successfully installed" not in printed, printed[-3000:]
    assert "unchanged" in training.up().out
    training.destroy()


def logs_of(training: Example) -> str:
    found: list[Any] = training.pods()
    read = training.core.read_namespaced_pod_log
    return "\n".join(str(read(pod.metadata.name, training.namespace))[-3000:] for pod in found)
