"""Measures what docs/benchmarks.md reports, ours beside a baseline in the same run. `make bench`."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.code import source_tree, user_code

from . import digests, packages, queues, releases, rendering, runs

FLAGS = ["--yes", "--skip-preview", "--non-interactive"]

OURS = """
import pulumi_trainer as trainer

runtime = trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0")

def train(lr: float):
    import torch.distributed as dist
    dist.init_process_group("gloo")
    print(lr, dist.get_rank(), flush=True)

for i in range({count}):
    trainer.TrainJob(
        f"job-{{i}}", runtime=runtime, suspend=True,
        trainer=trainer.CustomTrainer(
            func=train, func_args={{"lr": i / 1000}}, num_nodes=2, env={{"A": "1"}}, packages_to_install=["torch"],
            resources_per_node={{"cpu": 1, "memory": "1Gi"}},
        ),
    )
"""

BASELINE = """
import json
import pulumi
from nothing import Nothing

inputs = json.loads(open("inputs.json").read())

class Component(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("trainer:index:TrainJob", name, None)
        Nothing(name, inputs, pulumi.ResourceOptions(parent=self))

for i in range({count}):
    Component(f"job-{{i}}")
"""

ALONE = """
import json
from nothing import Nothing

inputs = json.loads(open("inputs.json").read())

for i in range({count}):
    Nothing(f"TrainJob-{{i}}", inputs, None)
"""

NOTHING = """
import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider

class Provider(ResourceProvider):
    serialize_as_secret_always = False
    def create(self, props):
        return CreateResult(props["name"], {"uid": "x"})
    def diff(self, id, olds, news):
        return DiffResult(changes=False)

class Nothing(Resource, module="trainer", name="JobSet"):
    uid: pulumi.Output[str]
    def __init__(self, name, props, opts):
        super().__init__(Provider(), name, {**props, "uid": None}, opts)
"""


def environment(folder: Path) -> dict[str, str]:
    """A project of its own, with the flags of the make targets."""
    (folder / "state").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\nmain: .\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI")}
    return {
        **env, "PULUMI_HOME": str(folder / "home"), "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "bench", "PULUMI_SKIP_UPDATE_CHECK": "1", "PULUMI_DIY_BACKEND_GZIP": "1",
    }  # fmt: skip


def timed(argv: list[str], folder: Path, env: dict[str, str]) -> float:
    """Seconds of a command that has to succeed."""
    begun = time.monotonic()
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(argv)}\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
    return time.monotonic() - begun


def exported(folder: Path, env: dict[str, str]) -> dict[str, Any]:
    argv = ["pulumi", "stack", "export"]
    return dict(
        json.loads(subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout)
    )


def lifecycle(
    folder: Path,
    program: str,
    more: Mapping[str, str] | None = None,
    commands: Mapping[str, list[str]] | None = None,
    rest: float = 0.0,
) -> tuple[dict[str, float], float, list[dict[str, Any]]]:
    """Seconds of up, no-op preview, other commands on the stack by their names, and destroy; KB of state a job; the resources.
    more: environment. rest: seconds after `up` in which a cluster ends what it has begun."""
    env = {**environment(folder), **(more or {})}
    (folder / "__main__.py").write_text(textwrap.dedent(program))
    timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
    seconds = {"up": timed(["pulumi", "up", *FLAGS], folder, env)}
    time.sleep(rest)
    seconds["no-op preview"] = timed(["pulumi", "preview", "--expect-no-changes", "--non-interactive"], folder, env)
    seconds |= {name: timed(argv, folder, env) for name, argv in (commands or {}).items()}
    resources = exported(folder, env)["deployment"]["resources"]
    ours = [r for r in resources if "TrainJob" in r["urn"]]
    jobs = sum(1 for r in ours if r["type"].endswith(":JobSet"))
    size = sum(len(json.dumps(r, separators=(",", ":"))) for r in ours) / jobs / 1024
    seconds["destroy"] = timed(["pulumi", "destroy", *FLAGS], folder, env)
    return seconds, size, [r for r in resources if r["type"].endswith(":JobSet")]


def many(count: int) -> None:
    """Suspended jobs beside as many components with a dynamic resource that does nothing."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        ours, size, resources = lifecycle(root / "ours", OURS.format(count=count))
        folder = root / "baseline"
        folder.mkdir()
        (folder / "nothing.py").write_text(NOTHING)
        inputs = {k: v for k, v in resources[0]["inputs"].items() if k != "__provider"}
        (folder / "inputs.json").write_text(json.dumps(inputs))
        theirs, _, _ = lifecycle(folder, BASELINE.format(count=count))
    for what, seconds in ours.items():
        print(f"| {count} | {what} | {seconds:.1f} | {theirs[what]:.1f} | {seconds / theirs[what]:.2f} |", flush=True)
    print(f"| {count} | state, KB of JSON a job | {size:.1f} | | |", flush=True)


ONCE = {"PULUMI_EXPERIMENTAL": "1", "PULUMI_SKIP_CHECKPOINTS": "1"}
"""Variables with which the engine writes the state once, at the end."""


def pulumi_releases(count: int) -> None:
    """`up` of suspended jobs with the releases of Pulumi that `make test-pulumi` tests, in turns. Ratios are those of processor
    time, which other work on the machine changes little."""
    sys.path.append(str(Path(__file__).parents[2] / "tools"))
    import pulumi_matrix

    environments = {release: pulumi_matrix.environment(release) for release in pulumi_matrix.RELEASES}
    runs: dict[tuple[str, bool], list[tuple[float, float]]] = {
        (r, once): [] for r in environments for once in (False, True)
    }
    for _ in range(3):
        for (release, once), measured in runs.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary, "bench")
                env = {**environment(folder), "PATH": environments[release]["PATH"], **(ONCE if once else {})}
                (folder / "__main__.py").write_text(OURS.format(count=count))
                timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
                before = processor_time()
                measured.append((timed(["pulumi", "up", *FLAGS], folder, env), processor_time() - before))
    median = {kind: [*map(statistics.median, zip(*measured, strict=True))] for kind, measured in runs.items()}
    base = median["oldest", False][1]
    for release, env in environments.items():
        (wall, processor), (wall_once, processor_once) = median[release, False], median[release, True]
        print(
            f"| {pulumi_matrix.describe(release, env)} | {wall:.1f} | {processor:.1f} | {processor / base:.2f}"
            f" | {wall_once:.1f} | {processor_once:.1f} | {processor_once / processor:.2f} |",
            flush=True,
        )


