"""A channel that moves, and the jobs of the same stack that follow it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.cli import releases as commands
from pulumi_trainer.provider.trainer.releases import DEFAULT

from tests.documented import blocks

from .conftest import Project

PLATFORM = """
import pulumi
import pulumi_trainer as trainer

catalog = trainer.RuntimeCatalog.from_dir("runtimes")
stable = trainer.RuntimeChannel("stable", release="plain@RELEASE", catalog=catalog, force=FORCE)
pulumi.export("stable", stable.offer)
"""
JOBS = """
for name, follow, interrupt in (
    ("pinned", "pin", "refuse"), ("patched", "patch", "refuse"), ("minor", "minor", "refuse"), ("now", "any", "allow"),
):
    trainer.TrainJob(
        name, runtime=stable, follow=follow, interrupt=interrupt, run=RUN,
        trainer=trainer.Trainer(command=["sleep", "600" if name == "now" else "0"]),
    )
"""


WRONG = """
trainer.RuntimeChannel("none", release="plain")
trainer.RuntimeChannel("moved", release="plain@1.0.0", catalog=trainer.RuntimeCatalog.from_git("--upload-pack=x", "v1"))
trainer.RuntimeChannel("typo", release="plain@1.0.0", catalog=trainer.RuntimeCatalog.from_dir("runtims"))
trainer.RuntimeChannel("direct", release="plain@1.0.0", catalog=trainer.RuntimeCatalog("x", "url"))
trainer.RuntimeChannel("word", release="plain@1.0.0", catalogue=catalog, catalog="runtimes")
trainer.RuntimeChannel("case", release="Plain@1.1.0", catalog=catalog)
trainer.TrainJob("a", runtime="torch-distributed", follow="any")
trainer.TrainJob("b", runtime=stable, follow="all")
trainer.TrainJob("c", runtime=pulumi.Output.from_input({"channel": "stable"}))
trainer.ClusterTrainingRuntime("plain", release="3.0.0", catalog=catalog)
trainer.ClusterTrainingRuntime("other", catalog=catalog)
trainer.ClusterTrainingRuntime("spelt", relase="1.0.0")
trainer.ClusterTrainingRuntime("plain", release=stable.urn, catalog=catalog, opts=pulumi.ResourceOptions(parent=stable))
trainer.RuntimeChannel("later", release=stable.urn)
"""
WRONG_SAYS = (
    "catalog: RuntimeCatalog('x', 'url'): not the location of a catalogue. Hint: use RuntimeCatalog.from_dir(folder)",
    'RuntimeChannel("none") (__main__.py:', "must be name@release", "not a valid address of a git repository",
    'TrainJob("a") (__main__.py:', "follow: requires a RuntimeChannel as runtime",
    "must be one of pin, patch, minor, any, not 'all'", "runtime: not a valid offer of a RuntimeChannel",
    "release: '3.0.0' is not a release of plain of the catalogue runtimes", "catalog: requires release",
    ".catalog: runtims: is not a folder. Hint: did you mean runtimes?",
    ".relase: unknown field. Hint: did you mean release?", ".release: must be text, such as 2.3.0, not Output",
    ".release: must be name@release, such as torch-distributed@2.3.0, not Output",
    ".catalogue: unknown field. Hint: did you mean catalog?", ".catalog: must be a RuntimeCatalog, not 'runtimes'",
    ".release: 'Plain' is not a runtime of the catalogue runtimes. Hint: did you mean plain?",
    ".catalog: runtimes/plain/1.0.0.yaml: was changed after its release",
)  # fmt: skip


def release(number: str, **env: str) -> dict[str, object]:
    mark = {"pulumi-trainer.dev/release": number}
    container = {"name": "node", "image": "python:3.12", "env": [{"name": k, "value": v} for k, v in env.items()]}
    pod = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pod, "backoffLimit": 0}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {
            "name": "plain",
            "labels": {**mark, "trainer.kubeflow.org/framework": "plainml"},
            "annotations": mark,
        },
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def write(folder: Path, *documents: dict[str, object]) -> None:
    """Releases a catalogue, by the command."""
    for document in documents:
        number = document["metadata"]["labels"]["pulumi-trainer.dev/release"]  # type: ignore[index]
        (folder / "plain").mkdir(parents=True, exist_ok=True)
        (folder / "plain" / f"{number}.yaml").write_text(yaml.safe_dump(document))
    assert commands.check(str(folder), "text", DEFAULT, lock=True) == 0


def program(project: Project, text: str, **values: str) -> None:
    for name, value in values.items():
        text = text.replace(name, value)
    project.program(text, head="")


@pytest.mark.core
def test_what_a_move_does_to_each_job(project: Project) -> None:
    catalog = project.folder / "runtimes"
    write(catalog, release("1.0.0"), release("1.1.0", LEVEL="1"))
    at = {"FORCE": "False", "RUN": '"1"'}
    program(project, PLATFORM + JOBS, RELEASE="1.0.0", **at)
    project.up()
    before = {r["inputs"]["name"]: r["outputs"]["uid"] for r in project.resources()}

    program(project, PLATFORM + JOBS, RELEASE="1.1.0", **at)
    preview = project.preview()
    out = preview.out
    assert "channel stable: plain 1.0.0 => 1.1.0: minor for jobs" in out
    assert "minor step[node].containers[node].env[LEVEL]: added" in out
    assert "jobs at this target that follow the channel: 4" in out
    said = {
        line.partition("default/")[2].partition("-")[0]: line for line in out.splitlines() if "but this job has" in line
    }
    assert 'No change: it is pinned to 1.0.0 (follow="pin")' in said["pinned"]
    assert 'No change: the change is minor for this job, but it has follow="patch"' in said["patched"]
    assert "On its next run" in said["minor"]
    assert "Replaced: it is Running" in said["now"]
    project.up()
    after = {r["inputs"]["name"]: r["outputs"]["uid"] for r in project.resources()}
    assert [name.rpartition("-")[0] for name in before if before[name] != after[name]] == ["now"]

    runs = '"2" if name in ("pinned", "minor") else "1"'
    program(project, PLATFORM + JOBS, RELEASE="1.1.0", FORCE="False", RUN=runs)
    out = project.up().out
    assert 'No change: it is pinned to 1.0.0 (follow="pin")' in out
    found = {r["inputs"]["name"].rpartition("-")[0]: r["inputs"]["runtime"]["release"] for r in project.resources()}
    assert found == {"pinned": "1.0.0", "patched": "1.0.0", "minor": "1.1.0", "now": "1.1.0"}

    again = runs.replace('"2"', '"3"')
    program(project, PLATFORM + JOBS, RELEASE="1.0.0", FORCE="False", RUN=again)
    out = project.preview().out
    assert 'No change: 1.0.0 is older than its 1.1.0, and only follow="any" allows a downgrade' in out
    assert (
        '1 job at the next `pulumi up` of its stack, which ends its run (interrupt="allow"): major' in out
        and "    default/now-" in out
    )

    (catalog / "plain" / "1.0.0.yaml").write_text((catalog / "plain" / "1.0.0.yaml").read_text() + "# better\n")
    program(project, PLATFORM + JOBS + WRONG, RELEASE="1.1.0", FORCE="False", RUN=runs)
    refused = project.preview(ok=False).out
    for text in WRONG_SAYS:
        assert text in refused
    assert "template: is required" not in refused and " object at 0x" not in refused
    program(project, PLATFORM + JOBS, RELEASE="1.1.0", FORCE="False", RUN=runs)
    refused = project.preview(ok=False).out
    assert "runtimes/plain/1.0.0.yaml: was changed after its release" in refused and "Traceback" not in refused
    (catalog / "catalogue.lock").write_text("".join((catalog / "catalogue.lock").read_text().splitlines(True)[1:]))
    (catalog / "plain" / "1.0.0.yaml").unlink()
    refused = project.preview(ok=False).out
    assert "the catalogue no longer has release 1.0.0, but 2 jobs use it" in refused
    assert "default/patched-" in refused and "default/pinned-" in refused
    project.destroy()


def test_a_withdrawn_release_is_left_and_patches_of_a_line_are_taken(project: Project) -> None:
    patch: Any = release("1.0.1")
    patch["metadata"]["labels"]["example.com/fix"] = "1"
    write(project.folder / "runtimes", release("1.0.0"), patch, release("1.1.0", LEVEL="1"))
    jobs = JOBS.replace(', ("now", "any", "allow"),', ", ")
    at = {"FORCE": "False", "RUN": '"1"'}
    program(project, PLATFORM + jobs, RELEASE="1.0.0", **at)
    project.up()
    program(project, PLATFORM + jobs, RELEASE="1.1.0", FORCE="False", RUN='"2"')
    out = project.up().out
    assert "and takes 1.0.1: the change is minor for this job" in out, out
    assert releases_of(project) == {"pinned": "1.0.0", "patched": "1.0.1", "minor": "1.1.0"}

    about = "plain: {withdrawn: {1.1.0: {since: 2026-11-01, reason: it is slow}}}\n"
    (project.folder / "runtimes" / "about.yaml").write_text(about)
    out = project.preview().out
    told = "plain@1.1.0 is withdrawn since 2026-11-01: it is slow"
    assert f'warning: RuntimeChannel("stable"): {told}' in out
    assert f"but this job has 1.1.0, and takes 1.0.1: {told}" in out and "On its next run" in out, out
    program(project, PLATFORM + jobs, RELEASE="1.0.1", FORCE="False", RUN='"2"')
    out = project.up().out
    assert f"channel stable: {told}" in out and "1 job on the next run: major" in out, out
    assert releases_of(project)["minor"] == "1.1.0"
    program(project, PLATFORM + jobs, RELEASE="1.0.1", FORCE="False", RUN='"3"')
    project.up()
    assert releases_of(project) == {"pinned": "1.0.0", "patched": "1.0.1", "minor": "1.0.1"}
    out = project.preview("--expect-no-changes").out
    assert "withdrawn" not in out, out


def releases_of(project: Project) -> dict[str, str]:
    found = (each["inputs"] for each in project.resources())
    return {each["name"].rpartition("-")[0]: each["runtime"]["release"] for each in found}


DEPRECATED = """
import pulumi_trainer as trainer

