"""From typed arguments to a plan: code on every framework, folders in every step that runs it, the data cache."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.args.arguments import nested_problems
from pulumi_trainer.code import user_code
from pulumi_trainer.code.compiled import Compiled
from pulumi_trainer.plan import mounts, runtime_ref, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.outputs import FreeForm, Resolved
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.plan.written_job import WrittenJob
from pulumi_trainer.provider.jobs.lineage import ASSIGNED
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.trainer.pipeline import registry

LABEL = "trainer.kubeflow.org/framework"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
CLUSTER = trainer.Kubernetes()


def work() -> None:
    print("work")


def step(name: str, ancestor: str | None = None, container: str = "node") -> dict[str, Any]:
    template: dict[str, Any] = {
        "spec": {"template": {"spec": {"containers": [{"name": container, "image": "python:3.12"}]}}}
    }
    if ancestor:
        template["metadata"] = {"labels": {STEP: ancestor}}
    return {"name": name, "template": template}


def runtime(
    *steps: dict[str, Any], label: str | None = None, policy: dict[str, Any] | None = None, name: str = "r"
) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {LABEL: label} if label else {}},
        "spec": {
            **({"mlPolicy": policy} if policy is not None else {}),
            "template": {"spec": {"replicatedJobs": list(steps) or [step("node", "trainer")]}},
        },
    }


MPI = runtime(step("node"), step("launcher", "trainer"), label="deepspeed", policy={"mpi": {"runLauncherAsNode": True}})
CACHED = runtime(
    step("dataset-initializer", "dataset-initializer", "dataset-initializer"),
    step("node", "trainer"),
    label="torch",
    policy={"torch": {}},
)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plans a TrainJob on a runtime document, as a component would."""
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)

    def plan(document: dict[str, Any], **given: Any) -> Plan:
        monkeypatch.setattr(runtime_ref, "from_catalogue", lambda _: (copy.deepcopy(document), []))

        async def planning() -> Plan:
            return await trainjob_plan.plan(TrainJobArgs("job", **{"runtime": "r", "target": CLUSTER, **given}))

        return asyncio.run(planning())

    return plan


def jobset(plan: Plan) -> dict[str, dict[str, Any]]:
    """Pod specs of a plan's JobSet by step."""
    assert [str(p) for p in plan.problems] == []
    document = next(o for key, o in plan.objects.items() if key.startswith("JobSet/"))
    return {j["name"]: j["template"]["spec"]["template"]["spec"] for j in document["spec"]["replicatedJobs"]}


def added(document: dict[str, Any], *kinds: str, **wish: Any) -> tuple[dict[str, Any], mounts.MountedCode]:
    """The TrainJob's spec with folders, for runtimes of frameworks that need no plugin here."""
    wish = {"trainer": {}, "code": {}, "initializer": {}, **wish}
    train_job = {
        "metadata": {"name": "job", "namespace": "default"}, "spec": {"trainer": wish["trainer"], **wish.get("spec", {})},
    }  # fmt: skip
    written = WrittenJob(wish, {}, document, FreeForm(None, None, None), Compiled({}), Resolved(None))
    folders = mounts.Folders({kind: f"{kind}-claim" for kind in kinds})
    mounted = mounts.mount_volumes(train_job, written, folders, cluster=True)
    return mounted.train_job["spec"], mounted


def mounted(spec: dict[str, Any]) -> dict[str, tuple[list[str], list[str]]]:
    """Step -> volumes and mounts of our patch."""
    jobs = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pods = {j["name"]: j["template"]["spec"]["template"]["spec"] for j in jobs}
    return {
        name: ([v["name"] for v in pod["volumes"]], [m["mountPath"] for m in pod["containers"][0]["volumeMounts"]])
        for name, pod in pods.items()
    }


SHIPPED = {"script": "print(1)\n", "func_args": None, "packages": None, "index_urls": None, "framework": "deepspeed"}


@pytest.mark.parametrize(
    ("document", "framework"),
    [
        (runtime(label="torch"), "torch"),
        (runtime(label="torchtune", policy={"torch": {}}), "torch"),
        (runtime(label="jax", policy={"jax": {}}), "jax"),
        (runtime(label="deepspeed", policy={"mpi": {}}), "deepspeed"),
        (runtime(label="of-mine", policy={"numNodes": 2, "mpi": {}}), "mpi"),
        (runtime(policy={"mpi": {}}), "mpi"),
        (runtime(policy={"torch": {}}), "torch"),
        (runtime(policy={"numNodes": 1}), ""),
        (runtime(policy={"xgboost": {}}), ""),
        (runtime(), ""),
    ],
)
def test_the_label_decides_what_starts_code_else_the_policy(document: dict[str, Any], framework: str) -> None:
    assert user_code.framework(document) == framework


