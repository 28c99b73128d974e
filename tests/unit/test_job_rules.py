"""Rules of a platform team: what they say of a job, their file, and the same rules in policy packs and for API servers."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.documents import Document
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.offline import Cluster, Verdicts, judge
from pulumi_trainer.provider.trainer.offline.job_rules import judge_by_rules
from pulumi_trainer.provider.trainer.policy.admission_policies import render_policies, rules_elsewhere
from pulumi_trainer.provider.trainer.policy.reading import _KEYS, read_rules, to_document
from pulumi_trainer.provider.trainer.policy.rules import JobRules, find_beyond_team, find_broken, is_allowed_image
from pulumi_trainer.provider.trainer.policy.summary import summarize
from pulumi_trainer.provider.trainer.releases import DEFAULT, RELEASES

from tests.cluster import test_job_rules as generated

LATER = Unknown("later")


def main(arguments: list[str]) -> int:
    """Run a command in this process, and return its exit code."""
    from pulumi_trainer.provider.cli.main import main as run

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["pulumi-trainer", *arguments])
        run()
        raise SystemExit(0)
    return int(ended.value.code or 0)


JOB = {"nodes": 1, "gpus": 8, "images": ["ghcr.io/acme/train:1"], "runtime": "torch-team", "queue": "nlp"}

RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: torch-team, namespace: nlp, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: ghcr.io/acme/train:1, command: [torchrun, a.py]}]}}}
"""
TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: NAME, namespace: nlp, labels: {kueue.x-k8s.io/queue-name: nlp}}
spec:
  runtimeRef: {name: torch-team, kind: TrainingRuntime, apiGroup: trainer.kubeflow.org}
  trainer: {numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 4}}}