catalog = trainer.RuntimeCatalog.from_dir("runtimes")
old = trainer.RuntimeChannel("old", release="plain@1.0.0", catalog=catalog)
plain = trainer.ClusterTrainingRuntime("plain", release="1.0.0", catalog=catalog)
fresh = trainer.TrainingRuntime("fresh", name="plain", release="1.1.0", catalog=catalog)
upstream = trainer.Kubernetes(mode="trainer", kubeconfig="nowhere")
for name, runtime, target in (
    ("follows", old, None), ("named", plain, None), ("right", fresh, None), ("upstream", old, upstream)
):
    trainer.TrainJob(name, runtime=runtime, target=target, trainer=trainer.Trainer(command=["true"]))
"""


def test_a_deprecated_release_is_told_to_each_who_uses_it(project: Project) -> None:
    write(project.folder / "runtimes", release("1.0.0"), release("1.1.0", LEVEL="1"))
    about = 'plain: {deprecated: {"1.0.0": {date: 2999-03-31, successor: 1.1.0}}}\n'
    (project.folder / "runtimes" / "about.yaml").write_text(about)
    project.program(DEPRECATED, head="")
    out = project.preview().out
    told = "plain@1.0.0 is deprecated, and no longer offered from 2999-03-31 on; take 1.1.0"
    assert {line.strip() for line in out.partition("Diagnostics:")[2].splitlines() if "deprecated" in line} == {
        f'warning: RuntimeChannel("old"): {told}', f"warning: runtime: {told}"
    }, out  # fmt: skip
    named = {w for w in ("follows", "named", "right", "upstream") if f"trainer:index:TrainJob ({w}):" in out}
    assert named == {"follows", "named", "upstream"}, out

    (project.folder / "runtimes" / "about.yaml").write_text(about.replace("2999", "2020"))
    out = " ".join(project.preview().out.split())
    assert "runtime: plain@1.0.0 is deprecated and has not been offered since 2020-03-31. Hint: use 1.1.0" in out


def test_a_git_ref_that_has_moved_changes_nothing(project: Project) -> None:
    repository = project.folder / "repository"

    def commit(*documents: dict[str, object]) -> None:
        write(repository, *documents)
        who = ("-c", "user.name=me", "-c", "user.email=me@localhost")
        for arguments in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "more"), ("tag", "-f", "v1")):
            subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)

    project.env["HOME"] = str(project.folder / "home")
    commit(release("1.0.0"))
    catalog = f"trainer.RuntimeCatalog.from_git({str(repository)!r}, 'v1')"
    text = f'import pulumi_trainer as trainer\ntrainer.RuntimeChannel("stable", release="plain@1.0.0", catalog={catalog})\n'
    project.program(text, head="")
    project.up()
    locked, (channel,) = (project.folder / "runtimes.lock").read_text(), project.resources("Channel")

    commit(release("1.1.0", LEVEL="1"))
    refused = project.up(ok=False).out
    named = f'RuntimeChannel("stable") (__main__.py:2).catalog: {repository}@v1'
    where = f"{named}: has moved: runtimes.lock pins commit {locked[:12]}"
    assert where in refused and "to accept the new commit, remove its line from runtimes.lock" in refused, refused
    assert "Traceback" not in refused and (project.folder / "runtimes.lock").read_text() == locked
    assert project.resources("Channel") == [channel]
    (project.folder / "runtimes.lock").unlink()
    project.up()
    assert project.resources("Channel")[0]["inputs"]["releases"] == ["1.0.0", "1.1.0"]


@pytest.mark.core
def test_a_channel_in_use_is_not_removed(project: Project) -> None:
    job = 'trainer.TrainJob("mine", runtime=RUNTIME, trainer=trainer.Trainer(command=["true"]))'
    head = "import pulumi\nimport pulumi_trainer as trainer\n"
    stable = 'stable = trainer.RuntimeChannel("stable", release="torch-distributed@2.3.0")\n'
    program(project, head + stable + job, RUNTIME="stable")
    project.up()
    program(project, head + job, RUNTIME='"torch-distributed"')
    refused = project.up(ok=False).out
    assert "\n    error: channel stable: 1 job uses it, " in refused, "nothing before our own words"
    assert "Exception calling" not in refused and "Traceback" not in refused


REMOVED = """
import pulumi
import pulumi_trainer as trainer