@pytest.mark.parametrize("framework", ["jax", "xgboost", "plainml", "flux", "tensorflow", ""])
def test_python_starts_what_needs_no_launcher(framework: str) -> None:
    launch = json.loads(user_code.files("", None, None, None, framework, env=["A"])[code.LAUNCH_FILE])
    assert launch == {"install": [], "launcher": ["python3"]}


@pytest.mark.parametrize("framework", ["mpi", "deepspeed", "mlx"])
def test_mpirun_starts_python_in_each_slot_of_the_hostfile(framework: str) -> None:
    launch = json.loads(user_code.files("", None, ["x"], None, framework, env=["A", "B"])[code.LAUNCH_FILE])
    mpirun = ["mpirun", "--allow-run-as-root", "--hostfile", "/etc/mpi/hostfile"]
    across = [*mpirun, "-x", "A", "-x", "B", "python3"]
    assert launch == {"install": ["x"], "launcher": ["python3"], "across": across}


def test_a_plugin_names_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"ray": ("ray", "run"), "torch": ("python3",)}  # also where the house would choose another
    monkeypatch.setattr(registry, "launcher", own.get)
    for framework, launcher in own.items():
        assert user_code.framework(runtime(policy={framework: {}})) == framework
        launch = json.loads(user_code.files("", None, None, None, framework)[code.LAUNCH_FILE])
        assert launch["launcher"] == list(launcher)


MPIRUN = """#!{python}
import os, subprocess, sys
if "OMPI_COMM_WORLD_RANK" in os.environ:
    sys.exit("started again in a rank")
names = [b for a, b in zip(sys.argv, sys.argv[1:]) if a == "-x"]
rest = sys.argv[sys.argv.index("python3"):]
for rank in "01":
    env = {{n: os.environ[n] for n in ("PATH", "PULUMI_TRAINER_LAYER", *names)}}
    subprocess.run(rest, env={{**env, "OMPI_COMM_WORLD_RANK": rank}}, check=True)
"""

SCRIPT = """
import os, sys
print(os.environ["OMPI_COMM_WORLD_RANK"], os.environ["A"], os.environ.get("B"), os.environ["INSTALLED"], sys.argv[1:])
"""


def start(folder: Path, data: dict[str, Any], env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    for name, text in data.items():
        (folder / name).write_text(text)
    argv = [sys.executable, str(folder / code.BOOTSTRAP_FILE), *args]
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)


def test_with_mpi_every_rank_has_packages_arguments_and_the_trainers_variables(tmp_path: Path) -> None:
    mpirun, layer = tmp_path / "mpirun", tmp_path / "layer.py"
    mpirun.write_text(MPIRUN.format(python=sys.executable))
    mpirun.chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    layer.write_text("import sys; print('{\"INSTALLED\": \"' + sys.argv[1] + '\"}')")
    env = {"PATH": str(tmp_path), "PULUMI_TRAINER_LAYER": str(layer), "A": "a b", "B": "not told"}
    data = with_hosts(tmp_path, user_code.files(SCRIPT, None, ["numpy"], None, "mpi", env=["A"]))
    done = start(tmp_path, data, env, "--lr", "$X")
    assert done.stdout == "0 a b None numpy ['--lr', '$X']\n1 a b None numpy ['--lr', '$X']\n", done.stderr