"""


def write(folder: Path, **rules: Any) -> Path:
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (JobRules(registries=["nvcr.io", "ghcr.io/other"]), "image ghcr.io/acme/train:1 is not from nvcr.io or ghcr.io/other"),
        (JobRules(digests=True), "image ghcr.io/acme/train:1 has no digest, so what it names may change"),
        (JobRules(gpus={"": 4, "high": 64}), "the job has 8 GPUs; jobs without a priority have at most 4"),
        (JobRules(runtimes=["jax-*", "torch"]), "runtime torch-team is not allowed"),
        (JobRules(channels=["stable"]), "its runtime comes from no channel"),
        (JobRules(gpus={"high": 4, "low": 2}), ""),
        (JobRules(checkpoints=["nlp"]), "jobs of queue nlp may be preempted, and this one saves no checkpoints"),
    ],
)  # fmt: skip
def test_a_broken_rule_says_what_is_wrong(rules: JobRules, said: str) -> None:
    assert [broken.why for broken in find_broken(rules, JOB)] == [*filter(None, [said])]


def test_a_limit_holds_for_a_job_whose_gpus_cannot_be_counted() -> None:
    job = {**JOB, "priority": "low"}
    (broken,) = find_broken(JobRules(gpus={"low": 4}), {name: job[name] for name in job if name != "gpus"})
    assert broken.why == "it is not known how many GPUs the job has; at most 4 are allowed"
    (broken,) = find_broken(JobRules(gpus={"low": 4, "high": 8}), job)
    assert (broken.why, broken.hint) == (
        "the job has 8 GPUs; jobs of priority low have at most 4",
        "fewer GPUs, or priority high",
    )


def test_a_container_without_an_image_is_said_so() -> None:
    (broken,) = find_broken(JobRules(registries=["ghcr.io"], digests=True), {**JOB, "images": [""]})
    assert broken.why == "a container has no image"


@pytest.mark.parametrize(
    ("rules", "job"),
    [
        (JobRules(), {}),
        (JobRules(registries=["ghcr.io/acme"], digests=False, queue=True, host_access=False), JOB),
        (JobRules(gpus={"": 4, "high": 64}), {**JOB, "priority": "high"}),
        (JobRules(gpus={"high": 4}), JOB),
        (JobRules(runtimes=["torch-*"], channels=["stable"]), {**JOB, "channel": "stable"}),
        (JobRules(checkpoints=["nlp"]), {**JOB, "saves_checkpoints": True}),
        (JobRules(checkpoints=["nlp"]), {**JOB, "queue": "other"}),
        (JobRules(gpus={"": 4}, digests=True, registries=["a.io"], runtimes=["x"]), {"queue": LATER, "gpus": LATER}),
        (JobRules(gpus={"": 4}, checkpoints=["nlp"]), {**JOB, "priority": LATER, "saves_checkpoints": LATER}),
    ],
)  # fmt: skip
def test_other_jobs_are_allowed(rules: JobRules, job: dict[str, Any]) -> None:
    assert find_broken(rules, job) == []


@pytest.mark.parametrize(
    ("image", "registry", "allowed"),
    [
        ("ghcr.io/acme/train:1", "ghcr.io", True),
        ("ghcr.io.evil.com/acme/train", "ghcr.io", False),
        ("ghcr.io:5000/acme/train", "ghcr.io", False),
        ("localhost:5000/train", "localhost:5000", True),
        ("ghcr.io/acme-evil/train", "ghcr.io/acme", False),
        ("ghcr.io/acme/train@sha256:0", "ghcr.io/acme/train", True),
        ("ghcr.io/acme/train:1", "ghcr.io/acme/train", True),
        ("ghcr.io/acme/trainer", "ghcr.io/acme/train", False),
        ("python:3.12", "docker.io", True),
        ("python", "docker.io/library", True),
        ("evil/python", "docker.io/library", False),
        ("evil/ghcr.io", "ghcr.io", False),
        ("EVIL/python", "docker.io", False),
        ("docker.io/python", "docker.io/library", True),
        ("index.docker.io/library/python", "docker.io", True),
        ("docker.io/acme", "docker.io/acme", False),
        ("acme/x:1", "docker.io/acme", True),
    ],
)
def test_an_image_is_from_the_registry_that_a_node_asks(image: str, registry: str, allowed: bool) -> None:
    assert is_allowed_image(image, [registry]) is allowed


def test_the_gpus_of_a_namespace_count_together() -> None:
    rules = JobRules(team_gpus={"nlp": 16})
    assert find_beyond_team(rules, {"nlp": 16, "vision": 99}) == {}
    why = "the jobs of namespace nlp have 17 GPUs together; at most 16 are allowed"
    assert find_beyond_team(rules, {"nlp": 17}) == {"nlp": why}


def jobset(**pod: Any) -> dict[str, Any]:
    step = {"name": "node", "replicas": 1, "template": {"spec": {"template": {"spec": pod}}}}
    return {"kind": "JobSet", "metadata": {"name": "a"}, "spec": {"replicatedJobs": [step]}}


def test_a_summary_has_how_pods_use_their_node_and_all_images() -> None:
    pod = {
        "hostNetwork": True,
        "volumes": [{"name": "x", "hostPath": {"path": "/"}}, {"name": "y", "image": {"reference": "c"}}],
        "initContainers": [{"name": "setup", "image": "b", "securityContext": {"privileged": True}}],
        "containers": [{
            "name": "node", "image": "a", "ports": [{"containerPort": 1, "hostPort": 1}],
            "env": [{"name": "TRAINER_CHECKPOINT_DIR", "value": "/x"}],
        }],
    }  # fmt: skip
    found = summarize(jobset(**pod), {}, 1, {"name": "torch"}, Queues())
    assert found["images"] == ["a", "b", "c"]
    assert len(found["host_access"]) == 4
    for each, words in zip(
        found["host_access"], ("hostNetwork=true", "hostPath", "hostPort", "privileged"), strict=True
    ):
        assert each.startswith("node: ") and words in each
    assert found["saves_checkpoints"] is True
    for context, said in (
        ({"capabilities": {"add": ["SYS_ADMIN", "IPC_LOCK"]}}, "SYS_ADMIN"),
        ({"procMount": "Unmasked"}, "procMount"),
    ):
        given = jobset(containers=[{"name": "a", "image": "a", "securityContext": context}])
        assert summarize(given, {}, 1, {"name": "torch"}, Queues())["host_access"][0].count(said)
    plain = summarize(jobset(containers=[{"name": "node", "image": "a"}]), {}, 1, {"name": "torch"}, Queues())
    assert {"host_access", "saves_checkpoints", "channel"}.isdisjoint(plain)


def test_what_is_not_known_yet_hides_nothing_else() -> None:
    node = {"name": "node", "image": "a", "env": [{"name": "A", "value": LATER}]}
    node["resources"] = {"limits": {"nvidia.com/gpu": 8}}
    found = summarize(jobset(containers=[node, {"name": "b", "image": LATER}]), {}, 1, {"name": "torch"}, Queues())
    assert (found["images"], found["gpus"]) == (["a", LATER], 8)
    assert "saves_checkpoints" not in found
    for env in (LATER, [{"name": LATER, "value": "1"}]):
        found = summarize(jobset(containers=[{**node, "env": env}]), {}, 1, {"name": "torch"}, Queues())
        assert found["saves_checkpoints"] == LATER
    labelled = {"kind": "JobSet", "metadata": {"labels": LATER}}
    found = summarize(jobset(containers=[node]), labelled, 1, {"name": "torch"}, Queues())
    assert found["queue"] == found["priority"] == LATER
    node["resources"] = {"limits": {"nvidia.com/gpu": LATER}}
    assert summarize(jobset(containers=[node]), {}, 1, {"name": "torch"}, Queues())["gpus"] == LATER


def test_the_default_queue_is_the_queue_of_a_job_without_one() -> None:
    default = {
        "kind": "LocalQueue",
        "metadata": {"name": "default", "namespace": "default"},
        "spec": {"clusterQueue": "a"},
    }
    job = jobset(containers=[{"name": "node", "image": "a"}])
    assert summarize(job, job, 1, {"name": "torch"}, Queues((default,)))["queue"] == "default"


def test_a_file_has_the_names_of_the_class_in_camel_case(tmp_path: Path) -> None:
    file = write(tmp_path, hostAccess=False, teamGpus={"nlp": 64}, registries=["ghcr.io"], action="warn")
    rules = read_rules(file)
    assert rules == JobRules(host_access=False, team_gpus={"nlp": 64}, registries=["ghcr.io"], action="warn")
    assert JobRules(**json.loads(json.dumps(to_document(rules)))) == rules
    assert rules_elsewhere(rules) == ["team_gpus"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("registry: [a]", "policy.yaml: registry: unknown field. Hint: did you mean registries?"),
        ("registries: ghcr.io", "registries: must be a list, not 'ghcr.io'"),
        ("registries: []", "registries: must name at least one"),
        ("registries: null", "registries: must have a value"),
        ("registries: [ghcr.io/acme/*]", "registries[0]: 'ghcr.io/acme/*' is not a path of a registry"),
        ("registries: [acme]", "registries[0]: 'acme' names no registry. Hint: docker.io/acme"),
        ("registries: [index.docker.io/a]", "the name of this registry is docker.io. Hint: docker.io/a"),
        ("registries: ['ghcr.io/a b']", "registries[0]: 'ghcr.io/a b' is not a registry or a path of one"),
        ("runtimes: ['torch*', 'a b']", "runtimes[1]: 'a b' is not a valid name"),
        ("gpus: {' high': 3}", "gpus. high: ' high' is not a valid name"),
        ("gpus: {high: 10000000000000000000000000}", "gpus.high: must be a"),
        ("checkpoints: [\U0001f600]", "checkpoints[0]: "),
        ("registries: ['https://ghcr.io']", "registries[0]: 'https://ghcr.io' is not a registry"),
        ("digests: 'yes'", "digests: must be true or false, not 'yes'"),
        ("gpus: {'': -1}", "gpus.: must be a number of GPUs, not -1"),
        ("gpus: {high: many}", "gpus.high: must be a whole number"),
        ("action: refuse", "action: must be 'deny' or 'warn'"),
        ("action: warn", "has no rule"),
        ("- a", "must be one mapping with rules"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_a_wrong_file_is_a_clear_problem(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(content)
    with pytest.raises(Invalid) as error:
        read_rules(tmp_path / "policy.yaml")
    assert said in str(error.value)


def test_a_missing_file_is_a_clear_problem(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be read: No such file"):
        read_rules(tmp_path / "none.yaml")


def validate(folder: Path, capsys: pytest.CaptureFixture[str], *jobs: str, **rules: Any) -> tuple[int, str]:
    (folder / "jobs.yaml").write_text("---".join([RUNTIME, *(TRAIN_JOB.replace("NAME", job) for job in jobs)]))
    code = main(["validate", str(folder / "jobs.yaml"), "--policy", str(write(folder, **rules))])
    return code, capsys.readouterr().out


def test_validate_refuses_jobs_that_break_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = validate(tmp_path, capsys, "one", registries=["nvcr.io"], gpus={"": 4}, channels=["stable"])
    assert code == 1
    assert "TrainJob nlp/one is refused by the rules of the platform team" in out
    assert "image ghcr.io/acme/train:1 is not from nvcr.io (registries)" in out
    assert (
        "line 6: spec.trainer.resourcesPerNode: the job has 8 GPUs" in out.replace("\n", " ")
        or "the job has 8 GPUs" in out
    )
    assert "channels are not checked: a TrainJob does not name the channel of its runtime" in out
    assert validate(tmp_path, capsys, "one", registries=["ghcr.io/acme"], queue=True, runtimes=["torch-*"])[0] == 0


def test_validate_counts_the_gpus_of_a_namespace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = validate(tmp_path, capsys, "one", "two", teamGpus={"nlp": 12})
    assert code == 1
    assert "TrainJob nlp/one is admitted" in out and "TrainJob nlp/two is refused" in out
    assert "the jobs of namespace nlp have 16 GPUs together; at most 12 are allowed" in out


def test_a_later_document_of_a_name_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate(tmp_path, capsys, "one", "one", teamGpus={"nlp": 12})[0] == 0


def test_a_job_of_a_worker_cluster_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = TRAIN_JOB.replace("spec:", "spec:\n  managedBy: kueue.x-k8s.io/multikueue").replace("NAME", "one")
    (tmp_path / "jobs.yaml").write_text("---".join([RUNTIME, elsewhere]))
    file = write(tmp_path, registries=["nvcr.io"])
    assert main(["validate", str(tmp_path / "jobs.yaml"), "--mode", "trainer", "--policy", str(file)]) == 1
    assert "image ghcr.io/acme/train:1 is not from nvcr.io" in capsys.readouterr().out


def test_a_rule_that_warns_refuses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = validate(tmp_path, capsys, "one", digests=True, action="warn")
    assert code == 0 and "warning: spec: image ghcr.io/acme/train:1 has no digest" in out


def test_a_server_gets_what_it_can_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, registries=["ghcr.io"], queue=True, teamGpus={"nlp": 1}, channels=["stable"])
    assert main(["policy", "render", str(file), "-n", "nlp"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Not here, as one object does not show it: channels, teamGpus. Plans check them.\n")
    documents = [*yaml.safe_load_all(out)]
    assert [each["metadata"]["name"] for each in documents] == [
        *["training-jobs"] * 2,
        *["training-jobs-trainjobs"] * 2,
    ]
    bindings = [each["spec"] for each in documents if each["kind"].endswith("Binding")]
    assert {json.dumps(each["matchResources"]["namespaceSelector"]) for each in bindings} == {
        '{"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["nlp"]}]}'
    }
    assert main(["policy", "render", str(write(tmp_path, channels=["stable"]))]) == 1
    assert "has no rule that a server can judge" in capsys.readouterr().err


def test_warnings_are_warnings_of_a_server() -> None:
    _, binding = render_policies(JobRules(digests=True, action="warn"), "a")
    assert binding["spec"]["validationActions"] == ["Warn", "Audit"]


class _Pack:
    """What a policy pack gives to pulumi_policy, in its place."""

    def __init__(self, name: str, policies: list[Any]) -> None:
        self.name, self.policies = name, policies


def test_a_policy_pack_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, pack = write(tmp_path, registries=["nvcr.io"], gpus={"": 4}), tmp_path / "pack"
    check = loaded_pack(file, pack, monkeypatch)
    assert main(["policy", "pack", str(file), str(pack)]) == 0  # over a pack of before
    said: list[str] = []
    kind = "pulumi-python:dynamic/trainer:JobSet"
    check(types.SimpleNamespace(resource_type=kind, name="a", props={"summary": JOB}), said.append)
    assert said == [f"a: {each.why} ({each.rule}). Hint: {each.hint}" for each in find_broken(read_rules(file), JOB)]
    assert len(said) == 2


def loaded_pack(file: Path, pack: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the check of the policy pack that is made of a file of rules."""
    assert main(["policy", "pack", str(file), str(pack)]) == 0
    made: list[_Pack] = []
    level = types.SimpleNamespace(MANDATORY="mandatory", ADVISORY="advisory")
    policy = lambda name, about, check, level: types.SimpleNamespace(check=check, level=level)  # noqa: E731
    fake = types.SimpleNamespace(
        EnforcementLevel=level, ResourceValidationPolicy=policy, PolicyPack=lambda *given: made.append(_Pack(*given))
    )
    monkeypatch.setitem(sys.modules, "pulumi_policy", fake)
    monkeypatch.delitem(sys.modules, "rules", raising=False)
    monkeypatch.syspath_prepend(str(pack))
    spec = importlib.util.spec_from_file_location("pack_main", pack / "__main__.py")
    assert spec and spec.loader
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    monkeypatch.delitem(sys.modules, "rules", raising=False)
    assert made[0].policies[0].level == "mandatory"
    return made[0].policies[0].check


