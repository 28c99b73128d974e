"""`pulumi-trainer report` of what the real `pulumi preview --json` prints."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from .conftest import HEAD, Project
from .test_cli import cli

JOBS = """
STAGE = pulumi.Config().require("stage")
def work(text: str = ""):
    print(text)

def job(name, **given):
    trainer.TrainJob(name, runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=work, **given))

job("kept")
job("changed", func_args={"text": STAGE})
if STAGE == "one":
    job("gone")
else:
    job("fresh", num_nodes=2, env={"TOKEN": pulumi.Config().require_secret("token")})
if STAGE == "refused":
    job("plain-secret", env={"PASSWORD": "hunter22"})
"""


def report(project: Project, preview: str, *options: str) -> subprocess.CompletedProcess[str]:
    (project.folder / "preview.json").write_text(preview)
    return cli(project, "report", "preview.json", *options)


def line_of_jobs() -> int:
    """The line of the program on which a function makes all jobs."""
    return next(at for at, line in enumerate((HEAD + JOBS).splitlines(), 1) if "trainer.TrainJob(name" in line)


def test_a_report_of_new_replaced_deleted_unchanged_and_refused_jobs(project: Project) -> None:
    project.program(JOBS)
    project.config("token", "hf_abcdef", "--secret")
    project.config("stage", "one")
    project.up()
    project.config("stage", "two")
    place = f"`__main__.py:{line_of_jobs()}`"
    made = report(project, project.preview("--json", "--show-sames").out, "--fail-on", "refused,never,preempts")
    assert made.returncode == 0, made
    rows = made.stdout.splitlines()
    assert rows[0] == "### Jobs of `lab/test`: 1 new, 1 replaced, 1 deleted, 1 unchanged", made
    assert f"- new `fresh` ({place})" in rows and "- deleted `gone`" in rows and "- unchanged `kept`" in rows, made
    changed = f'- replaced `changed` ({place}): `arguments {{"text": "one"}} -> {{"text": "two"}}'
    assert [row for row in rows if row.startswith(changed)], made
    assert "hf_abcdef" not in made.stdout and not re.search(r"warning|refused", made.stdout)

    hidden = report(project, project.preview("--json").out).stdout
    assert "1 deleted, unchanged jobs not in the preview (`--show-sames` adds them)" in hidden and "kept" not in hidden

    project.config("stage", "refused")
    refused = report(project, project.preview("--json", ok=False).out, "--fail-on", "refused")
    assert refused.returncode == 1 and refused.stderr == "error: --fail-on: 1 refused\n", refused
    assert '- **refused** `TrainJob("plain-secret") (__main__.py:' in refused.stdout, refused
    assert "hunter22" not in refused.stdout


WARNED = """
trainer.GpuQueues("gpus", teams={"nlp": trainer.Team(gpus=8), "vision": trainer.Team(gpus=8)}, node_label="gpu")
def work():
    pass
for name, gpus in {"llama": 4, "huge": 64}.items():
    trainer.TrainJob(name, runtime="torch-distributed", queue="nlp", wait_for="created",
        trainer=trainer.CustomTrainer(func=work, num_nodes=2, resources_per_node={"nvidia.com/gpu": gpus}))
"""


def test_a_report_of_jobs_in_queues(project: Project) -> None:
    """The queues are refused, so that the preview needs no plugin of Kubernetes; what Kueue would do is computed from them."""
    project.program(WARNED, "import pulumi\nimport pulumi_trainer as trainer\n")
    project.env["KUBECONFIG"] = "/nonexistent"
    project.config("trainer:target", "kubernetes")
    project.config("trainer:namespace", "nlp")
    preview = project.preview("--json", ok=False).out
    made = report(project, preview, "--fail-on", "never,refused")
    assert made.returncode == 1 and made.stderr == "error: --fail-on: 1 never, 1 refused\n", made
    assert "**1 refused**, 2 new" in made.stdout and "GPUs: 136 new" in made.stdout, made
    assert "- **never starts** `huge` (`__main__.py:8`): `PT203: queue: it requests more" in made.stdout, made
    notes = [each["message"] for each in diagnostics(preview) if each["message"].startswith("llama")]
    assert notes and notes[0].partition(": ")[2].strip() in made.stdout, made
    assert len(made.stdout.partition("<details>")[0].splitlines()) <= 20


def diagnostics(preview: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(preview)["diagnostics"]
    return found
