"""All that is wrong with a program is in one plan, at the argument that is wrong, whatever else ends the program."""

from __future__ import annotations

import re

import pytest
import yaml

from .conftest import Project, Result

HEAD = """
import pulumi
import pulumi_trainer as trainer

command = trainer.CustomTrainer(command=["true"])
"""


def refused(project: Project, program: str, *args: str) -> Result:
    project.program(program, head=HEAD)
    return project.preview(*args, ok=False)


def told(result: Result) -> list[str]:
    """The problems, each a line."""
    found = re.search(
        r"^ +error: (\d+) problems? found. These resources were not created or changed:\n((?: {6}.*\n)+)",
        result.out,
        re.M,
    )
    assert found, result
    lines = [line.strip() for line in found[2].splitlines()]
    assert len(lines) == int(found[1])
    return lines


WRONG_NAMES = """
trainer.TrainJob("four", runtime="torch-distributd", follow="mayor", num_nodes="two", envv=1)
trainer.TrainJob("nested", runtime="torch-distributd", follow="mayor", run=2, interrupt="alow",
                 trainer=trainer.CustomTrainer(func=lambda: 0, num_nodes="two", envv=1), suspend="yes")
trainer.TrainJob("e", trainer=...)
trainer.TrainJob("n", "torch-distributed")
trainer.TrainJob("c", runtime="torch-distributed", trainer=trainer.CustomTrainer(print), opts=5, checkpoint=True)
trainer.ClusterTrainingRuntime("r", ml_polcy=trainer.PlainPolicy(), templat=...)
trainer.ClusterTrainingRuntime("s", template=...)
trainer.DatasetInitializer("d", storage_url="hf://a/b")
trainer.RuntimeChannel("ch", relase="torch-distributed@2.3.0")
trainer.CoschedulingPodGroup("g", min_memeber=2)
trainer.LocalQueue("q", clusterqueue="a")
trainer.VolcanoPodGroup("h", min_member=2, target=5)
trainer.GpuQueues("u", teams={"a": 1}, resource=[], name={})
"""
NAMED = [
    'TrainJob("four") (__main__.py:7).num_nodes: unknown field. Hint: use trainer=CustomTrainer(num_nodes=...)',
    'TrainJob("four") (__main__.py:7).envv: unknown field. Hint: did you mean trainer=CustomTrainer(env=...)?',
    "TrainJob(\"four\") (__main__.py:7).follow: must be one of pin, patch, minor, any, not 'mayor'",
    "TrainJob(\"four\") (__main__.py:7).runtime: 'torch-distributd' is not a runtime of the catalogue. "
    "Hint: did you mean torch-d",
    'TrainJob("nested") (__main__.py:8).run: must be a string, not 2. Hint: give run="2"',
    "TrainJob(\"nested\") (__main__.py:8).interrupt: must be one of refuse, allow, checkpoint, not 'alow'",
    "TrainJob(\"nested\") (__main__.py:8).follow: must be one of pin, patch, minor, any, not 'mayor'",
    'TrainJob("nested") (__main__.py:8).trainer.envv: unknown field. Hint: did you mean env?',
    "TrainJob(\"nested\") (__main__.py:8).runtime: 'torch-distributd' is not a runtime of the catalogue. "
    "Hint: did you mean torch-d",
    "TrainJob(\"nested\") (__main__.py:8).trainer.num_nodes: must be a whole number, not 'two'",
    "TrainJob(\"nested\") (__main__.py:8).suspend: must be true or false, not 'yes'",
    'TrainJob("nested") (__main__.py:8).trainer.func: ',
    'TrainJob("e") (__main__.py:10).runtime: is required. Hint: name one that `pulumi-trainer runtime list` shows, such as',
    'TrainJob("e") (__main__.py:10).trainer: must be CustomTrainer, Trainer or BuiltinTrainer, not ellipsis',
    'TrainJob("n") (__main__.py:11).runtime: must be passed by name. Hint: write runtime=...',
    'TrainJob("c") (__main__.py:12).opts: must be pulumi.ResourceOptions(...), not int',
    'TrainJob("c") (__main__.py:12).checkpoint: must be CheckpointPolicy, not True. Hint: give CheckpointPolicy(...)',
    'TrainJob("c") (__main__.py:12).trainer.func: must be passed by name. Hint: write func=...',
    'ClusterTrainingRuntime("r") (__main__.py:13).ml_polcy: unknown field. Hint: did you mean ml_policy?',
    'ClusterTrainingRuntime("r") (__main__.py:13).templat: unknown field. Hint: did you mean template?',
    'ClusterTrainingRuntime("s") (__main__.py:14).template: must be a JobSetTemplate or a mapping, not ellipsis',
    'DatasetInitializer("d") (__main__.py:15).storage_url: unknown field. Hint: did you mean storage_uri?',
    'DatasetInitializer("d") (__main__.py:15).storage_uri: is required',
    'RuntimeChannel("ch") (__main__.py:16).relase: unknown field. Hint: did you mean release?',
    'RuntimeChannel("ch") (__main__.py:16).release: is required',
    'CoschedulingPodGroup("g") (__main__.py:17).min_memeber: unknown field. Hint: did you mean min_member?',
    'CoschedulingPodGroup("g") (__main__.py:17).min_member: is required',
    'LocalQueue("q") (__main__.py:18).clusterqueue: unknown field. Hint: did you mean cluster_queue?',
    'LocalQueue("q") (__main__.py:18).cluster_queue: is required',
    'VolcanoPodGroup("h") (__main__.py:19).target: must be Local(...) or Kubernetes(...), not 5',
    'GpuQueues("u") (__main__.py:20).resource: must be text, not []',
    'GpuQueues("u") (__main__.py:20).name: must be text, not {}',
]


