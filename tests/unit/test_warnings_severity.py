"""Warnings ignored, and made errors: by a command line, a mapping, an annotation, a stack's configuration."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
import yaml
from pulumi_trainer.plan import review, runtime_ref, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.trainer.admission.warnings import IGNORE, RULES, Severities, Warning
from pulumi_trainer.provider.trainer.releases import DEFAULT
from warnings_support import found, job, patched, runtime

from tests.trainer import render

ROOT = Path(__file__).resolve().parents[2]
PYTHON = {"numNodes": 2, "command": ["python3", "train.py"]}
GIVEN: tuple[dict[str, Any], dict[str, Any]] = (
    runtime({"torch": {}}),
    job(PYTHON, runtimePatches=patched(containers=[{"name": "side"}])),
)


def told(severities: Severities, annotations: dict[str, Any] | None = None) -> tuple[list[str], list[str]]:
    """Codes of errors and warnings; "" for what is no warning of ours."""
    train_job = {"metadata": {"annotations": annotations or {}}}
    errors, rest = severities.split(found(*GIVEN), train_job)
    return [e.code for e in errors], [getattr(w, "code", "") for w in rest]


def test_by_default_all_are_told() -> None:
    assert told(Severities()) == ([], ["PT105", "PT107"])
    assert told(Severities.none()) == ([], [])


def test_of_lists() -> None:
    assert told(Severities.of(ignore=["PT107"], error=["PT105"])) == (["PT105"], [])
    assert told(Severities.of(ignore=["PT105,PT107 PT112"])) == ([], [])
    assert told(Severities.of(ignore=["PT105"], error=["PT105"])) == (["PT105"], ["PT107"])


def test_of_an_annotation() -> None:
    assert told(Severities(), {IGNORE: "PT105, PT112"}) == ([], ["PT107"])
    assert told(Severities.of(error=["PT105"]), {IGNORE: "PT105,PT107"}) == (["PT105"], [])
    assert told(Severities(), {IGNORE: "PT105 PT999"}) == ([], ["PT107", ""])
    assert told(Severities(), {IGNORE: None}) == ([], ["PT105", "PT107"])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"PT99": "ignore"}, "PT99: unknown warning code 'PT99'"),
        ({"pt105": "ignore"}, "did you mean PT105?"),
        ({"PT105": "no"}, "PT105: must be ignore, warning or error, not 'no'"),
        (["PT105"], "must be a mapping"),
    ],
)
def test_what_is_wrong(given: Any, text: str) -> None:
    with pytest.raises(Invalid, match=re.escape(text)):
        Severities.read(given)


def test_a_stacks_configuration() -> None:
    def cautions(configured: str | None, *, cluster: bool = True) -> tuple[list[str], list[str]]:
        pulumi.runtime.set_all_config({"trainer:warnings": configured} if configured else {})
        refused, rest = review.classified_warnings(*GIVEN, render(*GIVEN).objects, [], DEFAULT, cluster=cluster)
        return [str(p) for p in refused], [p.code for p in rest if isinstance(p, Warning)]

    assert cautions(None) == ([], ["PT105", "PT107"])
    [error], rest = cautions('{"PT105": "error", "PT107": "ignore"}')
    assert error.startswith("PT105: spec.trainer.command: ") and rest == []
    assert cautions('{"PT5": "error"}')[0][0].startswith(
        "trainer:warnings PT5 of the stack: unknown warning code 'PT5'"
    )
    assert "trainer:warnings" in cautions("[")[0][0]
    shared = [{"metadata": {"name": "a"}, "spec": {"network": {"subdomain": "job"}}}]
    pulumi.runtime.set_all_config({})
    for cluster, wanted in ((True, ["PT104", "PT105", "PT107"]), (False, ["PT105", "PT107"])):
        _, rest_ = review.classified_warnings(*GIVEN, render(*GIVEN).objects, shared, DEFAULT, cluster=cluster)
        assert [getattr(p, "code", "") for p in rest_] == wanted


DOCUMENT = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", **job(PYTHON)}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    return str(path)


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(words)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_on_the_command_line(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "validate", file)
    assert code == 0 and "  warning: PT105: spec.trainer.command: " in out
    code, out, _ = ran(capsys, "validate", file, "--ignore", "PT105")
    assert code == 0 and "PT105" not in out
    code, out, _ = ran(capsys, "validate", file, "--error", "PT105")
    assert code == 1 and "refused because of warnings that count as errors" in out and "  error: spec.trainer" in out
    code, out, _ = ran(capsys, "validate", file, "-o", "json")
    assert json.loads(out)["warnings"][0].startswith("PT105: ")
    code, out, err = ran(capsys, "render", file)
    assert code == 0 and "PT105" in err and "kind: JobSet" in out
    code, out, err = ran(capsys, "render", file, "--error", "PT105")
    assert (code, out) == (1, "") and "PT105" in err


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_what_an_api_server_refuses_later_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """In mode trainer too, where Trainer admits the job and its controllers try for ever."""
    resources: dict[str, Any] = {"requests": {"nvidia.com/gpu": 1}}
    path, words = tmp_path / "job.yaml", ("--mode", mode, str(tmp_path / "job.yaml"))
    documents = (
        {"apiVersion": DOCUMENT["apiVersion"], **runtime({"torch": {}})},
        {**DOCUMENT, **job({"resourcesPerNode": resources})},
    )
    path.write_text(yaml.safe_dump_all(documents))
    code, out, _ = ran(capsys, "validate", *words)
    assert code == 1 and "TrainJob default/job is refused by the API server when its Jobs and Pods are created" in out
    why = "the container node requests 1 nvidia.com/gpu without a limit: Limit must be set for non overcommitable resources"
    assert re.search(rf"error: spec.trainer.resourcesPerNode \(line \d+\): PT130: {why}. Hint: set it in limits, ", out)
    code, out, _ = ran(capsys, "validate", *words, "-o", "json")
    (error,) = json.loads(out)["errors"]
    assert (
        code == 1 and error["field"] == "spec.trainer.resourcesPerNode" and error["detail"].startswith(f"PT130: {why}")
    )
    assert ran(capsys, "validate", *words, "--ignore", "PT130")[0] == 0
    documents[1]["metadata"]["annotations"] = {IGNORE: "PT130"}
    path.write_text(yaml.safe_dump_all(documents))
    assert ran(capsys, "validate", *words)[0] == 0
    resources["limits"] = resources["requests"]
    path.write_text(yaml.safe_dump_all(documents))
    assert "PT130" not in ran(capsys, "validate", *words)[1]


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_what_an_api_server_refuses_later_refuses_a_plan(mode: Any) -> None:
    """Of a job in a cluster; no API server sees that of this machine."""
    given = runtime({"torch": {}}), job({"resourcesPerNode": {"requests": {"nvidia.com/gpu": 1}}})
    objects = render(*given, mode=mode).objects
    pulumi.runtime.set_all_config({})
    refused, rest = review.classified_warnings(*given, objects, [], DEFAULT, cluster=True, mode=mode)
    assert [getattr(p, "code", "") for p in refused] == ["PT130"] and rest == []
    assert review.classified_warnings(*given, objects, [], DEFAULT, cluster=False, mode=mode) == ([], [])
    pulumi.runtime.set_all_config({"trainer:warnings": '{"PT130": "warning"}'})
    refused, rest = review.classified_warnings(*given, objects, [], DEFAULT, cluster=True, mode=mode)
    pulumi.runtime.set_all_config({})
    assert refused == [] and [getattr(p, "code", "") for p in rest] == ["PT130"]


def test_codes_that_are_none(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.run(["validate", file, "--error", "PT1"])
    assert caught.value.code == 2 and "unknown warning code 'PT1'" in capsys.readouterr().err


def test_other_documents_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flavors with taints, and another job with the same subdomain."""
    documents: list[dict[str, Any]] = [
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "gpu"},
         "spec": {"nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}]}},
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "other"},
         "spec": {"network": {"subdomain": "job"}}},
        {**DOCUMENT, **job({"command": ["torchrun", "a.py"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}})},
    ]  # fmt: skip
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    _, out, _ = ran(capsys, "validate", str(path))
    assert re.findall("warning: (PT[0-9]+)", out) == ["PT104", "PT111"]