def with_hosts(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    """Files whose launcher reads a hostfile of two nodes in a folder."""
    (folder / "hosts").write_text(f"job-node-0-0.job slots=2\n{os.uname().nodename.split('.')[0]}.job slots=2\n")
    return {**data, code.LAUNCH_FILE: data[code.LAUNCH_FILE].replace("/etc/mpi/hostfile", str(folder / "hosts"))}


MPIRUN_4 = """#!{python}
import os, subprocess, sys
with open(sys.argv[sys.argv.index("--hostfile") + 1]) as hosts:
    print(*(line.split(".")[0] for line in hosts), flush=True)
for rank in "01":
    counts = dict(RANK=rank, SIZE="2", LOCAL_RANK=rank, LOCAL_SIZE="2")
    env = {{**os.environ, **{{"OMPI_COMM_WORLD_" + name: value for name, value in counts.items()}}}}
    subprocess.run(sys.argv[sys.argv.index("python3"):], env=env, check=True)
"""

RANKS = """
import os
names = "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"
print(*(os.environ[name] for name in names))
"""


@pytest.mark.parametrize(("given", "port"), [({}, "29500"), ({"MASTER_PORT": "1"}, "1")])
def test_with_mpi_torch_distributed_finds_its_ranks(tmp_path: Path, given: dict[str, str], port: str) -> None:
    """Without mpi4py; the launcher is listed first and has rank 0. given: variables of the job, or of the Local target."""
    mpirun, own = tmp_path / "mpirun", os.uname().nodename.split(".")[0]
    mpirun.write_text(MPIRUN_4.format(python=sys.executable))
    mpirun.chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    data = with_hosts(tmp_path, user_code.files(RANKS, None, None, None, "deepspeed", env=[*given]))
    without = start(tmp_path, data, {"PATH": "", **given})
    assert without.stderr == "pulumi-trainer: mpirun is not on PATH; use an image with Open MPI\n"
    done = start(tmp_path, data, {"PATH": str(tmp_path), **given})
    ranks = [f"{rank} {rank} 2 2 {own}.job {port}" for rank in "01"]
    assert done.stdout.splitlines() == [f"{own} job-node-0-0", *ranks], done.stderr


PIP = """
import fcntl, os
with open(os.path.join(os.environ["CODE"], "launch.json")) as lock:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(0)
raise SystemExit("nobody holds the lock")
"""


def test_ranks_of_one_node_install_one_after_the_other_and_train_together(tmp_path: Path) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(PIP)
    (tmp_path / "python3").symlink_to(sys.executable)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path), "CODE": str(tmp_path)}
    held = PIP.replace("raise SystemExit(0)", 'raise SystemExit("still held")').rpartition("raise")[0]
    done = start(tmp_path, user_code.files(held + "print('free')\n", None, ["x"], None, ""), env)
    assert (done.returncode, done.stdout) == (0, "free\n"), done.stderr


def test_with_mpi_code_and_folders_are_in_launcher_and_nodes() -> None:
    spec, plan = added(MPI, "dataset", "model", "output", code=SHIPPED)
    volumes = ["trainer-code", "trainer-dataset", "trainer-model", "trainer-output"]
    paths = ["/etc/pulumi-trainer/code", "/workspace/dataset", "/workspace/model", "/workspace/output"]
    assert mounted(spec) == {"launcher": (volumes, paths), "node": (volumes, paths)}
    assert plan.problems == []


def test_a_function_on_mpi_starts_in_the_launcher_and_lies_in_all_pods(planned: Any) -> None:
    pods = jobset(planned(MPI, trainer=trainer.CustomTrainer(func=work, num_nodes=3), output=True))
    for name in ("launcher", "node"):
        places = {m["mountPath"] for m in pods[name]["containers"][0]["volumeMounts"]}
        assert {code.CODE_PATH, "/workspace/output"} < places
    assert pods["launcher"]["containers"][0]["command"] == user_code.command()
    assert "command" not in pods["node"]["containers"][0]


def test_mpirun_takes_all_variables_of_the_trainer_along() -> None:
    _, plan = added(MPI, "output", code=SHIPPED, trainer={"env": [{"name": "A", "value": "1"}]})
    launch = json.loads(plan.objects["ConfigMap/job-code"]["data"][code.LAUNCH_FILE])
    told = [name for flag, name in zip(launch["across"], launch["across"][1:], strict=False) if flag == "-x"]
    assert told == ["TRAINER_RUN_ID", "TRAINER_OUTPUT_DIR", "A"]


@pytest.mark.parametrize(
    ("document", "steps"),
    [
        (runtime(), ["node"]),
        (runtime(step("main", "trainer")), ["main"]),
        (runtime(step("main")), ["node"]),
        (runtime(step("a", "trainer"), step("b", "trainer"), step("c")), ["a", "b"]),
        (MPI, ["launcher", "node"]),
        (runtime(step("node"), step("launcher", "trainer"), policy={"mpi": {}}), ["launcher", "node"]),
        (runtime(step("node"), step("launcher", "trainer"), policy={"torch": {}}), ["launcher"]),
        (runtime(step("launcher", "trainer"), policy={"mpi": {}}), ["launcher"]),
        (runtime(step("node", container="other"), step("launcher", "trainer"), policy={"mpi": {}}), ["launcher"]),
        (runtime(step("node", "trainer"), policy={"mpi": {}}), ["node"]),
    ],
)
def test_steps_that_run_user_code(document: dict[str, Any], steps: list[str]) -> None:
    assert mounts.steps_of(document) == steps


@pytest.mark.parametrize(
    "document", [runtime(step("node"), step("launcher", "trainer"), label="mpi", policy={"mpi": {}}), MPI, runtime()]
)
def test_every_step_mounts_the_folder_of_the_lineage(document: dict[str, Any]) -> None:
    """Also steps that get no variables of the trainer."""
    spec, plan = added(document, "output", "dataset")
    assert plan.problems == []
    (patch,) = spec["runtimePatches"]
    for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        folders = {each["mountPath"]: each.get("subPath") for each in container["volumeMounts"]}
        assert folders["/workspace/output"] == ASSIGNED and folders["/workspace/dataset"] is None