def test_a_call_that_does_not_fit_is_a_problem_beside_all_others(project: Project) -> None:
    result = refused(project, WRONG_NAMES)
    lines = told(result)
    for expected in NAMED:
        assert [line for line in lines if line.startswith(expected)], f"{expected} is not in\n{result}"
    per_argument = [line.split(": ")[0] for line in lines]
    twice = {where for where in per_argument if per_argument.count(where) > 1}
    assert not twice, result
    assert "Traceback" not in result.out


MISTAKEN = """
more = trainer.CustomTrainer(command=["true"], gpus=8, nproc_per_node=2, environment={})
model = trainer.HuggingFaceModelInitializer(storage_uri="hf://a/b")
token = trainer.CustomTrainer(command=["true"], env={"HF_TOKEN": "hf_0123456789abcdefghijklmno"})
trainer.TrainJob("a", runtime="plain", trainer=more, nodes=2, namespace="team")
trainer.TrainJob("b", runtime="plain", trainer={"func": 1}, initializer=model)
trainer.TrainJob("c", trainer=command)
trainer.DatasetInitializer("e", storage_uri="data/train")
trainer.TrainJob("f", runtime="plain", trainer=token)
trainer.TrainJob("g", runtime="plain", trainer=command, target=trainer.Kubernetes(namespace="Team_A"))
"""
HINTED = [
    'TrainJob("a") (__main__.py:10).trainer.gpus: unknown field. Hint: use resources_per_node={"gpu": ...}',
    'TrainJob("a") (__main__.py:10).trainer.nproc_per_node: unknown field. Hint: use num_proc_per_node=...',
    'TrainJob("a") (__main__.py:10).trainer.environment: unknown field. Hint: use env=...',
    'TrainJob("a") (__main__.py:10).nodes: unknown field. Hint: use trainer=CustomTrainer(num_nodes=...)',
    'TrainJob("a") (__main__.py:10).namespace: unknown field. Hint: use target=Kubernetes(namespace=...)',
    "TrainJob(\"b\") (__main__.py:11).trainer: must be CustomTrainer, Trainer or BuiltinTrainer, not {'func': 1}. "
    "Hint: give CustomTrainer(func=...)",
    'TrainJob("b") (__main__.py:11).initializer: must be Initializer, not HuggingFaceModelInitializer. '
    "Hint: give Initializer(model=...)",
    'TrainJob("c") (__main__.py:12).runtime: is required. Hint: name one that `pulumi-trainer runtime list` shows, such as '
    'runtime="torch-distributed"',
    "DatasetInitializer(\"e\") (__main__.py:13).storage_uri: 'data/train' is not a URI. Hint: begin a path with file://; ",
    'TrainJob("f") (__main__.py:14).trainer.env["HF_TOKEN"]: is a plain-text secret; it would be readable in plan and state. '
    "Hint: pass a secret in env: pulumi.Config().require_secret(...), or valueFrom.secretKeyRef",
    'TrainJob("g") (__main__.py:15).target.namespace: a lowercase RFC 1123 label must consist of',
]