catalog = trainer.RuntimeCatalog.from_dir("runtimes")
plain = trainer.ClusterTrainingRuntime("plain", release="1.0.0", catalog=catalog)
other = trainer.RuntimeChannel("other", release="plain@1.0.0", catalog=catalog)
"""
USING = REMOVED + 'stable = trainer.RuntimeChannel("stable", release="plain@1.0.0", catalog=catalog, force=FORCE)\n'
JOB = 'trainer.TrainJob("job", name="job", runtime=RUNTIME, run=RUN, trainer=trainer.Trainer(command=["true"]))\n'


def test_a_channel_cannot_be_removed_while_a_job_uses_it_which_the_plan_says(project: Project) -> None:
    write(project.folder / "runtimes", release("1.0.0"))
    program(project, USING + JOB, FORCE="False", RUNTIME="stable", RUN='"1"')
    project.up()
    why = "channel stable: 1 job uses it"
    program(project, REMOVED + JOB, RUNTIME="plain", RUN='"1"')
    assert why in project.preview(ok=False).out, "the job is the same, and keeps the release that it was made with"
    refused = project.up("--skip-preview", ok=False).out
    assert why in refused and "remove those jobs first, or set force=True" in refused, "as the plan says"

    program(project, REMOVED + JOB, RUNTIME="other", RUN='"1"')
    assert why in project.preview(ok=False).out, "which a job that only moves to another channel does as well"

    program(project, REMOVED + JOB, RUNTIME="plain", RUN='"2"')
    project.up()
    assert [r["outputs"]["channel"] for r in project.resources("Channel")] == ["other"], "a new run left the channel"


def test_a_channel_goes_with_its_jobs_or_by_force(project: Project) -> None:
    write(project.folder / "runtimes", release("1.0.0"))
    program(project, USING + JOB, FORCE="False", RUNTIME="stable", RUN='"1"')
    project.up()
    program(project, REMOVED)
    project.up()
    assert project.resources() == []
    program(project, USING + JOB, FORCE="True", RUNTIME="stable", RUN='"1"')
    project.up()
    program(project, REMOVED + JOB, RUNTIME="plain", RUN='"1"')
    project.up()
    assert [r["outputs"]["channel"] for r in project.resources("Channel")] == ["other"]


def test_channels_of_one_name_in_two_stacks_do_not_count_each_others_jobs(project: Project) -> None:
    write(project.folder / "runtimes", release("1.0.0"))
    for stack in (project.stack, "second"):
        if stack != project.stack:
            project.stack = stack
            assert project.run("stack", "init").code == 0
        named = JOB.replace('name="job"', f'name="{stack}"')
        program(project, USING + named, FORCE="False", RUNTIME="stable", RUN='"1"')
        project.up()
    program(project, REMOVED)
    assert "stable: 1 job uses it" not in project.preview().out
    project.up()
    assert [r["outputs"]["channel"] for r in project.resources("Channel")] == ["other"]


(PAGE,) = (block.text for block in blocks("docs/versioning-runtimes.md", __file__))
WAVES = PAGE.replace("torch-team@1.1.0", "plain@RELEASE").replace('"2h"', '"SOAK"').replace("1.02", "1.1")
WAVES = WAVES.replace('"ci/canary"], ["nlp"', '"default/canary"], ["default/first"').replace('"seconds": 1.1, ', "")
WAVES += """
code = (
    "import json, os; loss = float(os.environ.get('LOSS', '1')) + int(os.environ.get('MORE', '0'));"
    "metrics = [{'name': 'loss', 'value': loss}];"
    "print(json.dumps({'trainerStatus': {'step': 1, 'metrics': metrics}}), flush=True);"
    "raise SystemExit(int(os.environ.get('FAILS', '0')))"
)
for name in ("canary", "first", "other"):
    trainer.TrainJob(
        name, name=name, runtime=stable, follow="minor", rerun_on=["runtime"], may_fail=True,
        trainer=trainer.Trainer(command=["python3", "-c", code]), wait_for="complete",
    )