def test_kueue_drops_the_grace_period_of_a_train_job() -> None:
    """A JobSet that was made with it could not be updated, and the job would never start."""
    grace = {"template": {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 60}}}}}
    patch = {"template": {"spec": {"replicatedJobs": [{"name": "node", **grace}]}}}
    spec = {"trainer": {}, "runtimePatches": [{"manager": "acme.io/grace", "trainingRuntimeSpec": patch}]}
    train_job = {"metadata": {"name": "job", "namespace": "default"}, "spec": spec}
    fields = {"trainer": {}, "code": {}, "initializer": {}}
    written = WrittenJob(fields, {}, runtime(), FreeForm(None, None, None), Compiled({}), Resolved(None))
    folders = mounts.Folders({"output": "claim"}, checkpoint=trainer.CheckpointPolicy(grace=50))
    for keeps, count in ((True, 0), (False, 1)):
        made = mounts.mount_volumes(train_job, written, folders, cluster=True, keeps_grace=keeps)
        own = str(made.train_job["spec"]["runtimePatches"][0])
        assert ("'terminationGracePeriodSeconds': 60" in own) is keeps
        assert [str(p) for p in made.problems] == [
            "runtime_patches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
            ".terminationGracePeriodSeconds: is lost when Kueue admits a job in mode trainer, and the job would never start."
            " Hint: set it in the runtime, or use mode jobset"
        ] * count


def test_mounting_leaves_the_document_as_the_user_wrote_it() -> None:
    train_job = {"metadata": {"name": "job", "namespace": "default"}, "spec": {"trainer": {}, "runtimePatches": []}}
    before = copy.deepcopy(train_job)
    fields = {"trainer": {}, "code": SHIPPED, "initializer": {}}
    written = WrittenJob(fields, {}, MPI, FreeForm(None, None, None), Compiled({}), Resolved(None))
    mounted = mounts.mount_volumes(train_job, written, mounts.Folders({"output": "claim"}), cluster=True)
    assert train_job == before and mounted.train_job["spec"]["runtimePatches"]


def test_our_patch_stands_beside_those_of_the_user(planned: Any) -> None:
    custom = trainer.CustomTrainer(func=work)
    many = [trainer.RuntimePatch(manager=f"acme.io/{i}") for i in range(16)]
    plan = planned(runtime(), trainer=custom, runtime_patches=many)
    assert [p.where for p in plan.problems] == ["runtime_patches"]
    assert "has 16 patches" in str(plan.problems[0])
    assert planned(runtime(), trainer=custom, runtime_patches=many[:15]).problems == []
    assert planned(runtime(), runtime_patches=many).problems == []
    ours = [trainer.RuntimePatch(manager=mounts.MANAGER)]
    assert "runtime_patches[0].manager" in str(planned(runtime(), trainer=custom, runtime_patches=ours).problems[0])


def test_a_typed_patch_changes_the_pods(planned: Any) -> None:
    pod = trainer.PodPatch(
        node_selector={"zone": "a"},
        volumes=[{"name": "scratch", "empty_dir": {}}],
        containers=[trainer.ContainerPatch(name="node", volume_mounts=[{"name": "scratch", "mount_path": "/scratch"}])],
    )
    patch = trainer.RuntimePatch(
        manager="acme.io/a", labels={"team": "x"}, jobs=[trainer.JobPatch(name="node", pod=pod)]
    )
    plan = planned(runtime(), trainer=trainer.CustomTrainer(func=work), runtime_patches=[patch])
    spec = jobset(plan)["node"]
    assert spec["nodeSelector"] == {"zone": "a"}
    assert {m["mountPath"] for m in spec["containers"][0]["volumeMounts"]} == {"/scratch", "/etc/pulumi-trainer/code"}
    document = next(o for key, o in plan.objects.items() if key.startswith("JobSet/"))
    assert document["metadata"]["labels"]["team"] == "x"


def test_problems_are_told_by_the_arguments(planned: Any) -> None:
    patch = trainer.RuntimePatch(
        manager="acme", jobs=[trainer.JobPatch(name="node", pod=trainer.PodPatch(volumes=[{}]))]
    )
    plan = planned(runtime(), trainer=trainer.Trainer(num_nodes=-1), runtime_patches=[patch], active_deadline_seconds=0)
    assert sorted(p.where for p in plan.problems) == [
        "active_deadline_seconds",
        "runtime_patches[0].jobs[0].pod.volumes[0].name",
        "runtime_patches[0].manager",
        "trainer.num_nodes",
    ]