def test_a_batch_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "input.yaml").write_text(yaml.safe_dump(DOCUMENT))
    assert ran(capsys, "validate", "--batch", str(tmp_path))[0] == 0
    assert "PT105" not in (tmp_path / "a" / "actual.json").read_text()
    with pytest.raises(SystemExit):
        cli.run(["validate", "--batch", str(tmp_path), "--ignore", "PT105"])


def test_the_table_of_the_documentation() -> None:
    rows = re.findall(r"^\| (PT[0-9]+) \| ([^|]+) \|", (ROOT / "docs" / "warnings.md").read_text(), re.M)
    assert rows == [(rule.code, rule.title) for rule in RULES]


def test_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the program, and for a job that shares a subdomain with an earlier one of the program."""
    monkeypatch.setattr(runtime_ref, "from_catalogue", lambda _: (copy.deepcopy(RUNTIME), []))

    async def planned(*names: str, target: Any) -> list[Plan]:
        trainer_ = trainer.CustomTrainer(command=["python3", "train.py"], num_nodes=2)
        given = [TrainJobArgs("job", runtime="r", name=name, trainer=trainer_, target=target) for name in names]
        return [await trainjob_plan.plan(args) for args in given]

    def codes(plan: Plan) -> list[str]:
        return [w.code for w in plan.warnings if isinstance(w, Warning)]

    pulumi.runtime.set_all_config({})
    first, second = asyncio.run(planned("first", "second", target=trainer.Kubernetes()))
    assert codes(first) == ["PT105", "PT120"] and codes(second) == ["PT104", "PT105", "PT120"]
    assert str(first.warnings[0]).startswith("PT105: trainer.command: ") and first.problems == []
    [plan] = asyncio.run(planned("first", target=trainer.Local()))
    assert codes(plan) == ["PT105", "PT120"]
    pulumi.runtime.set_all_config({"trainer:warnings": '{"PT105": "error", "PT120": "ignore"}'})
    [plan] = asyncio.run(planned("first", target=trainer.Kubernetes()))
    assert [str(p).partition(" ")[0] for p in plan.problems] == ["PT105:"] and codes(plan) == []
    pulumi.runtime.set_all_config({})


def test_checkpoints_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode jobset adds the rules for disruptions, mode trainer cannot; Local has no evictions."""
    given = {"apiVersion": "trainer.kubeflow.org/v1alpha1", **runtime({"torch": {}})}
    monkeypatch.setattr(runtime_ref, "from_catalogue", lambda _: (copy.deepcopy(given), []))

    def codes(command: list[str], target: Any) -> list[str]:
        args = TrainJobArgs(
            "job", runtime="r", target=target, checkpoint=trainer.CheckpointPolicy(),
            trainer=trainer.CustomTrainer(command=command),
        )  # fmt: skip
        plan = asyncio.run(trainjob_plan.plan(args))
        assert plan.problems == []
        return [w.code for w in plan.warnings if isinstance(w, Warning)]

    pulumi.runtime.set_all_config({})
    assert codes(["./train"], trainer.Kubernetes(mode="trainer")) == ["PT134", "PT135"]
    assert codes(["./train"], trainer.Kubernetes()) == ["PT135"]
    assert codes(["./train"], trainer.Local()) == ["PT135"]
    assert codes(["torchrun", "train.py"], trainer.Kubernetes()) == []


RUNTIME = {"apiVersion": "trainer.kubeflow.org/v1alpha1", **runtime({"torch": {}}, network={"subdomain": "shared"})}
