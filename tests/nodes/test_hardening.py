"""Restricted training on real nodes, in a namespace that enforces Pod Security: fetched data, code from a function, an output, a
log, and a copy of the output.

Containers see the clone at its own path, which must not be below /tmp: an emptyDir is mounted there.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kubernetes import client
from kubernetes.client import ApiClient
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac

from tests.cluster.conftest import USER
from tests.cluster.least import made
from tests.cluster.test_up import Lab
from tests.cluster.test_up import lab as stack  # noqa: F401 (a fixture)

PROGRAM = """
def train(word):
    import getpass, os, pathlib
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, total = dist.get_rank(), torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    data = (pathlib.Path(os.environ["TRAINER_DATASET_DIR"]) / "numbers").read_text()
    (pathlib.Path.home() / ".cache").mkdir(exist_ok=True)
    (pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"]) / f"rank-{rank}").write_text(word)
    status = dict(line.split(":\\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    limits = [status[name].strip() for name in ("CapBnd", "NoNewPrivs", "Seccomp")]
    token = os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token")
    print(f"rank {rank} of {int(total)}: {getpass.getuser()} {os.getuid()} {os.getgid()} {limits} {token} {data}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


data = trainer.DatasetInitializer("numbers", storage_uri="file://data", access_mode="ReadWriteMany")
job = trainer.TrainJob(
    "train", runtime="torch-distributed", name="train-restricted", output=True, wait_for="complete",
    initializer=trainer.Initializer(dataset=data),
    trainer=trainer.CustomTrainer(func=train, func_args={"word": "trained"}, num_nodes=2),
)
pulumi.export("phase", job.phase)
"""


def test_restricted_training(stack: Lab, admin: ApiClient, tmp_path: Path) -> None:  # noqa: F811
    assert Path("/tmp") not in Path(__file__).resolve().parents, "an emptyDir hides this clone from containers: move it"
    core = client.CoreV1Api(admin)
    core.patch_namespace(
        stack.namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    (stack.folder / "data").mkdir()
    (stack.folder / "data" / "numbers").write_text("1 2 3")
    stack.program(PROGRAM)
    refused = " ".join(stack.preview(ok=False).out.split())
    assert 'violates PodSecurity "restricted:latest"' in refused and 'hardening="restricted"' in refused, refused

    stack.config("trainer:hardening", "restricted")
    stack.up()
    assert stack.outputs()["phase"] == "Succeeded", [p.status for p in core.list_namespaced_pod(stack.namespace).items]

    def command(*argv: str) -> subprocess.CompletedProcess[str]:
        whole = ["pulumi-trainer", *argv, "--stack", stack.stack]
        done = subprocess.run(
            whole, cwd=stack.folder, env=stack.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done

    log = command("logs", "train").stdout
    expected = r"rank (\d) of 3: nonroot 1000 1000 \['0{16}', '1', '2'\] False 1 2 3"
    assert {*re.findall(expected, log)} >= {"0"}, log

    subject = rbac.Subject("ServiceAccount", USER, stack.namespace)
    for role in rbac.objects(rbac.output_permissions(), [stack.namespace], [subject], of="-outputs"):
        if not role["kind"].startswith("Cluster"):
            made(client.RbacAuthorizationV1Api(admin), role, stack.namespace)
    command("outputs", "train", "--copy", str(tmp_path / "copy"))
    assert {(tmp_path / "copy" / f"rank-{rank}").read_text() for rank in (0, 1)} == {"trained"}
    stack.destroy()