def tuned(name: str, planned: Any, **config: Any) -> Plan:
    document = runtime(label="torchtune", policy={"torch": {}}, name=name)
    builtin = trainer.BuiltinTrainer(config=trainer.TorchTuneConfig(**config))
    plan: Plan = planned(document, trainer=builtin)
    return plan


@pytest.mark.parametrize(
    ("name", "config", "where"),
    [
        ("torchtune-llama3.2-1b", {}, set()),
        ("torchtune-gpt-1b", {}, {"runtime"}),
        ("torchtune-llama3.2-1b", {"num_nodes": 2}, {"trainer.config.num_nodes"}),
        ("torchtune-llama3.3-70b", {"num_nodes": 2}, set()),
        ("torchtune-llama3.3-70b", {"num_nodes": 2, "peft_config": trainer.LoraConfig()}, {"trainer.config.num_nodes"}),
        (
            "torchtune-llama3.2-1b",
            {"resources_per_node": {"gpu": 2}, "peft_config": trainer.LoraConfig(quantize_base=True)},
            {"trainer.config.resources_per_node", "trainer.num_proc_per_node"},
        ),
        (
            "torchtune-llama3.2-1b",
            {"resources_per_node": {"gpu": 1}, "peft_config": trainer.LoraConfig(quantize_base=True)},
            set(),
        ),
        ("torchtune-qwen2.5-1.5b", {"peft_config": trainer.LoraConfig(quantize_base=True)}, {"runtime"}),
    ],
)
def test_the_rules_of_torchtune_are_told_by_the_parameters(
    planned: Any, name: str, config: dict[str, Any], where: set[str]
) -> None:
    assert {p.where for p in tuned(name, planned, **config).problems} == where


def test_a_builtin_trainer_runs_the_recipe_that_its_parameters_ask_for(planned: Any) -> None:
    lora = trainer.LoraConfig(lora_rank=8)
    plan = tuned("torchtune-llama3.2-1b", planned, epochs=2, resources_per_node={"gpu": 1}, peft_config=lora)
    node = jobset(plan)["node"]["containers"][0]
    assert node["command"][:5] == [
        "tune",
        "run",
        "lora_finetune_single_device",
        "--config",
        "llama3_2/1B_lora_single_device",
    ]
    assert node["args"] == ["epochs=2", "model.lora_rank=8", "model.lora_attn_modules=[q_proj,v_proj,output_proj]"]
    assert not [key for key in plan.objects if key.startswith("ConfigMap/")]


def cached(**given: Any) -> trainer.Initializer:
    fields = {"storage_uri": "cache://sales/orders", "metadata_loc": "s3://bucket/meta.json", "num_data_nodes": 2}
    return trainer.Initializer(dataset=trainer.DataCacheInitializer(**{**fields, **given}))


def test_a_data_cache_is_told_by_the_variables_of_the_initializer(planned: Any) -> None:
    given = {
        "head_cpu": "1",
        "head_mem": "2Gi",
        "worker_cpu": 3,
        "worker_mem": "4Gi",
        "iam_role": "arn:aws:iam::1:role/r",
    }
    plan = planned(CACHED, trainer=trainer.CustomTrainer(func=work), initializer=cached(env={"X": "y"}, **given))
    pods = jobset(plan)
    env = {e["name"]: e["value"] for e in pods["dataset-initializer"]["containers"][0]["env"]}
    assert env == {
        "STORAGE_URI": "cache://sales/orders",
        "CLUSTER_SIZE": "3",
        "METADATA_LOC": "s3://bucket/meta.json",
        "HEAD_CPU": "1",
        "HEAD_MEM": "2Gi",
        "WORKER_CPU": "3",
        "WORKER_MEM": "4Gi",
        "IAM_ROLE": "arn:aws:iam::1:role/r",
        "X": "y",
    }
    assert "TRAINER_DATASET_DIR" not in {e["name"] for e in pods["node"]["containers"][0]["env"]}
    assert [str(w).partition(":")[0] for w in plan.warnings] == ["initializer.dataset.storage_uri"]


