"""The typed API through the real engine: policies, patches, a data cache and a builtin trainer in one preview."""

from __future__ import annotations

from .conftest import Project

HEAD = """
import pulumi
import pulumi_trainer as trainer

def step(name, ancestor=None, **spec):
    return trainer.ReplicatedJob(name=name, ancestor=ancestor, pod_spec={"containers": [{"name": "node", "image": "x"}], **spec})

mpi = trainer.ClusterTrainingRuntime(
    "mpi",
    ml_policy=trainer.MPIPolicy(run_launcher_as_node=True, num_proc_per_node=PROCESSES),
    pod_group_policy=trainer.VolcanoPolicy(network_topology=trainer.VolcanoNetworkTopology(mode="soft")),
    template=trainer.JobSetTemplate(replicated_jobs=[step("node"), step("launcher", "trainer")]),
)
tuned = trainer.ClusterTrainingRuntime(
    "torchtune-llama3.2-1b",
    ml_policy=trainer.TorchPolicy(),
    labels={"trainer.kubeflow.org/framework": "torchtune"},
    template=trainer.JobSetTemplate(replicated_jobs=[step("node")]),
)

def work():
    print("work")
"""

JOBS = """
gate = trainer.RuntimePatch(
    manager="acme.io/platform",
    jobs=[trainer.JobPatch(name="node", pod=trainer.PodPatch(node_selector={"zone": ZONE}))],
)
trainer.TrainJob("many", runtime=mpi, trainer=trainer.CustomTrainer(func=work, num_nodes=3), runtime_patches=[gate])
trainer.TrainJob("tune", runtime=tuned, trainer=trainer.BuiltinTrainer(config=trainer.TorchTuneConfig(
    epochs=EPOCHS, peft_config=trainer.LoraConfig(lora_rank=8), resources_per_node={"gpu": 1},
)))
"""


def program(project: Project, **values: str) -> None:
    names = {"PROCESSES": "2", "ZONE": '"a"', "EPOCHS": "pulumi.Output.from_input(2)", **values}
    text = HEAD + JOBS
    for name, value in names.items():
        text = text.replace(name, value)
    project.program(text, head="")
    project.config("trainer:target", "kubernetes")


def test_a_typed_program_is_a_plan(project: Project) -> None:
    program(project)
    out = project.preview("--diff").out
    for shown in ("--hostfile", "/etc/mpi/hostfile", "slots=2", "PodGroup", "lora_finetune_single_device", "epochs=2"):
        assert shown in out, f"{shown} is not in\n{out}"
    assert out.count('mountPath: "/etc/pulumi-trainer/code"') == 2


def test_what_is_wrong_is_told_where_it_stands_in_the_program(project: Project) -> None:
    program(project, PROCESSES="0", ZONE="1", EPOCHS="0")
    out = project.preview(ok=False).out
    for told in (
        "ml_policy.num_proc_per_node: must be greater than or equal to 1, not 0",
        "trainer.config.epochs: must be a whole number of at least 1, not 0",
        'TrainJob("many")',
    ):
        assert told in out, f"{told} is not in\n{out}"
    program(project, ZONE="1")
    assert "runtime_patches[0].jobs[0].pod.node_selector.zone: must be a string, not 1" in project.preview(ok=False).out
