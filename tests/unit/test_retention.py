"""Which runs of a job are kept in full, which as a row, and whose folders a new run removes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, jobset, python, step, submission, wait
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.cli import runs
from pulumi_trainer.provider.jobs.lineage import ASSIGNED, choose_continued, started
from pulumi_trainer.provider.jobs.metrics import Metric
from pulumi_trainer.provider.jobs.retention import REMOVED, outdated_lineages, shorten_runs
from pulumi_trainer.provider.jobs.runs import MOST_RUNS, Identity, Run, read_runs
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.jobs.usage import Demand
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, JOB
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.service import outputs
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.targets.kubernetes.jobs import record
from pulumi_trainer.provider.targets.kubernetes.outdated_folders import remove_outdated_folders
from pulumi_trainer.provider.targets.local.target import LocalTarget

ANEW = Identity(cause="changed", place="p")


def run(name: str, phase: str = "Failed", lineage: str = "", place: str = "p") -> Run:
    return Run("1", phase, id=name, lineage=lineage or name, place=place, inputs={"code": name, "nodes": "1"})


class TestOutdated:
    def test_the_last_lineages_stay_that_of_the_new_run_included(self) -> None:
        earlier = [run("a"), run("b"), run("c", lineage="a"), run("d")]
        assert outdated_lineages(earlier, ANEW, 3) == ["a"]
        assert outdated_lineages(earlier, ANEW, 1) == ["a", "b", "d"]
        assert outdated_lineages(earlier, ANEW, 4) == []

    def test_the_newest_success_and_what_the_new_run_needs_stay(self) -> None:
        earlier = [run("a", "Succeeded"), run("b", "Succeeded"), run("c"), run("d")]
        assert outdated_lineages(earlier, ANEW, 1) == ["a", "c", "d"]
        assert outdated_lineages(earlier, replace(ANEW, lineage="c"), 1) == ["a", "d"]
        assert outdated_lineages(earlier, replace(ANEW, origin="a"), 1) == ["c", "d"]

    def test_other_places_are_left_alone(self) -> None:
        assert outdated_lineages([run("a", place="q"), run("b", place=""), run("c")], ANEW, 1) == ["c"]
        assert outdated_lineages([run("a")], replace(ANEW, place=""), 1) == []

    def test_a_name_that_is_none_is_no_folder(self) -> None:
        (found,) = read_runs([{"id": "a", "lineage": "../x", "place": "p"}])
        assert outdated_lineages([found], ANEW, 1) == []
        assert Identity.from_dict({"removed": "a,../x,,b"}).removed_lineages == ["a", "b"]


@pytest.mark.parametrize("given", ["5", 5.0, True, None, 0, 101])
def test_keep_runs_names_what_it_takes(given: Any) -> None:
    (problem,) = TrainJobArgs("j", runtime="plain", keep_runs=given).check()
    assert str(problem).startswith(f"keep_runs: must be an int from 1 to 100, not {given!r}. Hint: ")


class TestRows:
    def test_older_runs_keep_what_a_row_shows(self) -> None:
        whole = replace(
            run("a"), metrics={"loss": Metric("3", "1", "1", "1", "3")}, message="why", history_text="x", parent="z",
            usage=Demand("ann", gpus=8.0), created=5.0, finished=9.0, cause="changed",
        )  # fmt: skip
        first, second = shorten_runs([whole, replace(whole, id="b")], Identity(id="c", lineage="c"), 2)
        assert first == replace(whole, inputs={}, message="", metrics={"loss": Metric(last="1")})
        assert not first.history_text and second.history_text == "x" and second == replace(whole, id="b")

    def test_a_run_that_went_on_counts_once(self) -> None:
        twice = [run("a"), run("b"), run("b")]
        assert [bool(each.inputs) for each in shorten_runs(twice, Identity(id="b", lineage="b"), 2)] == [
            True,
            True,
            True,
        ]
        assert [bool(each.inputs) for each in shorten_runs(twice, Identity(id="c", lineage="c"), 2)] == [
            False,
            True,
            True,
        ]

    def test_the_row_of_a_removed_folder_says_so_and_cannot_be_continued(self) -> None:
        known = Identity(id="d", lineage="d", place="p", removed="a")
        found = shorten_runs([replace(run("a"), note="no steps"), run("b"), run("c")], known, 20)
        assert (found[0].place, found[0].note) == ("", f"no steps; {REMOVED}")
        why = choose_continued(found, "a", "p").why
        assert why == "output and checkpoints of run a were removed (keep_runs); there are those of runs b, c"
        with pytest.raises(Invalid, match=r"fork.run: output and checkpoints of run a were removed .* runs b, c"):
            choose_continued(found, True, "p", {"run": "a"})

    def test_a_record_in_a_cluster_has_at_most_its_size(self) -> None:
        metrics = {f"metric-{n}": Metric(*["0.123456789"] * 5) for n in range(40)}
        inputs = {f"input-{n}": "x" * 990 for n in range(12)}
        runs = [replace(run(f"{n:03}"), metrics=metrics, inputs=inputs) for n in range(MOST_RUNS)]
        text = record.runs_as_text(runs)
        found = read_runs(json.loads(text))
        assert len(text) <= 300_500 and found[-1] == runs[-1] and len(found) == MOST_RUNS
        assert not found[0].inputs and not found[0].metrics


def test_a_new_run_gets_its_identity_and_shortens_what_was_before() -> None:
    env = [{"name": "TRAINER_CHECKPOINT_REMOVE", "value": ASSIGNED}]
    document = {"kind": "JobSet", "spec": {"env": env}}
    made = Submission(
        "n", "j", "o", "d", {"JobSet/j": document}, earlier=[run("a"), run("b")], identity=ANEW, keep_runs=2
    )
    new = started(made, 1_795_000_000)
    assert new.identity.removed == "a" and new.jobset["spec"]["env"][0]["value"] == "a"
    assert [(each.place, bool(each.inputs)) for each in new.earlier] == [("", False), ("p", True)]
    kept = started(replace(made, removes_folders=False), 1_795_000_000)
    assert not kept.identity.removed and kept.earlier[0].place == "p"


class Volume:
    """A job on this machine with an output volume, in which each run writes a file."""

    def __init__(self, local: LocalTarget) -> None:
        self.local = local
        local.volumes.create(NAMESPACE, "out", "urn:a", "")
        volumes = [{"name": "output", "persistentVolumeClaim": {"claimName": "out"}}]
        mounts = [{"name": "output", "mountPath": "/workspace/output", "subPath": ASSIGNED}]
        code = "import pathlib; pathlib.Path('/workspace/output/model').write_text('x')"
        made = jobset(step(command=python(code), pod={"volumes": volumes}, container_fields={"volumeMounts": mounts}))
        self.sent = replace(submission(made), identity=replace(ANEW, place="out"), keep_runs=2)

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in Path(self.local.volumes.find(NAMESPACE, "out")[0]["path"]).iterdir())


@pytest.mark.parametrize("how", ["rerun", "replaced"])
def test_a_run_on_this_machine_removes_the_folders_of_old_ones(local: LocalTarget, how: str) -> None:
    volume = Volume(local)
    local.jobs.create(volume.sent)
    for _ in range(3):
        wait(local)
        if how == "rerun":
            local.jobs.rerun(volume.sent)
            continue
        earlier = local.jobs.runs(NAMESPACE, "job")
        local.jobs.delete(NAMESPACE, "job", replaced=True)
        local.jobs.create(replace(volume.sent, earlier=earlier))
    wait(local)
    found = local.jobs.runs(NAMESPACE, "job")
    assert [each.note for each in found] == [REMOVED, REMOVED, "", ""]
    assert [bool(each.inputs) for each in found][:2] == [False, False]
    left = [each.id for each in found[2:]]
    assert volume.folders == sorted([*left, *(f".{name}.run.json" for name in left)])
    assert found[-1].removed == found[1].id


class Cluster:
    """Takes the Job, or refuses it; the claim has this access mode."""

    def __init__(self, mode: str = "ReadWriteOnce", *, refuses: bool = False) -> None:
        self.mode, self.refuses, self.jobs = mode, refuses, list[Any]()

    def get(self, kind: Any, namespace: str, name: str) -> Any:
        assert (kind, namespace, name) == (CLAIM, "team", "out")
        return {"spec": {"accessModes": [self.mode]}}

    def create(self, kind: Any, document: Any) -> None:
        assert kind is JOB
        if self.refuses:
            raise TargetFault(Problem("Job", "jobs.batch is forbidden"))
        self.jobs.append(document)


def removed_in(cluster: Cluster, removed: str = "a,b") -> str:
    spec = {"containers": [{"name": "node", "image": "torch:2"}], "tolerations": [{"key": "gpu"}]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": spec}}}}
    document = {"kind": "JobSet", "metadata": {}, "spec": {"replicatedJobs": [job]}}
    identity = Identity(id="c", lineage="c", place="out", removed=removed)
    kept = record.Record.of(
        {
            "metadata": {"namespace": "team", "name": "j", "uid": "u-1"},
            "data": {record.IDENTITY: json.dumps(identity.to_dict()), "output": "pvc://out/c"},
        }
    )
    made = Submission("team", "j", "o", "d", {"JobSet/j": document})
    return remove_outdated_folders(cluster, kept, made)  # type: ignore[arg-type]


def test_in_a_cluster_a_job_removes_them_beside_the_pods_of_the_run() -> None:
    cluster = Cluster()
    assert removed_in(cluster) == ""
    (job,) = cluster.jobs
    assert job["metadata"]["ownerReferences"][0]["uid"] == "u-1" and job["spec"]["ttlSecondsAfterFinished"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["rm", "-rf", "--", "/workspace/output/a", "/workspace/output/b"]
    assert container["image"] == "torch:2" and container["volumeMounts"][0].get("readOnly") is None
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {"jobset.sigs.k8s.io/jobset-name": "j"}


def test_why_folders_of_a_cluster_stay() -> None:
    assert removed_in(Cluster(), removed="") == ""
    once = Cluster("ReadWriteOncePod")
    why = "team/j: folders of earlier runs stay in claim out (a, b): "
    assert removed_in(once) == f"{why}one Pod at a time can mount it" and not once.jobs
    assert removed_in(Cluster(refuses=True)) == f"{why}Job: jobs.batch is forbidden"


def test_an_output_that_was_removed_is_named_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(run("a", "Succeeded", place=""), note=REMOVED)
    monkeypatch.setattr(outputs, "read_runs_of", lambda _: [row, run("b", "Succeeded")])
    with pytest.raises(TargetFault, match=r"run a: its output and checkpoints were removed \(keep_runs\)"):
        outputs._folder(ReachedJob("team", "j"), "/volumes/out/data/b", "a", "--run")


@pytest.mark.parametrize(("metrics", "output"), [(True, "table"), (False, "json"), (False, "table")])
def test_a_run_that_went_on_is_one_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], metrics: bool, output: str
) -> None:
    job = ReachedJob("team", "j")
    monkeypatch.setattr(runs, "chosen_jobs", lambda *_: [job])
    monkeypatch.setattr(runs, "read_runs_of_all", lambda _: [(job, [run("a"), run("a", "Succeeded")])])
    runs.runs("j", Where(), output=output, metrics=metrics)
    printed = capsys.readouterr().out
    found = len(json.loads(printed)) if output == "json" else len([x for x in printed.splitlines() if " a" in x[:8]])
    assert found == 1 and "Succeeded" in printed
    assert ("went on after it was interrupted" in printed) == (output == "table" and not metrics)


def test_times_of_an_edited_status_are_none() -> None:
    found = JobStatus.from_dict({"name": "j", "namespace": "n", "finished": "x", "created": [1], "started": 5.0})
    assert (found.finished, found.created, found.started) == (0.0, 0.0, 5.0)