def processor_time() -> float:
    """Seconds of the processes that have ended, those of their own children included."""
    times = os.times()
    return times.children_user + times.children_system


def metrics_of_runs() -> None:
    """`runs --metrics` of a stack with 1,000 runs."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "runs"
        env = environment(folder)
        (folder / "__main__.py").write_text(OURS.format(count=runs.JOBS))
        timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
        timed(["pulumi", "up", *FLAGS], folder, env)
        runs.measure(folder, env, timed)
        timed(["pulumi", "destroy", *FLAGS], folder, env)


def channel(count: int) -> None:
    """A preview of a channel that moves, with as many jobs in the stack, suspended on the Local target."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "channel"
        env = environment(folder)
        timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
        releases.moved(lambda argv: timed(argv, folder, env), folder, count)


def project(count: int) -> None:
    """`up` of jobs with one shared project of 200 files beside those with a function, and the parts of packing 2,000 files."""
    with tempfile.TemporaryDirectory() as temporary:
        root, text = Path(temporary), "x = 1  # a line\n" * 200
        code = {
            "func": "func=train, func_args={{'lr': i / 1000}}",
            "source": "source='project', script='f0.py', args=[str(i)]",
        }
        seconds: dict[str, list[float]] = {name: [] for name in code}
        for number, name in [*enumerate(code), *enumerate(code, len(code))]:
            folder = root / f"{number}-{name}"
            env = environment(folder)
            for file in range(200):
                (folder / "project").mkdir(exist_ok=True)
                (folder / "project" / f"f{file}.py").write_text(text)
            program = OURS.replace('func=train, func_args={{"lr": i / 1000}}', code[name])
            (folder / "__main__.py").write_text(program.format(count=count))
            timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
            seconds[name].append(timed(["pulumi", "up", *FLAGS], folder, env))
            timed(["pulumi", "destroy", *FLAGS], folder, env)
        func, source = min(seconds["func"]), min(seconds["source"])
        print(f"| up of {count} jobs with `func=` | {func:.1f} |")
        print(f"| with one shared `source=` of 200 files | {source:.1f}, {source / func:.2f} x |", flush=True)
        files = root / "files"
        files.mkdir()
        for file in range(2_000):
            (files / f"f{file}.py").write_text(text)
        begun = time.monotonic()
        tree = source_tree.read_tree(files)
        read = time.monotonic()
        _ = tree.digest, tree.archive
        print(f"| 2,000 files of 3 kB: read and search for tokens | {read - begun:.2f} |")
        print(f"| digest and archive | {time.monotonic() - read:.2f} |", flush=True)


