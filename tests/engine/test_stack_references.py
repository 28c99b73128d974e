"""What another stack exports, as the arguments of a team's program: what is not there is told, with where it was wanted."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from .conftest import Project

PLATFORM = """
import pulumi
import pulumi_trainer as trainer

stable = trainer.RuntimeChannel("stable", release="torch-distributed@2.3.0")
pulumi.export("stable", stable.offer)
pulumi.export("queue-nlp", "nlp")
pulumi.export("token", pulumi.Output.secret("s3cret"))
"""
TEAM = """
import pulumi
import pulumi_trainer as trainer

platform = pulumi.StackReference("organization/platform/prod")
here = trainer.Kubernetes(namespace="nlp", kubeconfig="nowhere")
trainer.TrainJob(
    "fine", runtime=platform.get_output("stable"), queue=platform.get_output("queue-nlp"), target=here,
    trainer=trainer.Trainer(command=["true"], env={"TOKEN": platform.get_output("token")}),
)
"""
MISSING = """
trainer.TrainJob("a", runtime=platform.get_output("stabel"), target=here)
trainer.TrainJob(
    "b", runtime="torch-distributed", queue=platform.get_output("queue-vision"), priority=platform.get_output("high"),
    target=here, labels={"team": platform.get_output("team")},
    trainer=trainer.Trainer(
        command=["true"], num_nodes=platform.get_output("nodes"), env={"TOKEN": platform.get_output("tokens")},
    ),
)
trainer.TrainJob(
    "c", runtime="torch-distributed", target=trainer.Kubernetes(kubeconfig=platform.get_output("kubeconfig"))
)
trainer.LocalQueue("d", cluster_queue=platform.get_output("queue"), target=here)
none = pulumi.StackReference("organization/platform/none").get_output("stable")
trainer.TrainJob("e", runtime=none, target=here)
trainer.TrainJob("f", runtime=platform, target=here)
trainer.TrainJob("g", runtime="torch-distributed", queue=platform.get_output("stable"), target=here)
"""
SAID = {
    'TrainJob("a")': {"runtime"},
    'TrainJob("b")': {"queue", "priority", "labels.team", "trainer.num_nodes", "trainer.env[0].value"},
    'TrainJob("c")': {"target.kubeconfig"},
    'LocalQueue("d")': {"cluster_queue"},
}


@pytest.mark.core
def test_an_output_that_the_other_stack_does_not_have(tmp_path: Path, pulumi_home: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    env = {"PULUMI_BACKEND_URL": f"file://{state}"}
    platform, team = (
        Project(tmp_path / name, pulumi_home, name=name, stack="prod", env=env) for name in ("platform", "team")
    )
    for project, text in ((platform, PLATFORM), (team, TEAM)):
        project.folder.mkdir()
        (project.folder / "Pulumi.yaml").write_text(f"name: {project.name}\nruntime: python\n")
        assert project.run("stack", "init").code == 0
        project.program(text, head="")
    platform.up()
    assert replace(platform, stack="none").run("stack", "init").code == 0
    preview = team.preview("--diff").out
    assert re.search('kueue.x-k8s.io/queue-name *: "nlp"', preview) and "s3cret" not in preview, preview

    team.program(TEAM + MISSING, head="")
    refused = team.preview(ok=False).out
    lines = [line.strip() for line in refused.splitlines() if line.startswith("      ")]
    why = "is None: the stack organization/platform/prod has no such output. Hint: available: queue-nlp, stable, token"
    for component, places in SAID.items():
        told = {line.partition("): ")[2] or line.partition(").")[2] for line in lines if line.startswith(component)}
        assert {t.partition(": ")[0] for t in told} == places, (component, told, refused)
        assert all(t.endswith(why) for t in told), told
    assert (
        "organization/platform/none has no such output. Hint: it has no outputs: run `pulumi up` in that stack first"
        in refused
    )
    assert 'not StackReference. Hint: give one of its outputs: get_output("NAME") of the StackReference' in refused
    assert '"g") (__main__.py:27).queue: must be a string, not {' in refused, refused
    assert "Traceback" not in refused