def test_the_initializer_of_a_cache_gets_the_volume_that_trainer_asks_for(planned: Any) -> None:
    pod = jobset(planned(CACHED, initializer=cached()))["dataset-initializer"]
    assert pod["volumes"] == [{"name": "initializer", "emptyDir": {}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "initializer", "mountPath": "/workspace"}]
    own = copy.deepcopy(CACHED)
    spec = own["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "initializer", "hostPath": {"path": "/x"}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "initializer", "mountPath": "/y"}]
    pod = jobset(planned(own, initializer=cached()))["dataset-initializer"]
    assert (
        pod["volumes"] == spec["volumes"]
        and pod["containers"][0]["volumeMounts"] == spec["containers"][0]["volumeMounts"]
    )


@pytest.mark.parametrize(
    ("given", "in_runtime", "warned"),
    [
        ({}, [], True),
        ({"iam_role": "r"}, [], False),
        ({"env": {"IAM_ROLE": "r"}}, [], False),
        ({"secret_ref": "credentials"}, [], False),
        ({}, [{"name": "IAM_ROLE", "value": "r"}], False),
    ],
)
def test_an_initializer_without_a_role(
    planned: Any, given: dict[str, Any], in_runtime: list[dict[str, str]], warned: bool
) -> None:
    document = copy.deepcopy(CACHED)
    spec = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["containers"][0]["env"] = in_runtime
    plan = planned(document, initializer=cached(**given))
    assert plan.problems == []
    assert ("initializer.dataset.iam_role" in [w.where for w in plan.warnings]) == warned


def test_this_machine_has_no_data_cache(planned: Any) -> None:
    plan = planned(CACHED, initializer=cached(), target=trainer.Local())
    assert [str(p) for p in plan.problems] == [
        "initializer.dataset.storage_uri: the data cache runs as pods in a cluster, which the Local target does not have. Hint: "
        "use the Kubernetes target, or hf://, s3:// or file:// here"
    ]
    assert plan.objects == {} and plan.warnings == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"storage_uri": "s3://x/y"}, "storage_uri: must start with cache://, not 's3://x/y'"),
        ({"storage_uri": "cache://x"}, "storage_uri: must be cache://SCHEMA/TABLE, not 'cache://x'"),
        ({"storage_uri": "cache://x/"}, "storage_uri: must be cache://SCHEMA/TABLE"),
        ({"storage_uri": "cache://x/y/z"}, "storage_uri: must be cache://SCHEMA/TABLE"),
        ({"storage_uri": None}, "storage_uri: is required"),
        ({"metadata_loc": None}, "metadata_loc: is required"),
        ({"num_data_nodes": None}, "num_data_nodes: is required"),
        ({"num_data_nodes": 1}, "num_data_nodes: must be a whole number greater than 1, not 1"),
        ({"num_data_nodes": "3"}, "num_data_nodes: must be a whole number greater than 1, not '3'"),
        ({"head_cpu": "two"}, "head_cpu: "),
        ({"head_mem": "1 GiB"}, "head_mem: "),
        ({"worker_cpu": 0.5}, "worker_cpu: "),
        ({"worker_mem": "x"}, "worker_mem: "),
        ({"ignore_patterns": ["*"]}, "ignore_patterns: has no effect"),
        ({"workers": 1}, "workers: unknown field"),
    ],
)
def test_what_is_wrong_with_a_data_cache(given: dict[str, Any], says: str) -> None:
    found = [str(p) for p in nested_problems(cached(**given))]
    assert len(found) == 1 and found[0].startswith(f"dataset.{says}"), found


def test_outputs_of_a_data_cache_are_variables_when_they_are_known() -> None:
    async def env() -> dict[str, Any]:
        dataset = cached(num_data_nodes=pulumi.Output.from_input(4.0), env=pulumi.Output.from_input({"X": "y"})).dataset
        assert nested_problems(dataset) == []
        found: Any = await dataset.document()["env"].future()
        return {e["name"]: e["value"] for e in found}

    assert asyncio.run(env()) == {"X": "y", "CLUSTER_SIZE": "5", "METADATA_LOC": "s3://bucket/meta.json"}


def test_resources_keep_names_that_are_no_short_forms() -> None:
    given = {"GPU": 1, "huawei.com/Ascend910": 2, "hugepages-2Mi": "4Mi", "Memory": "1Gi"}
    limits = trainer.CustomTrainer(resources_per_node=given).document()["resourcesPerNode"]["limits"]
    assert limits == {"nvidia.com/gpu": 1, "huawei.com/Ascend910": 2, "hugepages-2Mi": "4Mi", "memory": "1Gi"}


def test_words_for_the_number_of_processes_are_gone(planned: Any) -> None:
    plan = planned(runtime(), trainer=trainer.Trainer(num_proc_per_node="auto"))  # type: ignore[arg-type]
    assert [str(p) for p in plan.problems] == [
        "trainer.num_proc_per_node: must be a whole number, not 'auto'. "
        "Hint: leave it out for one process per GPU (per CPU without GPUs), "
        "or give a number"
    ]


@pytest.mark.parametrize(
    ("given", "where", "why"),
    [
        ({"packages_to_install": "torch"}, "trainer.packages_to_install", "must be a list, not str"),
        ({"pip_index_urls": "x"}, "trainer.pip_index_urls", "must be a list, not str"),
        ({"func_args": [1]}, "trainer.func_args", "must be a mapping, not list"),
        ({"env": "A=b"}, "trainer.env", "must be a mapping or a list, not str"),
        ({"env": ["A=b"]}, "trainer.env[0]", "must be a mapping, not str"),
        ({"resources_per_node": 2}, "trainer.resources_per_node", "must be a mapping, not int"),
    ],
)
def test_arguments_of_the_wrong_shape(planned: Any, given: dict[str, Any], where: str, why: str) -> None:
    plan = planned(runtime(), trainer=trainer.CustomTrainer(func=work, **given))
    assert [(p.where, p.why) for p in plan.problems] == [(where, why)]