def test_what_others_call_an_argument_has_a_hint(project: Project) -> None:
    lines = told(refused(project, MISTAKEN))
    for expected in HINTED:
        assert [line for line in lines if line.startswith(expected)], f"{expected} is not in\n{lines}"
    assert not [line for line in lines if line.endswith("PIP_INDEX_URL there")]
    (bare,) = told(refused(project, 'trainer.TrainJob("d", runtime="plain")'))
    assert bare.endswith("Hint: give the TrainJob a trainer=, or the container of its runtime a command"), bare


RAISES = {
    "ValueError: of the program": 'raise ValueError("of the program")',
    "error: __main__.py:7: module 'pulumi_trainer' has no attribute 'TrainJbo'. Hint: did you mean TrainJob?":
        'trainer.TrainJbo("x")',
    "error: __main__.py:7: module 'pulumi_trainer' has no attribute 'TrainJbs'. Hint: did you mean TrainJob?":
        'from pulumi_trainer import TrainJbs',
    "ZeroDivisionError: division by zero": 'pulumi.Output.from_input(0).apply(lambda n: 1 / n)',
    'TrainJob (__main__.py:7): needs a resource name as its first argument. Hint: give TrainJob("NAME", ...)':
        'trainer.TrainJob(runtime="plain")',
    'Topology (__main__.py:7).required: unknown field. Hint: use TrainJob(topology=trainer.Required("LABEL"))':
        'trainer.Topology(required="example.com/rack")',
    'TrainJob("bad") (__main__.py:7): another TrainJob at __main__.py:6 has the same name. Hint: give each a name of its own':
        'trainer.TrainJob("bad", runtime="torch-distributed", trainer=command)',
}  # fmt: skip


@pytest.mark.parametrize("raised", RAISES)
def test_what_ends_the_program_is_told_beside_its_problems(project: Project, raised: str) -> None:
    result = refused(
        project, f'trainer.TrainJob("bad", runtime="torch-distributd", trainer=command)\n{RAISES[raised]}\n'
    )
    assert raised in result.out, result
    (line,) = told(result)
    assert line.startswith(
        "TrainJob(\"bad\") (__main__.py:6).runtime: 'torch-distributd' is not a runtime of the catalogue"
    )


USES = """
bad = trainer.TrainJob("bad", runtime="torch-distributd", trainer=command)
bad.phase.apply(lambda phase: phase.lower())
pulumi.export("phase", bad.phase)
after = trainer.CustomTrainer(command=["true"], env={"BEFORE": bad.phase})
trainer.TrainJob("after", runtime="torch-distributed", trainer=after)
"""


def test_no_function_of_the_program_gets_the_outputs_of_a_refused_job(project: Project) -> None:
    result = refused(project, USES)
    assert len(told(result)) == 1 and "Traceback" not in result.out, result


def test_no_job_is_made_with_an_output_of_a_refused_job(project: Project) -> None:
    project.program(USES.replace("bad.phase.apply(lambda phase: phase.lower())", ""), head=HEAD)
    result = project.up(ok=False)
    assert told(result)[1].endswith('.trainer.env[0].value: comes from TrainJob("bad"), which was rejected')
    assert not project.target.jobs.list_all() and not project.resources()


LATE = """
import asyncio

async def main():
    await asyncio.sleep(2)
    trainer.TrainJob("late", runtime="torch-distributed", trainer=command, suspend=True)
    trainer.TrainJob("wrong", runtime="torch-distributed", trainer=command, labels={"a b": "c"})

getattr(pulumi, "run", lambda late: pulumi.Output.from_input(late()))(main)  # `run` is in newer releases
"""
FIRST = """
trainer.TrainJob("first", runtime="torch-distributed", trainer=command, suspend=True)
"""


@pytest.mark.parametrize("first", [pytest.param(FIRST, marks=pytest.mark.core), ""], ids=["after others", "alone"])
def test_problems_of_jobs_that_are_constructed_later_are_reported(project: Project, first: str) -> None:
    project.program(first + LATE, head=HEAD)
    (line,) = told(project.up(ok=False))
    assert line.startswith('TrainJob("wrong") (__main__.py:') and "Hint: correct the label 'a b'" in line
    made = {job.name.partition("-")[0] for job in project.target.jobs.list_all()}
    assert made == ({"first", "late"} if first else {"late"})