def imports() -> None:
    """Seconds of imports, each in a fresh process, less the process itself."""
    code = {
        "import pulumi": "import pulumi",
        "import pulumi_trainer": "import pulumi_trainer",
        "import pulumi, then the components": "import pulumi; from pulumi_trainer import *; t.TrainJob",
    }
    code["import pulumi, then the components"] = (
        "import pulumi, pulumi_trainer as t; t.TrainJob, t.CustomTrainer, t.ClusterTrainingRuntime, t.DatasetInitializer"
    )
    runs = {name: [] for name in ("nothing", *code)}  # type: dict[str, list[float]]
    for _ in range(7):
        for name, text in {"nothing": "pass", **code}.items():
            begun = time.monotonic()
            subprocess.run([sys.executable, "-c", text], check=True)
            runs[name].append(time.monotonic() - begun)
    base = statistics.median(runs.pop("nothing"))
    for name, seconds in runs.items():
        print(f"| {name} | {statistics.median(seconds) - base:.3f} |", flush=True)


def first_process() -> None:
    """A container's first process beside the same program without it, in turns, and the memory that it takes of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, text in user_code.files("import time; time.sleep(WAITS)", None, None, None, "").items():
            (folder / name).write_text(text.replace("WAITS", "0"))
        runs: dict[str, list[float]] = {"main.py": [], "bootstrap.py": []}
        for _ in range(25):
            for name, seconds in runs.items():
                begun = time.monotonic()
                subprocess.run([sys.executable, folder / name], check=True)
                seconds.append(time.monotonic() - begun)
        (folder / "main.py").write_text("import time; print(flush=True); time.sleep(60)")
        process = subprocess.Popen([sys.executable, folder / "bootstrap.py"], stdout=subprocess.PIPE)
        assert process.stdout and process.stdout.readline()
        own = psutil.Process(process.pid).memory_full_info().uss / 1e6
        process.terminate()
        process.communicate()
    alone, both = (statistics.median(seconds) for seconds in runs.values())
    print(f"| the program alone | {alone:.3f} s |")
    print(f"| with the first process | {both:.3f} s, {both - alone:.3f} more |")
    print(f"| memory of the first process | {own:.1f} MB |", flush=True)


FIRST_STEP = """
import pulumi_trainer as trainer

def train():
    import time, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    print("FIRST STEP", time.time(), flush=True)
    dist.destroy_process_group()