@pytest.mark.parametrize("field", ["dataset", "model"])
def test_a_uri_is_no_initializer(planned: Any, field: str) -> None:
    plan = planned(runtime(), initializer=trainer.Initializer(**{field: "hf://a/b"}))
    (problem,) = plan.problems
    assert (problem.where, problem.why) == (f"initializer.{field}", "must be an initializer, not str")
    source = trainer.HuggingFaceDatasetInitializer(storage_uri="hf://a/b", env=["A"], ignore_patterns=5)
    plan = planned(runtime(), initializer=trainer.Initializer(dataset=source))
    assert [p.where for p in plan.problems] == ["initializer.dataset.ignore_patterns", "initializer.dataset.env"]


def test_arguments_have_names() -> None:
    (problem,) = nested_problems(trainer.MPIPolicy(2))  # type: ignore[misc]
    assert str(problem) == "num_nodes: must be passed by name. Hint: write num_nodes=..."


def test_a_warning_about_the_runtime_has_the_path_of_its_document(planned: Any) -> None:
    document = runtime(step("node", "trainer"), label="torch", policy={"torch": {}})
    work = trainer.CustomTrainer(command=["torchrun", "a.py"], resources_per_node={"gpu": 2, "memory": "64Gi"})
    (found,) = [w for w in planned(document, trainer=work).warnings if getattr(w, "code", "") == "PT112"]
    assert found.where == "runtime.spec.template.spec.replicatedJobs[0].template.spec.template.spec.volumes"
    assert "at /dev/shm, in the runtime or by a runtimePatch" in found.hint


def test_an_initializer_without_its_step_has_hints_for_a_program(planned: Any) -> None:
    source = trainer.Initializer(dataset=trainer.HuggingFaceDatasetInitializer(storage_uri="hf://tatsu-lab/alpaca"))
    document = runtime(step("node", "trainer"), label="torch", policy={"torch": {}})
    plan = planned(document, trainer=trainer.Trainer(command=["true"]), initializer=source)
    assert [str(p) for p in plan.problems] == [
        "runtime: must have dataset-initializer job when trainJob is configured with input datasetConfig. "
        "Hint: fetch the dataset before the job: initializer=Initializer(dataset=DatasetInitializer(...)); "
        "or use a runtime with this replicated job, for example torchtune-llama3.2-1b"
    ]


LOOP: list[Any] = []
LOOP.append(LOOP)
TRAINED = [name for name in trainer.CustomTrainer.fields if name not in ("func", "func_args")]


@pytest.mark.parametrize(
    "field", [name for name in TrainJobArgs.fields if name not in ("resource_name", "target", "opts")]
)
def test_an_argument_that_contains_itself_is_named(planned: Any, field: str) -> None:
    plan = planned(runtime(), **{field: LOOP})
    assert any(p.where.startswith(field) for p in plan.problems), plan.problems


@pytest.mark.parametrize("field", TRAINED)
@pytest.mark.parametrize("value", [LOOP, {"limits": {"cpu": LOOP}}, {"a": LOOP}])
def test_an_argument_of_a_trainer_that_contains_itself_is_named(planned: Any, field: str, value: Any) -> None:
    plan = planned(runtime(), trainer=trainer.CustomTrainer(func=work, **{field: value}))
    assert any(p.where.startswith(f"trainer.{field}") for p in plan.problems), plan.problems


@pytest.mark.parametrize("field", ["storage_uri", "ignore_patterns", "env", "secret_ref"])
def test_an_argument_of_a_source_that_contains_itself_is_named(planned: Any, field: str) -> None:
    source = trainer.HuggingFaceDatasetInitializer(**{"storage_uri": "hf://a/b", field: LOOP})
    plan = planned(runtime(), initializer=trainer.Initializer(dataset=source))
    assert any(p.where.startswith(f"initializer.dataset.{field}") for p in plan.problems), plan.problems


@pytest.mark.parametrize(
    ("image", "why"), [("", "is empty"), (" ", "is empty"), ("a:1 ", "begins or ends with white space")]
)
def test_an_image_that_is_none_is_named_by_its_argument(planned: Any, image: str, why: str) -> None:
    plan = planned(runtime(), trainer=trainer.CustomTrainer(func=work, image=image))
    assert [str(p) for p in plan.problems] == [
        f"trainer.image: {why}. Hint: give the name of an image, or leave it out"
    ]