NAMES = """
trainer.TrainJob("a", name="one", runtime="torch-distributed", trainer=command)
trainer.TrainJob("b", name="one", runtime="torch-distributed", trainer=command)
trainer.TrainJob("c", name="two", runtime="torch-distributed", trainer=command, target=trainer.Local())
trainer.TrainJob("d", name="two", runtime="torch-distributed", trainer=command, target=trainer.Local(root="other"))
group = pulumi.ComponentResource("a:b:Group", "group")
trainer.TrainJob("e", runtime="torch-distributed", trainer=command)
trainer.TrainJob("e", runtime="torch-distributed", trainer=command, opts=pulumi.ResourceOptions(parent=group))
"""


def test_two_jobs_of_one_name_are_problems(project: Project) -> None:
    lines, hint = told(refused(project, NAMES)), "give each job its own name"
    assert lines[:2] == [
        f'TrainJob("a") (__main__.py:7).name: TrainJob("b") (__main__.py:8) has the name \'one\' too. Hint: {hint}',
        f'TrainJob("b") (__main__.py:8).name: TrainJob("a") (__main__.py:7) has the name \'one\' too. Hint: {hint}',
    ]
    assert [re.sub(r"'e-\w+'", "it", line) for line in lines[2:]] == [
        f'TrainJob("e") (__main__.py:12).name: TrainJob("e") (__main__.py:13) has the name it too. Hint: {hint}',
        f'TrainJob("e") (__main__.py:13).name: TrainJob("e") (__main__.py:12) has the name it too. Hint: {hint}',
    ]


OF_ONE_NAME = """
cluster = trainer.Kubernetes(kubeconfig="/nonexistent", mode="trainer")
same = trainer.Kubernetes(kubeconfig=pulumi.Output.from_input("/nonexistent"), mode="trainer")
group = pulumi.ComponentResource("a:b:Group", "group")
below = pulumi.ResourceOptions(parent=group)
template = trainer.JobSetTemplate(replicated_jobs=[trainer.ReplicatedJob(name="node", pod_spec={
    "containers": [{"name": "node", "image": "python:3.12"}]})])
for name in ("r1", "r2"):
    trainer.ClusterTrainingRuntime(name, name="runtime", template=template, target=cluster)
trainer.TrainingRuntime("r3", name="runtime", template=template, target=cluster)
trainer.CoschedulingPodGroup("g1", name="group", min_member=2)
trainer.CoschedulingPodGroup("g2", name="group", min_member=2, namespace=pulumi.Output.from_input("default"))
trainer.CoschedulingPodGroup("g3", name="group", min_member=2, namespace="other")
trainer.VolcanoPodGroup("g4", name="group", min_member=2)
trainer.RuntimeChannel("stable", release="torch-distributed@2.3.0")
trainer.RuntimeChannel("stable", release="torch-distributed@2.3.0", opts=below)
trainer.DatasetInitializer("digits", storage_uri="hf://a/b")
trainer.ModelInitializer("digits", storage_uri="hf://a/b")
trainer.ClusterQueue("q1", name="queue", target=cluster)
trainer.ClusterQueue("q2", name="queue", target=same)
trainer.LocalQueue("q3", name="queue", cluster_queue="queue", target=cluster)
"""


def test_two_objects_of_one_name_are_problems(project: Project) -> None:
    lines = told(refused(project, OF_ONE_NAME))
    assert [line for line in lines if "makes" in line] == [
        'ClusterTrainingRuntime("r2") (__main__.py:14).name: ClusterTrainingRuntime("r1") (__main__.py:14) makes '
        "ClusterTrainingRuntime 'runtime' too. Hint: give each ClusterTrainingRuntime a name of its own",
        'CoschedulingPodGroup("g2") (__main__.py:17).name: CoschedulingPodGroup("g1") (__main__.py:16) makes '
        "CoschedulingPodGroup 'group' too. Hint: give each CoschedulingPodGroup a name of its own",
        'RuntimeChannel("stable") (__main__.py:21).name: RuntimeChannel("stable") (__main__.py:20) makes '
        "RuntimeChannel 'stable' too. Hint: give each RuntimeChannel a name of its own",
        'ClusterQueue("q2") (__main__.py:25).name: ClusterQueue("q1") (__main__.py:24) makes '
        "ClusterQueue 'queue' too. Hint: give each ClusterQueue a name of its own",
    ], lines
    volumes = [line for line in lines if "Initializer(" in line]
    assert [re.sub(r"'digits-\w+'", "it", line.split(". Hint")[0]) for line in volumes] == [
        'DatasetInitializer("digits") (__main__.py:22).name: ModelInitializer("digits") (__main__.py:23) has the name it too',
        'ModelInitializer("digits") (__main__.py:23).name: DatasetInitializer("digits") (__main__.py:22) has the name it too',
    ], lines
    assert len(lines) == 6, lines


