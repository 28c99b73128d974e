"""The claims that a runtime's volumeClaimPolicies name never take the volume of another TrainJob with them."""

from __future__ import annotations

import pytest

from .conftest import Project

PROGRAM = """
def write():
    import os, pathlib
    pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"], "weights.bin").write_bytes(b"x" * 1200)

def fill():
    import os, pathlib
    for folder in os.environ["CLAIM"].split(":"):
        pathlib.Path(folder, "cache.bin").write_bytes(b"x" * 1200)

def claiming(name, template):
    return trainer.ClusterTrainingRuntime(name, ml_policy=trainer.PlainPolicy(), template=trainer.JobSetTemplate(
        replicated_jobs=[trainer.ReplicatedJob(name="node", pod_spec={"containers": [{
            "name": "node", "image": "python:3.12", "env": [{"name": "CLAIM", "value": "/x"}],
            "volumeMounts": [{"name": template, "mountPath": "/x"}]}]})],
        volume_claim_policies=[{"templates": [{"metadata": {"name": template}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}]))
"""
VICTIM = """
victim = trainer.TrainJob("victim", name="victim", runtime=plain, output=True, trainer=trainer.CustomTrainer(func=write),
                          wait_for="complete")
"""
THIEF = """
trainer.TrainJob("thief", name="output", runtime=claiming("claiming", "victim"), trainer=trainer.CustomTrainer(func=fill),
                 opts=pulumi.ResourceOptions(depends_on=[victim]))
"""
OWN = """
trainer.TrainJob("own", name="own", runtime=claiming("claiming", "cache"), trainer=trainer.CustomTrainer(func=fill),
                 wait_for="complete")
"""


@pytest.mark.core
def test_a_claim_with_the_name_of_an_output_volume_is_refused(project: Project) -> None:
    project.program(PROGRAM + VICTIM + THIEF)
    assert "volume default/victim-output: exists and belongs to" in project.up(ok=False).out
    (weights,) = project.root.glob("volumes/default/victim-output/data/*/weights.bin")
    assert "volume default/victim-output: exists and belongs to" in project.preview(ok=False).out
    project.program(PROGRAM + VICTIM)
    project.up()
    assert weights.exists()
    assert project.job("output") is None


def test_a_claim_of_its_own_goes_with_the_job_and_the_output_says_so(project: Project) -> None:
    project.program(PROGRAM + OWN)
    project.up()
    assert (project.root / "volumes/default/cache-own/data/cache.bin").exists()
    project.program(PROGRAM)
    out = project.up().out
    assert "note: volume default/cache-own is deleted with job default/own: 1 file, 1.2 kB, last written 20" in out
    assert not (project.root / "volumes/default/cache-own").exists()