@pytest.mark.parametrize("given", ["5", 5, 5.0])
def test_a_number_of_seconds_as_text_is_that_number(planned: Any, given: Any) -> None:
    plan = planned(runtime(), trainer=trainer.CustomTrainer(func=work), queue="q", max_execution=given)
    assert plan.problems == []
    (document,) = (made for key, made in plan.objects.items() if key.startswith("JobSet/"))
    assert document["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] == "5"


@pytest.mark.parametrize("given", ["", " 5", "5s", "\u0665", True, "0"])
def test_other_texts_for_seconds_are_named(planned: Any, given: Any) -> None:
    (problem,) = planned(runtime(), queue="q", max_execution=given).problems
    assert str(problem).startswith("max_execution: must be a whole number of seconds")


def test_a_run_key_that_is_not_configured_is_left_out(planned: Any) -> None:
    """`Config().get("run")` is None then."""
    plan = planned(runtime(), trainer=trainer.CustomTrainer(func=work), run=None)
    assert (plan.job.run, plan.problems) == ("1", [])


def test_an_empty_key_of_a_run_is_warned_of(planned: Any) -> None:
    (warning,) = planned(runtime(), trainer=trainer.CustomTrainer(func=work), run="").warnings
    assert str(warning).startswith("run: is empty, but an empty key counts as a key")
    assert planned(runtime(), trainer=trainer.CustomTrainer(func=work)).warnings == []


def twice(plan: Plan) -> list[str]:
    assert plan.problems == [], plan.problems
    return [str(each) for each in plan.warnings if "wins" in str(each)]


def test_resources_under_two_names(planned: Any) -> None:
    def job(**resources: Any) -> list[str]:
        return twice(planned(runtime(), trainer=trainer.CustomTrainer(func=work, resources_per_node=resources)))

    (warning,) = job(gpu=1, **{"nvidia.com/gpu": 2})
    assert (
        "trainer.resources_per_node: gpu is 1, but nvidia.com/gpu, the same resource, is 2: the last one wins"
        in warning
    )
    assert job(cpu=1, CPU="1", memory="1Gi") == []


def test_variables_of_a_folder_that_env_sets_to_another_value(planned: Any) -> None:
    def job(**env: str) -> list[str]:
        return twice(planned(runtime(), trainer=trainer.CustomTrainer(func=work, env=env), output=True))

    (warning,) = job(TRAINER_OUTPUT_DIR="/x")
    expected = """trainer.env["TRAINER_OUTPUT_DIR"]: is '/x', and the job sets it to '/workspace/output': env wins"""
    assert warning.startswith(expected)
    assert job(TRAINER_OUTPUT_DIR="/workspace/output", OTHER="1") == []


FETCHING = runtime(
    step("dataset-initializer", "dataset-initializer", "dataset-initializer"),
    step("node", "trainer"),
    policy={"torch": {}},
)


def test_arguments_of_a_source_that_env_sets_to_another_value(planned: Any) -> None:
    document = copy.deepcopy(FETCHING)
    pod = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "initializer", "mountPath": "/workspace"}]
    pod["volumes"] = [{"name": "initializer", "emptyDir": {}}]
    env = {"REGION": "west", "ENDPOINT": "e", "IGNORE_PATTERNS": "*.bin", "STORAGE_URI": "s3://c/d", "OTHER": "x"}
    source = trainer.S3DatasetInitializer(
        storage_uri="s3://a/b", region="east", endpoint="e", ignore_patterns=["*.pt"], env=env
    )
    plan = planned(document, trainer=trainer.Trainer(command=["true"]), initializer=trainer.Initializer(dataset=source))
    assert [each.partition(". Hint")[0] for each in twice(plan)] == [
        "initializer.dataset.region: is 'east', but env['REGION'] is 'west': the argument wins",
        "initializer.dataset.ignore_patterns: is '*.pt', but env['IGNORE_PATTERNS'] is '*.bin': the argument wins",
        "PT161: initializer.dataset.storage_uri: is s3://a/b, and STORAGE_URI in env is s3://c/d: env wins",
    ]


def test_a_variable_of_the_runtime_with_another_value_is_a_note_of_the_plan(planned: Any) -> None:
    document = runtime()
    container = document["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    container["env"] = [{"name": "NCCL_DEBUG", "value": "WARN"}]
    plan = planned(document, trainer=trainer.CustomTrainer(func=work, env={"NCCL_DEBUG": "INFO"}))
    (note,) = plan.notes
    assert "PT162: trainer.env: NCCL_DEBUG is 'INFO', and 'WARN' in the runtime: the job's value wins" in note
    assert plan.warnings == []