ODD_VALUES = """
import datetime, inspect, itertools

class Odd: pass

again = []
again.append(again)
unfit = (0, -1, 1.5, "", "a\\n", b"x", [None], {None: 1}, {"a": {"b": Odd()}}, [[]], {1, 2}, Odd(), Odd, print,
         datetime.date(2020, 1, 1), float("nan"), "\\ud800", ..., again, trainer.Local(), pulumi.Output.from_input([None]),
         [trainer.ResourceGroup(flavors=[trainer.FlavorQuotas(flavor=5, resources={1: None, "x": []}), 1])])
counter = itertools.count()
for kind, right in KINDS.items():
    made = getattr(trainer, kind)
    for argument in inspect.signature(made).parameters:
        if argument not in ("resource_name", "opts"):
            for value in unfit:
                made(f"n{next(counter)}", **{**right, argument: value})
    made(f"n{next(counter)}", unknown_argument=1, **right)
"""
GROUPS = {
    "queues": {"ClusterQueue": {}, "LocalQueue": {"cluster_queue": "q"}, "Cohort": {}, "WorkloadPriorityClass": {"value": 1}},
    "flavors": {"Topology": {"levels": ["a/b"]}, "ResourceFlavor": {}, "AdmissionCheck": {}, "MultiKueueConfig": {},
                "MultiKueueCluster": {}, "ProvisioningRequestConfig": {"provisioning_class_name": "a"}},
    "teams": {"GpuQueues": {"teams": {"a": 1}}},
    "groups": {"CoschedulingPodGroup": {"min_member": 2}, "VolcanoPodGroup": {"min_member": 2},
               "RuntimeChannel": {"release": "torch-distributed@2.3.0"}},
}  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_no_odd_value_ends_in_a_traceback(project: Project, group: str) -> None:
    result = refused(project, f"KINDS = {GROUPS[group]!r}\n{ODD_VALUES}")
    assert "Traceback" not in result.out, result
    lines = told(result)
    names = "|".join(GROUPS[group])
    for line in lines:
        assert re.match(rf'({names})\("n\d+"\) \(__main__.py:\d+\)(\.\w|:)', line), line
    assert sum("unknown_argument: unknown field" in line for line in lines) == len(GROUPS[group])
    assert len(lines) > 20 * len(GROUPS[group])


def test_odd_values_of_a_dataset(project: Project) -> None:
    result = refused(
        project,
        """
        again = []
        again.append(again)
        trainer.DatasetInitializer("d", storage_uri="hf://a/b", retain=again, writable="yes", image=again)
        output = trainer.OutputVolume(retain="yes")
        trainer.TrainJob("j", runtime="torch-distributed", trainer=command, output=output)
        """,
    )
    assert [re.sub(r" \(.*?\)", "", line) for line in told(result)] == [
        "DatasetInitializer(\"d\").writable: must be True or False, not 'yes'",
        'DatasetInitializer("d").retain: must be True or False, not [[...]]',
        'DatasetInitializer("d").image: must be text, not [[...]]',
        "TrainJob(\"j\").output.retain: must be True or False, not 'yes'",
    ]


EXITS = """
import sys
trainer.TrainJob("good", runtime="torch-distributed", trainer=command)
"""


def test_a_program_that_ends_itself_deletes_nothing(project: Project) -> None:
    project.program(EXITS, head=HEAD)
    project.up()
    before = project.resources()
    for end in ("sys.exit()", "sys.exit(0)", "raise SystemExit"):
        project.program(EXITS + end, head=HEAD)
        for result in (project.preview(ok=False), project.up(ok=False)):
            assert "The program called sys.exit() before its resources were registered" in result.out, result
            assert "delete" not in result.out.partition("Diagnostics:")[0].replace("would delete", ""), result
        assert project.resources() == before
        assert project.target.jobs.list_all()


