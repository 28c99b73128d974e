"""The typed API through the real engine: policies, patches, a data cache and a builtin trainer in one preview."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pulumi_trainer as trainer
import pytest

from .conftest import Project

ROOT = Path(__file__).parents[2]
RIGHT = Path(__file__).with_name("typed_program.py")

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


@pytest.mark.core
def test_a_typed_program_is_a_plan(project: Project) -> None:
    program(project)
    out = project.preview("--diff").out
    for shown in ("--hostfile", "/etc/mpi/hostfile", "slots=2", "PodGroup", "lora_finetune_single_device", "epochs=2"):
        assert shown in out, f"{shown} is not in\n{out}"
    assert out.count('mountPath: "/etc/pulumi-trainer/code"') == 2


@pytest.mark.core
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


WRONG = {
    'trainer.TrainJob("job", runtime="torch-distributed", wait_fro="running")': "wait_fro",
    'trainer.TrainJbo("job", runtime="torch-distributed")': "TrainJbo",
    'trainer.ClusterTrainingRuntime("r", ml_polcy=None)': "ml_polcy",
    'trainer.TrainingRuntime("r", relase="2.3.0")': "relase",
    'trainer.RuntimeChannel("c", release="a@1.0.0", catalogue=None)': "catalogue",
    'trainer.DatasetInitializer("d", storage_uri="hf://a/b", acess_token=None)': "acess_token",
    'trainer.ModelInitializer("m", uri="hf://a/b")': "uri",
    'trainer.CoschedulingPodGroup("g", min_member=2, min_resource={})': "min_resource",
    'trainer.VolcanoPodGroup("g", min_membr=2)': "min_membr",
    'trainer.ClusterQueue("q", cohort_name="all")': "cohort_name",
    'trainer.LocalQueue("q", clusterQueue="q")': "clusterQueue",
    'trainer.Cohort("c", fair_share=None)': "fair_share",
    'trainer.ResourceFlavor("f", node_label={})': "node_label",
    'trainer.Topology("t", level=["rack"])': "level",
    'trainer.WorkloadPriorityClass("p", valu=1)': "valu",
    'trainer.AdmissionCheck("a", controller="x")': "controller",
    'trainer.MultiKueueCluster("m", kubeconfg="x")': "kubeconfg",
    'trainer.MultiKueueConfig("m", cluster=["x"])': "cluster",
    'trainer.ProvisioningRequestConfig("p", class_name="x")': "class_name",
    'trainer.GpuQueues("g", teams={"a": 1}, priority=[])': "priority",
    "trainer.CustomTrainer(fnc=print)": "fnc",
    'trainer.Required("rack", slice_levl="a")': "slice_levl",
    'trainer.Kubernetes(contxt="a")': "contxt",
    'trainer.TrainJob("job", "torch-distributed")': "TrainJob",
    'trainer.TrainJob("job", trainer=None)': "runtime",
    'trainer.TrainJob("job", runtime="x", wait_for="finished")': "finished",
    'timeouts: trainer.Timeouts = {"compleet": 5}': "compleet",
    'trainer.TrainJob("job", runtime="x").progress.apply(lambda p: p["last_updated_time"])': "last_updated_time",
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[int, str]]:
    """(tool, file) -> line -> what mypy and pyright say of two programs in a folder of a user's."""
    folder = tmp_path_factory.mktemp("program")
    shutil.copy(RIGHT, folder / "right.py")
    (folder / "wrong.py").write_text("import pulumi_trainer as trainer\n\n" + "\n".join(WRONG) + "\n")
    bin_ = Path(sys.executable).parent
    cache = ("--cache-dir", str(ROOT / "build" / "mypy-programs"))
    found: dict[tuple[str, str], dict[int, str]] = {}

    def add(tool: str, file: str, line: int, message: str) -> None:
        of = found.setdefault((tool, Path(file).name), {})
        of[line] = f"{of.get(line, '')}{message}\n"

    argv = [bin_ / "mypy", "--strict", *cache, "--python-executable", sys.executable, "right.py", "wrong.py"]
    out = subprocess.run(argv, cwd=folder, text=True, capture_output=True, timeout=500).stdout
    for file, line, message in re.findall(r"^(\S+\.py):(\d+): (error: .*)$", out, re.MULTILINE):
        add("mypy", file, int(line), message)
    argv = [bin_ / "pyright", "--pythonpath", sys.executable, "--outputjson", "right.py", "wrong.py"]
    answer = json.loads(subprocess.run(argv, cwd=folder, text=True, capture_output=True, timeout=500).stdout)
    assert answer["summary"]["filesAnalyzed"] == 2
    for each in answer["generalDiagnostics"]:
        add("pyright", each["file"], each["range"]["start"]["line"] + 1, each["message"])
    return found


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_type_checkers_see_each_mistake_at_its_line(tool: str, checked: dict[tuple[str, str], dict[int, str]]) -> None:
    found = checked[tool, "wrong.py"]
    assert sorted(found) == list(range(3, 3 + len(WRONG))), found
    for line, word in enumerate(WRONG.values(), start=3):
        assert word in found[line] or tool == "pyright", found[line]


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_type_checkers_have_nothing_against_a_right_program(
    tool: str, checked: dict[tuple[str, str], dict[int, str]]
) -> None:
    assert checked.get((tool, "right.py"), {}) == {}
    used = set(re.findall(r"trainer\.(\w+)", RIGHT.read_text()))
    assert set(trainer.__all__) - used == {"register_plugin"}, "the program uses every component and class"