job = trainer.TrainJob(
    "first-step", runtime="torch-distributed@2.3.0", wait_for="complete", run="{run}",
    trainer=trainer.CustomTrainer(
        func=train, num_nodes=2, packages_to_install=["torch>=2.6,<3", "numpy"], resources_per_node={{"cpu": 1, "memory": "1Gi"}},
    ),
)
"""


def first_step() -> None:
    """From `pulumi up` to the first step of two nodes, beside `torchrun` by hand in the same environment."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        env = environment(folder)
        timed(["pulumi", "stack", "init", "bench", "--non-interactive"], folder, env)
        ours, theirs = [], []
        for run in range(4):
            (folder / "__main__.py").write_text(FIRST_STEP.format(run=run))
            begun = time.time()
            timed(["pulumi", "up", *FLAGS], folder, env)
            (log,) = [
                p for p in folder.glob(".pulumi-trainer/jobs/**/*.log") if "-0/" in str(p) or "node-0-0" in str(p)
            ][:1]
            ours.append(step_at(log.read_text()) - begun)
            script = next(folder.glob(".pulumi-trainer/jobs/**/main.py"))
            theirs.append(by_hand(folder, script))
        timed(["pulumi", "destroy", *FLAGS], folder, env)
    print(f"| pulumi up | {statistics.median(ours[1:]):.1f} |")
    print(f"| torchrun by hand | {statistics.median(theirs[1:]):.1f} |")
    print(f"| difference | {statistics.median(o - t for o, t in zip(ours[1:], theirs[1:], strict=True)):.1f} |")


def by_hand(folder: Path, script: Path) -> float:
    """Two torchruns, as in the manual."""
    layer = next(Path("~/.cache/pulumi-trainer/environments").expanduser().glob("*/bin/torchrun"))
    copied = folder / "by_hand"
    shutil.copytree(script.parent, copied, dirs_exist_ok=True)
    begun = time.time()
    nodes = [
        subprocess.Popen(
            [str(layer), "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1", "--master-addr=127.0.0.1",
             "--master-port=29555", str(copied / script.name)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    text = nodes[0].communicate()[0]
    nodes[1].wait()
    return step_at(text) - begun


def step_at(text: str) -> float:
    """When the first step was done, by the clock of the program that did it."""
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("FIRST STEP"))


def main() -> None:
    """All tables, or those named."""
    chosen = sys.argv[1:] or [
        "imports",
        "render",
        "first-process",
        "digests",
        "first-step",
        "project",
        "releases",
        "runs",
        "100",
        "300",
    ]
    if "imports" in chosen:
        print("\n| import | seconds |\n| --- | --- |")
        imports()
    if "render" in chosen:
        rendering.main()
        queues.offline()
    if "first-process" in chosen:
        print("\n| start and end of a program that does nothing | |\n| --- | --- |")
        first_process()
    if "digests" in chosen:
        print("\n| a checkpoint of 1 GiB | 1 file, s | 4 files, s |\n| --- | --- | --- |")
        digests.measure(Path.cwd())
    if "first-step" in chosen:
        print("\n| from the command to the first step | seconds |\n| --- | --- |")
        first_step()
    if "project" in chosen:
        print("\n| projects | seconds |\n| --- | --- |")
        project(300)
    if "packages" in chosen:
        packages.measure()
    if "releases" in chosen:
        print("\n| releases | time | limit |\n| --- | --- | --- |")
        releases.catalogue()
        channel(300)
    if "pulumi" in chosen:
        once = "state written once, s | processor, s | ratio to this"
        print(f"\n| `up` of 200 suspended jobs | s | processor, s | ratio to the oldest | {once} |\n{'| --- ' * 7}|")
        pulumi_releases(200)
    if "runs" in chosen:
        print("\n| 1,000 runs of 50 jobs | seconds | processor time, s |\n| --- | --- | --- |")
        metrics_of_runs()
    counts = [int(c) for c in chosen if c.isdigit()]
    if counts:
        print("\n| jobs | what | ours, s | baseline, s | ratio |\n| --- | --- | --- | --- | --- |")
        for count in counts:
            many(count)


if __name__ == "__main__":
    main()