def test_a_held_job_never_runs(project: Project) -> None:
    waits = "".join(
        f'trainer.TrainJob("{wait}", suspend={held}, wait_for="{wait}", runtime="torch-distributed", trainer=command)\n'
        for wait, held in (
            ("created", "True"), ("admitted", "True"), ("running", "pulumi.Output.from_input(True)"), ("complete", "True"),
        )
    )  # fmt: skip
    lines = told(refused(project, waits))
    assert [re.sub(r" \(.*?\)", "", line) for line in lines] == [
        f'TrainJob("{wait}").suspend: keeps the job suspended, so wait_for={wait!r} would never be reached. '
        "Hint: leave out wait_for, or suspend"
        for wait in ("admitted", "running", "complete")
    ]


JOBS = """
for name in ("a", "b", "c"):
    trainer.TrainJob(name, runtime="torch-distributed", trainer=command)
trainer.GpuQueues("gpus", teams={"a": 1}, target=trainer.Kubernetes())
"""


def test_the_configuration_of_the_stack_has_its_names_and_values(project: Project) -> None:
    project.config("trainer:targt", "kubernetes")
    project.config("trainer:mode", "trainr")
    project.config("trainer:version", "2.4.0")
    project.config("trainer:kubeconfig", "apiVersion: v1\nclusters: []\n")
    project.config("lab:targt", "of the project itself")
    assert told(refused(project, JOBS)) == [
        "trainer:targt: unknown key of the configuration. Hint: did you mean target? Remove it with `pulumi"
        " config rm trainer:targt`",
        "trainer:mode: must be one of jobset, trainer, not 'trainr'. Hint: did you mean trainer?",
        "trainer:version: must be one of 2.3.0, 8c0f5059b, not '2.4.0'. Hint: did you mean 2.3.0?",
        "trainer:kubeconfig: must be the path of a kubeconfig file, not its content. Hint: give a path, or target=Kubernetes"
        '(content=pulumi.Config().require_secret("kubeconfig"))',
    ]
    for key in ("targt", "mode", "version", "kubeconfig"):
        assert project.run("config", "rm", f"trainer:{key}").code == 0
    for key, value in (
        ("target", "local"),
        ("mode", "trainer"),
        ("namespace", "team"),
        ("warnings", '{"PT112": "ignore"}'),
    ):
        project.config(f"trainer:{key}", value)
    project.program(JOBS.replace("trainer.GpuQueues", "# "), head=HEAD)
    project.preview()


def test_a_project_that_is_called_trainer_has_keys_of_its_own(project: Project) -> None:
    (project.folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "trainer", "runtime": "python", "main": "."}))
    project.stack = "own"
    assert project.run("stack", "init").code == 0
    project.config("epochs", "3")
    project.program(JOBS.replace("trainer.GpuQueues", "# "), head=HEAD)
    project.preview()
    project.config("target", "kubernets")
    assert told(refused(project, JOBS)) == [
        "trainer:target: must be one of local, kubernetes, not 'kubernets'. Hint: did you mean kubernetes?"
    ]


@pytest.mark.core
def test_problems_come_in_the_order_of_the_program(project: Project) -> None:
    jobs = [f'trainer.TrainJob("j{at}", runtime="torch-distributed", trainer=work)' for at in range(12)]
    queue = 'trainer.LocalQueue("q", clusterqueue="a")'
    work = "work = trainer.CustomTrainer(command=['torchrun', 'train.py'])"
    lines = told(refused(project, "\n".join([work, *jobs[:6], queue, *jobs[6:]])))
    names = [re.findall(r'"(.*?)"', line)[0] for line in lines]
    assert list(dict.fromkeys(names)) == [*(f"j{at}" for at in range(6)), "q", *(f"j{at}" for at in range(6, 12))]


RESOURCES = """
def work():
    pass

def asks(name, resources):
    trainer.TrainJob(name, runtime="torch-distributed", trainer=trainer.CustomTrainer(func=work, resources_per_node=resources),
                     target=trainer.Kubernetes(kubeconfig="/nonexistent"))

asks("a", {"gpus": 8})
asks("b", {"mem": "1Gi"})
asks("c", {"limits": {"gpus": 8}})
asks("d", {"cpu": 1, "memory": "1Gi", "storage": "1Gi", "gpu": 1, "example.com/fpga": 1, "hugepages-2Mi": "4Mi"})
trainer.TrainJob("e", runtime="torch-distributed", trainer=command, num_nodes=0,
                 initializer=pulumi.Output.from_input({"dataset": "file://x"}))
"""