"""


def releases(project: Project) -> dict[str, str]:
    """Job -> its release."""
    found = {}
    for each in project.resources():
        if each["type"].endswith(":JobSet"):
            found[each["inputs"]["name"]] = each["inputs"]["runtime"]["release"]
    return found


def test_a_release_rolls_out_in_waves(project: Project) -> None:
    """Each update moves one wave; a failed or worse canary stops it; one line takes it back."""
    catalog = project.folder / "runtimes"
    write(
        catalog,
        release("1.0.0"),
        release("1.1.0", LOSS="1.05"),
        release("1.2.0", LOSS="1.05", MORE="8"),
        release("1.3.0", LOSS="1.05", MORE="8", FAILS="1"),
    )
    program(project, WAVES, RELEASE="1.0.0", SOAK="0s")
    project.up()
    program(project, WAVES, RELEASE="1.1.0", SOAK="0s")
    out = project.preview().out
    assert "1 job on the next run" in out and "2 jobs staying with 1.0.0 until a later wave" in out, out
    project.up()
    assert releases(project) == {"canary": "1.1.0", "first": "1.0.0", "other": "1.0.0"}
    program(project, WAVES, RELEASE="1.1.0", SOAK="2h")
    out = project.up().out
    assert (
        "1.1.0 has reached default/canary; all others get 1.0.0; wave 2 of 3 (default/first) moves with the first"
        in out
    )
    assert releases(project)["first"] == "1.0.0"
    program(project, WAVES, RELEASE="1.1.0", SOAK="0s")
    project.up()
    assert releases(project) == {"canary": "1.1.0", "first": "1.1.0", "other": "1.0.0"}
    project.up()
    assert releases(project) == {"canary": "1.1.0", "first": "1.1.0", "other": "1.1.0"}
    project.preview("--expect-no-changes")
    for worse, why in (
        ("1.2.0", "default/canary: loss 9.05 on plain@1.2.0, 1.05 on plain@1.1.0: more than 1.1 times"),
        ("1.3.0", "default/canary has failed on 1.3.0"),
    ):
        program(project, WAVES, RELEASE=worse, SOAK="0s")
        project.up()
        out = project.up().out
        assert f"wave 2 of 3 (default/first) does not move: {why}" in out, out
        assert releases(project) == {"canary": worse, "first": "1.1.0", "other": "1.1.0"}
        program(project, WAVES, RELEASE="1.1.0", SOAK="0s")
        assert f"channel stable has taken {worse} back" in project.up().out
        assert set(releases(project).values()) == {"1.1.0"}
        project.preview("--expect-no-changes")


HANGING = """
import pulumi_trainer as trainer

