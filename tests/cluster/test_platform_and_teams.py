"""examples/platform-and-teams, as its two teams run it: a channel moved, previewed by the team, trained with, and rolled back;
a hardened job in a restricted namespace, a policy pack, and what the team has used."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, NAMESPACE, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NAMESPACED, NEWEST
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import RELEASE, RUNTIME

from tests.engine.conftest import Project, pulumi_home  # noqa: F401 (a fixture)
from tests.engine.test_policy import pack  # noqa: F401 (a fixture)

from .queue_lab import with_plugin
from .test_usage import usage

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "platform-and-teams"


@pytest.fixture
def stacks(
    tmp_path: Path,
    pulumi_home: Path,  # noqa: F811
    cluster: Any,
    namespace: str,
    user_kubeconfig: Path,
) -> tuple[Project, Project]:
    """The platform's, which may look into all namespaces, and the team's, which has the least role, in one backend."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    (folder / "state").mkdir()
    made = []
    for name, kubeconfig in (("platform", cluster.kubeconfig), ("team", user_kubeconfig)):
        env = {"PULUMI_BACKEND_URL": f"file://{folder / 'state'}", "PATH": with_plugin()}
        project = Project(folder / name, pulumi_home, name=name, env=env)
        assert project.run("stack", "init").code == 0
        project.config("trainer:kubeconfig", str(kubeconfig))
        project.config("trainer:namespace", namespace)
        made.append(project)
    for team in ("sorters", "others"):
        made[0].config(team, namespace)
    made[1].config("platform", f"organization/platform/{made[0].stack}")
    return made[0], made[1]


def move(platform: Project, release: str) -> None:
    """The one line."""
    file = platform.folder / "__main__.py"
    text, count = re.subn(r"torch-team@[0-9.]+", f"torch-team@{release}", file.read_text())
    assert count == 1
    file.write_text(text)


def jobset(root: Client, namespace: str) -> tuple[str, str, bool]:
    """Release and run of the only job, and whether its nodes have what 1.1.0 adds."""
    (found,) = root.list(JOBSET, namespace)[0]
    assert found["metadata"]["labels"][QUEUE] == "sorters"
    labels, notes = found["metadata"]["labels"], found["metadata"]["annotations"]
    assert labels[RUNTIME] == "torch-team"
    pod = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    env = {e["name"] for e in pod["containers"][0]["env"]}
    return labels[RELEASE], notes["pulumi-trainer.dev/run"], "NCCL_DEBUG" in env


def test_hardening_policy_and_usage_together(
    stacks: tuple[Project, Project],
    root: Client,
    namespace: str,
    pack: str,  # noqa: F811
    user_kubeconfig: Path,
) -> None:
    platform, team = stacks
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    root.patch(NAMESPACE, "", namespace, label)
    platform.up()
    team.config("nodes", "3")
    refused = team.preview("--policy-pack", pack, ok=False).out
    assert "asks for 24 GPUs; more than 16 need priority='high'" in refused
    team.config("priority", "high")
    assert "asks for" not in team.preview("--policy-pack", pack).out
    assert "Succeeded" in team.up("--policy-pack", pack).out
    (found,) = root.list(JOBSET, namespace)[0]
    pod = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
    (row,) = usage(user_kubeconfig, "-n", namespace, "--by", "team")["rows"]
    assert row["team"] == "sorters" and row["jobs"] == 1 and row["gpuHours"] > 0
    team.destroy()
    platform.destroy()


def test_a_channel_moved_previewed_trained_with_and_rolled_back(
    stacks: tuple[Project, Project], root: Client, namespace: str
) -> None:
    platform, team = stacks
    assert re.search(r"sorters +h100 +32 +all +all +64", platform.plain_up().out)
    assert "Succeeded" in team.plain_up().out
    assert jobset(root, namespace) == ("1.0.0", "1", False)

    move(platform, "1.1.0")
    told = platform.preview().out
    assert "channel stable: torch-team 1.0.0 => 1.1.0: minor for jobs" in told
    assert "1 job on the next run: minor" in told and f"{namespace}/sorter-" in told
    platform.up()
    told = team.preview().out
    assert "stable has torch-team 1.1.0, but this job has 1.0.0 (minor: " in told and "On its next run" in told
    assert jobset(root, namespace) == ("1.0.0", "1", False)

    team.config("run", "2")
    team.up()
    assert jobset(root, namespace) == ("1.1.0", "2", True)

    move(platform, "1.0.0")
    platform.up()
    team.config("run", "3")
    team.up()
    assert jobset(root, namespace) == ("1.0.0", "3", False)

    refused = platform.destroy(ok=False).out
    assert f"    error: channel stable: 1 job uses it, none of which may still run: {namespace}/sorter-" in refused
    team.destroy()
    platform.destroy()
    assert not root.list(JOBSET, namespace)[0]
    made = {"gpus", "gpus-sorters", "gpus-others", "sorters", "others", "low", "normal", "high", "h100"}
    for kind, plural in KINDS.items():
        left, _ = root.list(Kind(f"{GROUP}/{NEWEST}", kind, plural, kind == NAMESPACED))
        assert not made & {each["metadata"]["name"] for each in left}, kind
    assert not [c for c in root.list(CONFIG_MAP, namespace)[0] if c["metadata"]["name"].startswith("sorter")]