def test_names_of_resources_and_an_initializer_that_is_none(project: Project) -> None:
    result = refused(project, RESOURCES)
    a, b, *rest = told(result)
    why = "must be a standard resource type or fully qualified"
    assert re.search(rf'"a".*\.resources_per_node\["gpus"\]: {why}. Hint: did you mean gpu\?', a), a
    assert re.search(rf'"b".*\.resources_per_node\["mem"\]: {why}. Hint: did you mean memory\?', b), b
    assert any(re.search(rf'"c".*limits\[gpus\]: Invalid value: "gpus": {why}', line) for line in rest), rest
    assert not any('"d"' in line for line in rest), rest
    assert any('"e"' in line and "initializer: must be Initializer" in line for line in rest), rest
    assert any('"e"' in line and "num_nodes" in line for line in rest), rest
    assert "Traceback" not in result.out, result


PLACES = """
import pathlib
import pulumi
import pulumi_trainer as trainer

given = [
    {"root": pulumi.Output.from_input("/tmp/z")}, {"root": ["x"]}, {"root": ""}, {"python": pulumi.Output.from_input("p")},
    {"python": 3}, {"root": "a\\0b"}, {"root": pathlib.Path("here")},
]
for number, each in enumerate(given):
    trainer.TrainJob(
        f"x{number}", runtime="torch-distributed", trainer=trainer.Trainer(command=["true"]), target=trainer.Local(**each),
    )
trainer.DatasetInitializer("data", storage_uri="file:///tmp", target=trainer.Local(root=5))
"""


def test_a_place_on_this_machine_that_is_no_path_is_a_problem_of_the_plan(project: Project) -> None:
    project.program(PLACES, head="")
    out = project.preview(ok=False).out
    assert "Traceback" not in out and "x6" not in out.partition("Diagnostics")[2], out
    for name, said in (
        ("x0", "root: must be text or a path, not Output. Hint: "),
        ("x1", "root: must be text or a path, not ['x']"),
        ("x2", "root: is not a path: ''"),
        ("x3", "python: must be text or a path, not Output. Hint: "),
        ("x4", "python: must be text or a path, not 3"),
        ("x5", "root: is not a path: "),
    ):
        assert len(re.findall(rf'TrainJob\("{name}"\) .*\.target\.{re.escape(said)}', out)) == 1, out
    assert len(re.findall(r'DatasetInitializer\("data"\) .*\.target\.root: must be text or a path, not 5', out)) == 1, (
        out
    )


SHADOWING = """
import builtins
import zlib
from io import open
from math import *

max = builtins.max

def hash(text):
    return zlib.crc32(text.encode())

def split(rows):
    print([row for row in rows if hash(row) % 2], pow(3, 2))

def made():
    def len(rows):
        return 1

    def closes(rows):
        print(len(rows))

    return closes

def own(rows):
    global kept
    kept = max(rows)

    def inner():
        return kept, open("rows.txt"), __name__

    print(inner())

def where(rows):
    print(__file__)

kept_before = 0

def lacks(rows):
    global kept_before

    def inner():
        return kept_before

    kept_before = inner() or rows

closes = made()
for func in (split, closes, own, lacks, where):
    trainer.TrainJob(func.__name__, runtime="torch-distributed",
                     trainer=trainer.CustomTrainer(func=func, func_args={"rows": ["a"]}))
"""


def test_a_name_of_the_program_that_is_also_a_builtin_is_not_lost(project: Project) -> None:
    found = told(refused(project, SHADOWING))
    expected = [
        ('TrainJob("split")', "split uses hash, which is defined outside of it and would be lost"),
        ('TrainJob("split")', "split uses pow, which is defined outside of it and would be lost"),
        ('TrainJob("closes")', "closes closes over len, which would be lost"),
        ('TrainJob("lacks")', "lacks uses kept_before, which is defined outside of it and would be lost"),
        ('TrainJob("where")', "where uses __file__, which has another value in the job"),
    ]
    for job, why in expected:
        assert any(line.startswith(job) and why in line for line in found), (job, why, found)
    lost = [line for line in found if "would be lost" in line]
    assert not any("own uses" in line or "max" in line or "open" in line for line in lost), found