def test_a_pack_is_not_written_over_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "pack", str(write(tmp_path, digests=True)), str(tmp_path)]) == 1
    assert "has other files" in capsys.readouterr().err
    assert not (tmp_path / "__main__.py").exists()


def as_documents(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runtime and the TrainJob that a JobSet is rendered from."""
    name, spec = job["metadata"]["name"], json.loads(json.dumps(job["spec"]))
    spec.pop("suspend")
    first = spec["replicatedJobs"][0]["template"]
    first["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    made = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "metadata": {**job["metadata"], "namespace": "default"}}
    runtime = {**made, "kind": "TrainingRuntime", "metadata": {"name": name, "namespace": "default"}}
    reference = {"name": name, "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    return [
        {**runtime, "spec": {"template": {"spec": spec}}},
        {**made, "kind": "TrainJob", "spec": {"runtimeRef": reference}},
    ]


def test_files_and_packs_say_the_same_as_plans_of_200_generated_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/cluster/test_job_rules.py compares the same jobs with a real API server."""
    made = random.Random(47)
    jobs = [generated.a_job(made, "default", f"job-{number}") for number in range(generated.JOBS)]
    for job in jobs:
        for step in job["spec"]["replicatedJobs"]:  # Trainer sets the number of Pods itself
            step["template"]["spec"] = {"template": step["template"]["spec"]["template"]}
    file = tmp_path / "policy.yaml"
    given = {_KEYS[name]: value for name, value in to_document(generated.RULES).items()}
    file.write_text(yaml.safe_dump(given))
    check = loaded_pack(file, tmp_path / "pack", monkeypatch)
    documents = [Document(each, "f", 1, 1, "") for job in jobs for each in as_documents(job)]
    cluster, verdicts = Cluster("jobset", RELEASES[DEFAULT.version]), Verdicts()
    results = {
        result.name: result
        for _, result in judge_by_rules(judge(documents, cluster, verdicts), read_rules(file), cluster, verdicts)
        if result.kind == "TrainJob"
    }
    compared = 0
    for job in jobs:
        summary = summarize(job, job, 1, {"name": "torch"}, Queues())
        broken = [each.rule for each in find_broken(generated.RULES, summary)]
        said: list[str] = []
        kind = "pulumi-python:dynamic/trainer:JobSet"
        check(types.SimpleNamespace(resource_type=kind, name="a", props={"summary": summary}), said.append)
        assert [re.findall(r"\((\w+)\)\. Hint", each)[-1] for each in said] == broken
        result = results[job["metadata"]["name"]]
        if result.stage in (None, "policy"):
            compared += 1
            assert [re.findall(r"\((\w+)\)$", each.why)[0] for each in result.errors] == broken, job
    assert compared > 150


def test_the_policy_that_names_users_needs_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "render", "--users", "-n", "nlp"]) == 0
    policy, binding = yaml.safe_load_all(capsys.readouterr().out)
    assert (policy["kind"], binding["spec"]["policyName"]) == ("MutatingAdmissionPolicy", "training-jobs-users")
    (values,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert values["values"] == ["nlp"]
    assert main(["policy", "render"]) == 1
    assert "FILE: is missing. Hint: name a file of rules, or --users" in capsys.readouterr().err
