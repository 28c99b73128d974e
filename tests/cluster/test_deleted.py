"""What somebody has deleted of a job: said in the plan, made again by `up`, and told by `status` and `why`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, CONFIG_MAP, NAMESPACE, POD, SECRET, Kind
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import jobset, left, until
from .storage_support import storage_class
from .test_queue import queue  # noqa: F401 (a fixture)
from .test_up import Lab, head, lab  # noqa: F401 (a fixture)

UNKNOWN_END = "somebody has deleted it, and it is not known whether it had ended"
PARTS = {"record": (CONFIG_MAP, ""), "jobset": (JOBSET, ""), "code": (CONFIG_MAP, "-code"), "secret": (SECRET, "-env")}
"""What a job has: kind, and how its name ends."""
JOBS = """
def train():
    pass

for part in {parts!r}:
    job = trainer.TrainJob(
        part, name=part, runtime=simulated,
        trainer=trainer.CustomTrainer(func=train, env={{"TOKEN": pulumi.Output.secret("canary-91bc")}}),
    )
    pulumi.export(part, job.phase)
"""


def up(lab: Lab, sim: str, *parts: str) -> None:  # noqa: F811
    lab.program(JOBS.format(parts=parts), head(sim))
    lab.up()


def cli(lab: Lab, kubeconfig: Path, *arguments: str) -> str:  # noqa: F811
    """What a command says of the namespace."""
    argv = ["pulumi-trainer", *arguments, "-n", lab.namespace, "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(argv, cwd=lab.folder, env=lab.environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def phases(lab: Lab, kubeconfig: Path) -> dict[str, str]:  # noqa: F811
    """What `status` says, by job."""
    return {each["name"]: each["phase"] for each in json.loads(cli(lab, kubeconfig, "status", "-o", "json"))}


def remove(lab: Lab, parts: Iterable[str]) -> None:  # noqa: F811
    for part in parts:
        kind, end = PARTS[part]
        assert lab.root_client.delete(kind, lab.namespace, f"{part}{end}")
    for part in parts:
        kind, end = PARTS[part]
        until(lambda kind=kind, name=f"{part}{end}": lab.root_client.get(kind, lab.namespace, name) is None)


def pods(lab: Lab) -> dict[str, set[str]]:  # noqa: F811
    """uids of the running pods, by job."""
    found: dict[str, set[str]] = {}
    for pod in lab.root_client.list(POD, lab.namespace)[0]:
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
            job = pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]
            found.setdefault(job, set()).add(pod["metadata"]["uid"])
    return found


def all_run(lab: Lab) -> dict[str, set[str]]:  # noqa: F811
    return until(lambda: len(found := pods(lab)) == len(PARTS) and found)


def test_of_running_jobs(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    up(lab, "outcome: forever", *PARTS)
    before = all_run(lab)
    remove(lab, PARTS)
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "record") is None)
    shown = lab.preview().out
    assert (
        f"{lab.namespace}/record: its record is gone" in shown and "counts as unfinished and is created again" in shown
    )
    assert f'TrainJob("jobset") Deleted (OutcomeUnknown)\n      {UNKNOWN_END}' in shown, shown
    for part, name in (("code", "ConfigMap/code-code"), ("secret", "Secret/secret-env")):
        assert f"{lab.namespace}/{part}: somebody has deleted its {name}, which is created again" in shown
    assert "3 to update" in shown
    told = {"jobset": "Deleted", "code": "Running", "secret": "Running"}
    until(lambda: phases(lab, user_kubeconfig) == told)
    assert UNKNOWN_END in cli(lab, user_kubeconfig, "why", "jobset")
    assert "no such JobSet or TrainJob" in cli(lab, user_kubeconfig, "why", "record")
    lab.up()
    outputs = lab.outputs()
    assert outputs["code"] == outputs["secret"] == "Running" and outputs["record"] in ("Pending", "Starting", "Running")
    until(lambda: set(pods(lab)) == {"record", "code", "secret"})
    lab.preview("--expect-no-changes")
    assert outputs["jobset"] == "Deleted" and lab.root_client.get(JOBSET, lab.namespace, "jobset") is None
    of_stack(lab, "rerun", "jobset")
    after = all_run(lab)
    for part, (kind, end) in PARTS.items():
        assert (after[part] == before[part]) is (part in ("code", "secret"))
        assert lab.root_client.get(kind, lab.namespace, f"{part}{end}")
    lab.preview("--expect-no-changes")
    until(lambda: phases(lab, user_kubeconfig) == dict.fromkeys(PARTS, "Running"))


def test_of_finished_jobs(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    up(lab, "run: 1s", *PARTS)
    until(lambda: phases(lab, user_kubeconfig) == dict.fromkeys(PARTS, "Succeeded"))
    lab.refresh()
    remove(lab, PARTS)
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "record") is None)
    for _ in range(2):
        shown = lab.preview("--expect-no-changes").out
        assert f"{lab.namespace}/record: its record is gone" in shown
        assert (
            "It was Succeeded when the stack last saw it: it counts as finished" in shown
            and "another run= key" in shown
        )
        assert "somebody has deleted" not in shown
        lab.up()
        assert lab.outputs() == dict.fromkeys(PARTS, "Succeeded")
    assert phases(lab, user_kubeconfig) == dict.fromkeys(("jobset", "code", "secret"), "Succeeded")
    assert "Succeeded" in cli(lab, user_kubeconfig, "why", "jobset")
    assert lab.root_client.get(JOBSET, lab.namespace, "record") is None
    assert lab.root_client.get(JOBSET, lab.namespace, "jobset") is None


@pytest.mark.parametrize("asked", ["run", "interrupt"])
def test_a_finished_job_without_a_recorded_end_is_not_trained_again_unless_asked(lab: Lab, asked: str) -> None:  # noqa: F811
    """Its JobSet was deleted before anybody read its end."""
    up(lab, "run: 1s", "jobset")
    until(lambda: (lab.root_client.get(JOBSET, lab.namespace, "jobset") or {}).get("status", {}).get("terminalState"))
    remove(lab, ["jobset"])
    for _ in range(2):
        assert UNKNOWN_END in lab.preview("--expect-no-changes").out
        shown = lab.up().out
        assert UNKNOWN_END in shown and "set another run= key" in shown
        lab.refresh()
        assert lab.root_client.get(JOBSET, lab.namespace, "jobset") is None
    program = (lab.folder / "__main__.py").read_text()
    more = {"run": 'run="2"', "interrupt": 'interrupt="allow"'}[asked]
    lab.program(program.replace("part, name=part,", f"part, name=part, {more},"), "")
    planned = lab.preview().out
    if asked == "interrupt":
        assert f"{UNKNOWN_END}; it is created again, as interrupt= allows" in planned
    lab.up()
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "jobset"))


def test_of_a_finished_job_that_nobody_saw_end(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    up(lab, "run: 1s", "record")
    until(lambda: phases(lab, user_kubeconfig) == {"record": "Succeeded"})
    remove(lab, ("record",))
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "record") is None)
    shown = lab.preview().out
    assert "it is unknown whether it has ended" in shown and "If it must not run again" in shown
    lab.up()
    until(lambda: phases(lab, user_kubeconfig) == {"record": "Succeeded"})


def test_of_a_job_whose_record_alone_is_gone(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    """The job itself goes on: it gets its record again."""
    up(lab, "outcome: forever", "record")
    before = until(lambda: pods(lab).get("record"))
    lab.root_client.delete(CONFIG_MAP, lab.namespace, "record", propagation="Orphan")
    until(lambda: lab.root_client.get(CONFIG_MAP, lab.namespace, "record") is None)
    assert "its record is gone" in lab.preview().out
    program = (lab.folder / "__main__.py").read_text()
    lab.program(program.replace("part, name=part,", 'part, name=part, run="2",'))
    for ask in (lab.preview, lab.up):
        assert "is still running although its record is gone, but this change would end it" in ask(ok=False).out
    lab.program(program)
    lab.up()
    assert pods(lab)["record"] == before
    lab.preview("--expect-no-changes")
    assert phases(lab, user_kubeconfig) == {"record": "Running"}
    lab.destroy()
    until(lambda: left(lab.root_client, lab.namespace) == [])


def test_of_a_namespace_that_is_deleted_and_made_again(lab: Lab, cluster: Any) -> None:  # noqa: F811
    lab.config("trainer:kubeconfig", str(cluster.kubeconfig))  # the user's rights go with it
    up(lab, "outcome: forever", "code")
    before = until(lambda: pods(lab).get("code"))
    lab.root_client.delete(NAMESPACE, "", lab.namespace, propagation="Background")
    until(lambda: lab.root_client.get(NAMESPACE, "", lab.namespace) is None)
    lab.root_client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": lab.namespace}})
    account = Kind("v1", "ServiceAccount", "serviceaccounts")
    until(lambda: lab.root_client.get(account, lab.namespace, "default"))
    assert "its record is gone, for example because its namespace was deleted" in lab.preview().out
    lab.up()
    assert until(lambda: pods(lab).get("code")) != before
    lab.preview("--expect-no-changes")


@pytest.fixture
def storage(lab: Lab) -> Iterator[str]:  # noqa: F811
    """A class with volumes, which simulated nodes do not look at."""
    with storage_class(lab.root_client, lab.namespace, volumes=4) as name:
        yield name


def uids(lab: Lab, kind: Kind) -> dict[str, str]:  # noqa: F811
    """By name."""
    found = (each["metadata"] for each in lab.root_client.list(kind, lab.namespace)[0])
    return {each["name"]: each["uid"] for each in found if not each.get("deletionTimestamp")}


def end_pods(lab: Lab, job: str) -> None:  # noqa: F811
    """Removes those of a job that has ended: they hold its claims."""
    for pod in lab.root_client.list(POD, lab.namespace, labels=f"jobset.sigs.k8s.io/jobset-name={job}")[0]:
        lab.root_client.delete(POD, lab.namespace, pod["metadata"]["name"])


def remove_claims(lab: Lab) -> None:  # noqa: F811
    for name in uids(lab, CLAIM):
        lab.root_client.delete(CLAIM, lab.namespace, name, propagation="Background")


JOB = """
output = trainer.OutputVolume(storage_class={storage!r})
job = trainer.TrainJob("job", name="job", runtime=simulated, output=output, {more})
pulumi.export("phase", job.phase)
"""


def test_of_the_output_of_a_running_job(lab: Lab, user_kubeconfig: Path, storage: str) -> None:  # noqa: F811
    lab.program(JOB.format(more="", storage=storage), head("outcome: forever"))
    lab.up()
    before = until(lambda: pods(lab).get("job"))
    remove_claims(lab)
    words = "somebody has deleted {}. It disappears with its content when no Pod mounts it any more"
    for run in (lab.preview, lab.up):
        shown = run("--expect-no-changes").out
        assert f"volume {lab.namespace}/job-output: {words.format('it')}; copy what you need before that" in shown
    assert pods(lab)["job"] == before
    for command in ("why", "status"):
        assert "somebody has deleted volume job-output" in cli(lab, user_kubeconfig, command, "job").lower()
    assert "volume job-output" in cli(lab, user_kubeconfig, "status")
    lab.destroy()
    until(lambda: left(lab.root_client, lab.namespace) == [])


def test_of_the_output_of_a_finished_job(lab: Lab, user_kubeconfig: Path, storage: str) -> None:  # noqa: F811
    lab.program(JOB.format(more='wait_for="complete"', storage=storage), head("run: 1s"))
    lab.up()
    job = uids(lab, JOBSET)
    remove_claims(lab)
    end_pods(lab, "job")
    until(lambda: lab.root_client.get(CLAIM, lab.namespace, "job-output") is None)
    for command in ("why", "status"):
        told = cli(lab, user_kubeconfig, command, "job").lower()
        assert "succeeded" in told and "volume job-output is gone with its content" in told
    assert "volume job-output is gone" in cli(lab, user_kubeconfig, "status")
    for _ in range(2):
        shown = lab.preview().out
        assert (
            f"volume {lab.namespace}/job-output: somebody has deleted it, with the output in it; it is created again, empty"
            in shown
        )
        assert "1 to update" in shown
    lab.up()
    assert list(uids(lab, CLAIM)) == ["job-output"] and uids(lab, JOBSET) == job
    assert "somebody" not in lab.preview("--expect-no-changes").out
    remove_claims(lab)
    until(lambda: lab.root_client.get(CLAIM, lab.namespace, "job-output") is None)
    assert "somebody has deleted it, with the output in it" in lab.refresh().out
    lab.up()
    assert list(uids(lab, CLAIM)) == ["job-output"] and uids(lab, JOBSET) == job


DATA = """
digits = trainer.DatasetInitializer(
    "digits", storage_uri="file://digits.csv", image="trainer:1", storage_class={storage!r}
)
job = trainer.TrainJob("job", name="job", runtime=simulated, initializer=trainer.Initializer(dataset=digits))
pulumi.export("phase", job.phase)
"""


def test_of_fetched_data(lab: Lab, storage: str) -> None:  # noqa: F811
    (lab.folder / "digits.csv").write_text("1,2,3")
    lab.program(DATA.format(storage=storage), head("run: 1s"))
    lab.up()
    until(lambda: all(j.get("status", {}).get("terminalState") for j in lab.root_client.list(JOBSET, lab.namespace)[0]))
    lab.refresh()
    lab.up()
    before = uids(lab, JOBSET)
    (fetch,) = set(before) - {"job"}
    lab.program(DATA.format(storage=storage).replace("image=", 'size="20Gi", image='), head("run: 1s"))
    assert "1 to update" in (shown := lab.preview().out) and "replace" not in shown, "a larger volume keeps its data"
    lab.up()
    assert uids(lab, JOBSET) == before
    lab.preview("--expect-no-changes")
    remove_claims(lab)
    for name in before:
        end_pods(lab, name)
    until(lambda: uids(lab, CLAIM) == {} and lab.root_client.list(CLAIM, lab.namespace)[0] == [])
    shown = lab.preview().out
    assert "somebody has deleted it, with the data in it, which is fetched again; it is created again, empty" in shown
    lab.up()
    after = uids(lab, JOBSET)
    assert after["job"] == before["job"] and after[fetch] != before[fetch] and len(uids(lab, CLAIM)) == 1
    lab.preview("--expect-no-changes")


GANG = """
gang = trainer.ClusterTrainingRuntime(
    "gang", ml_policy=trainer.PlainPolicy(num_nodes=1), pod_group_policy=trainer.CoschedulingPolicy(),
    template=trainer.JobSetTemplate(replicated_jobs=[trainer.ReplicatedJob(
        name="node", backoff_limit=0, pod_annotations={sim!r},
        pod_spec={{"restart_policy": "Never", "scheduler_name": "scheduler-plugins-scheduler",
                  "containers": [{{"name": "node", "image": "trainer:1"}}]}},
    )]),
)
pulumi.export("phase", trainer.TrainJob("job", name="job", runtime=gang).phase)
"""
IMPORTS = "import pulumi\nimport pulumi_trainer as trainer\n"


def test_of_a_pod_group(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    lab.program(GANG.format(sim={"sim/outcome": "forever"}), IMPORTS)
    lab.up()
    before, group = until(lambda: pods(lab).get("job"), 60), uids(lab, POD_GROUP)
    lab.root_client.delete(POD_GROUP, lab.namespace, "job")
    shown = lab.preview().out
    assert "somebody has deleted its PodGroup/job, which is created again; the job itself is unchanged" in shown
    assert "1 to update" in shown
    until(lambda: phases(lab, user_kubeconfig) == {"job": "Running"})
    lab.up()
    assert pods(lab)["job"] == before and uids(lab, POD_GROUP).keys() == group.keys() != {}
    lab.preview("--expect-no-changes")
    lab.program(
        GANG.format(sim={"sim/run": "1s"}).replace("runtime=gang", 'runtime=gang, run="2", interrupt="allow"'), IMPORTS
    )
    lab.up()
    until(lambda: phases(lab, user_kubeconfig) == {"job": "Succeeded"})
    lab.refresh()
    lab.root_client.delete(POD_GROUP, lab.namespace, "job")
    assert "somebody" not in lab.preview("--expect-no-changes").out
    assert "Succeeded" in cli(lab, user_kubeconfig, "why", "job")


QUEUED = """
job = trainer.TrainJob(
    "job", name="job", runtime=simulated, queue="{queue}", trainer=trainer.Trainer(resources_per_node={{"cpu": 1}}),
)
pulumi.export("phase", job.phase)
"""


def test_of_the_workload_of_a_running_job(lab: Lab, user_kubeconfig: Path, queue: str) -> None:  # noqa: F811
    """Kueue makes it again and admits the job again: nothing is to be done, and nothing is lost but the time since."""
    lab.program(QUEUED.format(queue=queue), head("outcome: forever"))
    lab.up()
    ran = until(lambda: pods(lab).get("job"))
    (name, before), *_ = uids(lab, WORKLOAD).items()
    lab.root_client.delete(WORKLOAD, lab.namespace, name, propagation="Background")
    assert "somebody" not in lab.preview("--expect-no-changes").out
    until(lambda: (new := uids(lab, WORKLOAD)) and before not in new.values() and pods(lab).get("job"))
    lab.up("--expect-no-changes")
    until(lambda: phases(lab, user_kubeconfig) == {"job": "Running"})
    assert pods(lab)["job"] != ran, "Kueue ends its Pods"
    assert "its pods run" in cli(lab, user_kubeconfig, "why", "job")


def test_of_the_workload_of_a_finished_job(lab: Lab, user_kubeconfig: Path, queue: str) -> None:  # noqa: F811
    lab.program(QUEUED.format(queue=queue), head("run: 1s"))
    lab.up()
    until(lambda: phases(lab, user_kubeconfig) == {"job": "Succeeded"})
    before = uids(lab, JOBSET)
    for name in uids(lab, WORKLOAD):
        lab.root_client.delete(WORKLOAD, lab.namespace, name, propagation="Background")
    lab.preview("--expect-no-changes")
    lab.up("--expect-no-changes")
    assert phases(lab, user_kubeconfig) == {"job": "Succeeded"} and uids(lab, JOBSET) == before
    assert "Succeeded" in cli(lab, user_kubeconfig, "why", "job")


def test_a_stranger_in_the_place_of_a_job_is_not_taken_for_it(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    up(lab, "outcome: forever", "jobset")
    remove(lab, ["jobset"])
    stranger = jobset("jobset", simulate={"outcome": "succeed"})
    lab.root_client.create(JOBSET, {**stranger, "metadata": {"name": "jobset", "namespace": lab.namespace}})
    assert phases(lab, user_kubeconfig) == {"jobset": "Deleted"}
    told = cli(lab, user_kubeconfig, "why", "jobset")
    assert "the JobSet of that name is another one, which is left alone" in told and "Delete the other job" in told
    for ask in (lab.preview, lab.up):
        refused = ask(ok=False).out
        assert "another job has the same name now, which is left alone" in refused and "Traceback" not in refused, (
            refused
        )
    record = lab.root_client.get(CONFIG_MAP, lab.namespace, "jobset")
    assert record is None or "phase" not in record["data"]
    assert lab.root_client.delete(JOBSET, lab.namespace, "jobset")
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "jobset") is None)
    lab.up()
    of_stack(lab, "rerun", "jobset")
    until(lambda: set(pods(lab)) == {"jobset"})


def of_stack(lab: Lab, *arguments: str) -> str:  # noqa: F811
    """What a command says of the jobs of the stack."""
    argv = ["pulumi-trainer", *arguments, "--stack", lab.stack]
    done = subprocess.run(argv, cwd=lab.folder, env=lab.environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("parts", [("record",), ("record", "jobset", "code")])
def test_a_stranger_is_not_the_job_of_the_stack_either(lab: Lab, parts: tuple[str, ...]) -> None:  # noqa: F811
    """Once the record is gone: nothing but the state knows whose the job was."""
    up(lab, "outcome: forever", *parts)
    until(lambda: set(pods(lab)) == set(parts))
    remove(lab, ["record"])
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "record") is None)
    stranger = jobset("record", simulate={"outcome": "forever"})
    lab.root_client.create(JOBSET, {**stranger, "metadata": {"name": "record", "namespace": lab.namespace}})
    until(lambda: set(pods(lab)) == set(parts))
    found = {each["name"]: each["phase"] for each in json.loads(of_stack(lab, "status", "-o", "json"))}
    assert found == {**dict.fromkeys(parts, "Running"), "record": "Deleted"}
    assert "the JobSet of that name is another one, which is left alone" in of_stack(lab, "why", "record")
    for command in ("logs", "events"):
        assert "another job has this name now" in of_stack(lab, command, "record")
    assert lab.root_client.delete(JOBSET, lab.namespace, "record")


def test_a_job_without_its_owner_references_goes_with_its_stack(lab: Lab) -> None:  # noqa: F811
    up(lab, "outcome: forever", "jobset")
    until(lambda: pods(lab))
    lab.root_client.patch(JOBSET, lab.namespace, "jobset", {"metadata": {"ownerReferences": None}})
    lab.destroy()
    until(lambda: left(lab.root_client, lab.namespace) == [])


def test_a_record_that_cannot_be_read_costs_itself_alone(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    up(lab, "outcome: forever", "jobset")
    labels = {"pulumi-trainer.dev/record": "true"}
    metadata = {"name": "stranger", "namespace": lab.namespace, "labels": labels}
    data = {"applied": "[" * 100_000, "progress": "[" * 100_000, "phase": "Succeeded", "finished": "nan"}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    lab.root_client.create(CONFIG_MAP, document)
    lab.root_client.patch(CONFIG_MAP, lab.namespace, "jobset", {"data": {"applied": "[" * 100_000}})
    assert "Traceback" not in lab.preview().out + cli(lab, user_kubeconfig, "status")
    lab.refresh()
    lab.destroy()
    assert lab.root_client.get(JOBSET, lab.namespace, "jobset") is None