stable = trainer.RuntimeChannel(
    "stable", release="plain@RELEASE", catalog=trainer.RuntimeCatalog.from_dir("runtimes"), waves=[["default/canary"]],
    max_duration="BOUND",
)
code = "import os, time; time.sleep(int(os.environ.get('SLEEPS', '0')))"
for name in ("canary", "other"):
    trainer.TrainJob(
        name, name=name, runtime=stable, follow="minor", rerun_on=["runtime"], interrupt="allow",
        trainer=trainer.Trainer(command=["python3", "-c", code]), wait_for="WAIT",
    )
"""


def test_a_canary_that_hangs_stops_the_roll_out(project: Project) -> None:
    """A run is awaited within its bound. After it nothing moves, and one line takes the release back."""
    write(project.folder / "runtimes", release("1.0.0"), release("1.1.0", SLEEPS="600"))
    program(project, HANGING, RELEASE="1.0.0", BOUND="24h", WAIT="complete")
    project.up()
    program(project, HANGING, RELEASE="1.1.0", BOUND="24h", WAIT="running")
    project.up()
    for bound, why in (
        ("24h", "default/canary still runs on 1.1.0"),
        ("1s", "default/canary hangs on 1.1.0: it has run for"),
    ):
        program(project, HANGING, RELEASE="1.1.0", BOUND=bound, WAIT="created")
        for said in (project.preview().out, project.up().out):
            assert f"the last wave (all others) does not move: {why}" in said, said
        assert releases(project) == {"canary": "1.1.0", "other": "1.0.0"}
    program(project, HANGING, RELEASE="1.0.0", BOUND="1s", WAIT="complete")
    project.up()
    assert releases(project) == {"canary": "1.0.0", "other": "1.0.0"}
    project.preview("--expect-no-changes")
