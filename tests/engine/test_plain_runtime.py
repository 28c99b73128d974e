"""The runtime `plain` of the catalogue on this machine."""

from __future__ import annotations

import pytest

from .conftest import Project

PLAIN = """
import pulumi_trainer as trainer

def work(nodes: int):
    import os, sys
    frameworks = [name for name in os.environ if name.startswith(("PET_", "JAX_", "DMLC_"))]
    print("func", os.environ["JOB_COMPLETION_INDEX"], "of", nodes, frameworks, "torch" in sys.modules, flush=True)

trainer.TrainJob(
    "function", runtime="plain", wait_for="complete",
    trainer=trainer.CustomTrainer(func=work, func_args={"nodes": 2}, num_nodes=2),
)
trainer.TrainJob(
    "command", runtime="plain", wait_for="complete",
    trainer=trainer.CustomTrainer(command=["python3", "-c", "print('command', 6 * 7)"]),
)
"""


@pytest.mark.core
def test_a_function_and_a_command(project: Project) -> None:
    project.program(PLAIN, head="")
    project.up()
    lines = project.logs("function").splitlines()
    assert sorted(lines) == ["func 0 of 2 [] False", "func 1 of 2 [] False"]
    assert project.logs("command") == "command 42\n"
    project.preview("--expect-no-changes")
    project.destroy()
