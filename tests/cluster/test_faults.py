"""Faults between the program and the API server, and between people, through the real engine on a real API server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, EVENT, NAMESPACE, POD, SECRET
from pulumi_trainer.provider.trainer.kinds import JOBSET

from . import least
from .conftest import USER
from .jobs import left, until
from .proxy import Answer, Cut, Delay, Fault, Hang, Lose, Proxy, Request, Reset, Rule, every
from .test_up import PLAIN, Lab, head, lab, program, pulumi_home  # noqa: F401 (fixtures)

SOON = "run: 2s"
COMPLETE = program('), wait_for="complete",')


@pytest.fixture
def proxy(cluster: Any) -> Iterator[Proxy]:
    with Proxy(cluster.kubeconfig) as made:
        yield made


@pytest.fixture
def behind(lab: Lab, proxy: Proxy, user_kubeconfig: Path, tmp_path: Path) -> Lab:  # noqa: F811
    """The stack reaches its cluster through the proxy."""
    lab.config("trainer:kubeconfig", str(proxy.kubeconfig(tmp_path / "proxied", like=user_kubeconfig)))
    return lab


def one_job(lab: Lab) -> dict[str, Any]:  # noqa: F811
    found, _ = lab.root_client.list(JOBSET, lab.namespace)
    assert len(found) == 1, [j["metadata"]["name"] for j in found]
    return found[0]


FAULTS: tuple[Fault, ...] = (
    Answer(429, after=1), Answer(500), Answer(503), Reset(), Hang(0.5), Delay(0.5), Lose(),
)  # fmt: skip


def rotating(faults: Sequence[Fault], number: int) -> Rule:
    """Every `number`th request, the first included, meets the next of the faults."""
    meant = every(number, Reset())
    turn = itertools.cycle(faults)
    return lambda request: next(turn) if meant(request) else None


def test_up_refresh_and_destroy_go_through_a_bad_connection(behind: Lab, proxy: Proxy) -> None:
    """All faults in turn, for every second request; watches are cut after three events."""
    behind.program(COMPLETE, head(SOON))
    spoilt = rotating(FAULTS, 2)
    proxy.rule = lambda r: Cut(3) if r.watch else spoilt(r)
    up = behind.up()
    assert behind.outputs()["phase"] == "Succeeded", up
    uid = one_job(behind)["metadata"]["uid"]
    behind.refresh()
    assert one_job(behind)["metadata"]["uid"] == uid
    behind.destroy()
    assert left(behind.root_client, behind.namespace) == []
    assert proxy.count() > 3 * len(FAULTS), "each has come more than once"


@pytest.mark.parametrize("quietly", [True, False], ids=["ended", "broken"])
def test_watches_that_end_at_once_lose_nothing(behind: Lab, proxy: Proxy, quietly: bool) -> None:
    behind.program(COMPLETE, head(SOON))
    proxy.rule = lambda r: Cut(1, quietly) if r.watch else None
    behind.up()
    assert behind.outputs()["phase"] == "Succeeded"
    assert proxy.count(lambda r: r.watch) < 400, "with back-off"


def test_a_server_that_is_away_is_said_and_nothing_is_lost(behind: Lab, proxy: Proxy) -> None:
    behind.program(PLAIN, head())
    behind.up()
    pods = behind.pods(2)
    proxy.rule = lambda _: Answer(503, message="the server is currently unable to handle the request")
    refused = behind.refresh(ok=False)
    assert "unable to handle the request" in refused.out and "Traceback" not in refused.out
    proxy.reset()
    behind.up()
    assert behind.pods(2) == pods


def test_a_token_that_is_refused_midway_is_said_and_a_new_one_goes_on(
    behind: Lab, proxy: Proxy, user_kubeconfig: Path, tmp_path: Path
) -> None:
    behind.program(COMPLETE, head("outcome: forever"))
    process = behind.start("up", "--yes", "--skip-preview")
    pods = behind.pods(2)
    until(behind.resources)
    proxy.rule = lambda _: Answer(401, reason="Unauthorized", message="Unauthorized")
    proxy.break_streams()
    out, _ = process.communicate(timeout=90)
    assert process.returncode != 0
    assert "Unauthorized" in out and "log in again" in out and "Traceback" not in out, out
    proxy.reset()
    behind.program(PLAIN, head("outcome: forever"))
    behind.up()
    assert behind.pods(2) == pods
    behind.destroy()


def test_permission_that_is_lost_midway_is_said_and_waits_to_come_back(
    lab: Lab, admin: ApiClient, namespace: str  # noqa: F811
) -> None:  # fmt: skip
    lab.program(PLAIN, head())
    lab.up()
    pods = lab.pods(2)
    least.grant(
        admin, namespace, USER, [p for p in least.EVERYTHING if "jobsets" not in str(p) and "configmaps" not in str(p)]
    )
    for refused in (lab.destroy(ok=False), lab.refresh(ok=False)):
        assert "forbidden" in refused.out and "pulumi-trainer rbac" in refused.out, refused
        assert "Traceback" not in refused.out, refused
    assert lab.pods(2) == pods
    least.grant(admin, namespace, USER)
    lab.destroy()
    assert left(lab.root_client, lab.namespace) == []


def test_a_namespace_deleted_under_a_job(lab: Lab, cluster: Any) -> None:  # noqa: F811
    lab.program(COMPLETE, head("outcome: forever"))
    process = lab.start("up", "--yes", "--skip-preview")
    lab.pods(2)
    until(lab.resources)
    lab.root_client.delete(NAMESPACE, "", lab.namespace, propagation="Background")
    out, _ = process.communicate(timeout=90)
    assert process.returncode != 0 and "Traceback" not in out, out
    assert "Deleted" in out or "exit code 143" in out, (
        out
    )  # the server deletes in an order of its own, pods first or last
    until(lambda: lab.root_client.get(NAMESPACE, "", lab.namespace) is None)
    refused = lab.up(ok=False)
    assert "namespace" in refused.out.lower() and "Traceback" not in refused.out, refused
    lab.config("trainer:kubeconfig", str(cluster.kubeconfig))  # the user's account and rights went with the namespace
    lab.root_client.create(
        NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": lab.namespace}}
    )  # as the error says
    lab.destroy("--run-program")
    assert not lab.resources()


NAMED = program('), name="digits",')


def other_team(lab: Lab, tmp_path: Path, name: str = "others") -> Lab:  # noqa: F811
    """Another project and state, in the same namespace with the same access."""
    folder = tmp_path / "others"
    (folder / "state").mkdir(parents=True)
    made = Lab(folder, lab.home, name=name)
    made.namespace, made.root_client = lab.namespace, lab.root_client
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": made.name, "runtime": "python", "main": "."}))
    assert made.run("stack", "init").code == 0
    for key, value in yaml.safe_load((lab.folder / "Pulumi.test.yaml").read_text())["config"].items():
        made.config(key, value)
    return made


def test_two_teams_with_one_name_in_one_namespace(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    lab.program(NAMED, head())
    lab.up()
    pods, before = lab.pods(2), one_job(lab)
    others = other_team(lab, tmp_path)
    others.program(NAMED, head())
    refused = others.up(ok=False)
    assert "digits" in refused.out and "belongs to the stack lab/test" in refused.out and "Traceback" not in refused.out
    assert not others.resources()
    others.destroy()
    ours = ("uid", "generation", "annotations", "labels", "ownerReferences")
    after = one_job(lab)
    assert lab.pods(2) == pods and all(after["metadata"][key] == before["metadata"][key] for key in ours)
    assert after["spec"] == before["spec"]
    lab.preview("--expect-no-changes")


def test_two_projects_with_the_same_program_make_two_jobs(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    lab.program(PLAIN, head())
    lab.up()
    pods = lab.pods(2)
    others = other_team(lab, tmp_path)
    others.program(PLAIN, head())
    others.up()
    assert len(lab.pods(4)) == 4
    others.destroy()
    assert lab.pods(2) == pods


def test_two_stacks_with_one_name(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    """Of one project, in two backends: two clones of a repository. The second one gets nothing and takes nothing."""
    lab.program(PLAIN, head())
    lab.up()
    pods = lab.pods(2)
    others = other_team(lab, tmp_path, lab.name)
    others.program(PLAIN, head())
    refused = others.up(ok=False)
    assert "another stack" in refused.out and "Traceback" not in refused.out, refused
    others.destroy()
    assert lab.pods(2) == pods
    lab.preview("--expect-no-changes", "--refresh")
    lab.destroy()
    assert left(lab.root_client, lab.namespace) == []


def test_both_at_once_with_one_name_make_one_job(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    others = other_team(lab, tmp_path)
    for each in (lab, others):
        each.program(NAMED, head())
    ups = [each.start("up", "--yes", "--skip-preview") for each in (lab, others)]
    outs = [up.communicate(timeout=120)[0] for up in ups]
    assert sorted(up.returncode != 0 for up in ups) == [False, True], outs
    assert len(lab.pods(2)) == 2
    winner = (lab, others)[[up.returncode for up in ups].index(0)]
    winner.preview("--expect-no-changes")


def test_five_thousand_events(behind: Lab, proxy: Proxy) -> None:
    def event(number: int) -> None:
        about = {"kind": "Pod", "namespace": behind.namespace, "name": f"other-{number % 500}", "apiVersion": "v1"}
        behind.root_client.create(EVENT, {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e-{number}", "namespace": behind.namespace},
            "involvedObject": about, "reason": "Noise", "message": "x" * 500, "type": "Warning",
        })  # fmt: skip

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(event, range(5000)))
    behind.program(COMPLETE, head("outcome: fail, run: 1s, exit-code: 7"))
    failed = behind.up(ok=False)
    assert "exit code 7" in failed.out and "Noise" not in failed.out
    assert proxy.count(path="/events") < 100


def test_tokens_and_secrets_are_told_nowhere(behind: Lab, proxy: Proxy, tmp_path: Path) -> None:
    """Through faults that quote what they were asked with, in a plan, an update, a refresh and their logs."""
    canary = "canary-9a1c3f"
    token = yaml.safe_load((tmp_path / "proxied").read_text())["users"][0]["user"]["token"]
    secret = f'env={{"TOKEN": pulumi.Output.secret("{canary}")}}'
    behind.program(program(f"{secret}),"), head())
    texts = [behind.preview("--diff", "--logtostderr", "-v=3").out]
    seen: list[Request] = []

    def quoting(request: Request) -> Fault | None:
        seen.append(request)
        if request.path.endswith("/secrets") or "/secrets/" in request.path:
            return Answer(422, reason="Invalid", message=f"Secret is invalid: {request.body.decode()}")
        return None

    proxy.rule = quoting
    texts.append(behind.up("--logtostderr", "-v=3", ok=False).out)
    assert any("/secrets" in r.path for r in seen)
    proxy.rule = lambda _: Answer(400, message=f"Bearer {token} is not liked")
    texts.append(behind.up(ok=False).out)
    proxy.reset()
    texts.append(behind.up("--logtostderr", "-v=3", "--diff").out)
    texts.append(behind.refresh().out)
    texts.append(json.dumps(behind.export()))
    texts.append("".join(p.read_text(errors="replace") for p in (behind.folder / "state").rglob("*") if p.is_file()))
    texts.append(json.dumps([behind.root_client.list(kind, behind.namespace)[0] for kind in (JOBSET, CONFIG_MAP, POD)]))
    for text in texts:
        assert canary not in text and token not in text
    assert len(behind.root_client.list(SECRET, behind.namespace)[0]) == 1
