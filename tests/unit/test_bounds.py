"""Time and memory stay in proportion to what a stranger sends. Each case runs in a process that has no more of them."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MEMORY = 2**30
"""Bytes of address space, the interpreter and its libraries included."""
SECONDS = 60
"""Of the processor: a case in proportion to its input takes less than five, one that is quadratic hours."""

READ = """

from pulumi_trainer.provider.kubernetes.values.documents import parse
from pulumi_trainer.provider.kubernetes.errors import Invalid
def read(text):
    try:
        return len(list(parse(text, "f.json")))
    except Invalid as error:
        return str(error)
"""
CASES = {
    "duplicate keys": (
        'print(read("{" + ",".join(f\'"k{i}":1\' for i in range(190_000)) + ",\\"k189999\\":1}"))',
        "duplicate key k189999",
    ),
    "many objects": ('print(read(\'{"apiVersion":"a","kind":"b"} \' * 90_000))', "90000"),
    "many objects with halves of characters": (
        'print(read(\'{"apiVersion":"a","kind":"b","c":"\\\\ud83d\\\\ude00"} \' * 50_000))',
        "50000",
    ),
    "many documents": ('print(read("apiVersion: a\\nkind: b\\n---\\n" * 20_000))', "20000"),
}


def run(program: str) -> str:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], preexec_fn=limit, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_documents(case: str) -> None:
    program, words = CASES[case]
    assert words in run(READ + program)


VALIDATE = """
import sys
from pulumi_trainer.provider.cli import documents
from pulumi_trainer.provider.trainer.releases import DEFAULT
text = "apiVersion: trainer.kubeflow.org/v1alpha1\\nkind: TrainJob\\nmetadata: {name: a}\\nspec:\\n  runtimeRef: {name: a}\\n"
text += "  trainer:\\n    env:\\n" + "".join(f"    - {{name: E{i}, value: {i}}}\\n" for i in range(20_000))
open(sys.argv[1], "w").write(text)
documents.validate([sys.argv[1]], "jobset", DEFAULT, "text", documents.Severities.of())
"""


def test_each_of_many_problems_has_its_line(tmp_path: Path) -> None:
    """The document was parsed once for each."""
    lines = run(f"import sys; sys.argv[1:] = [{str(tmp_path / 'a.yaml')!r}]\n{VALIDATE}").splitlines()
    assert sum("env[19999].value (line 20007)" in line for line in lines) == 1 and len(lines) > 20_000


QUEUED = """
import json, sys
from pulumi_trainer.provider.cli import documents
from pulumi_trainer.provider.trainer.releases import DEFAULT
from pulumi_trainer.provider.kubernetes.errors import TrainerError
KUEUE, TRAINER = "kueue.x-k8s.io/v1beta2", "trainer.kubeflow.org/v1alpha1"
GROUP, SLICES = "kueue.x-k8s.io/podset-group-name", "kueue.x-k8s.io/podset-slice-required-topology-constraints"
LEVEL, SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"

def made(kind, name, spec, **metadata):
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}

def queued(notes=(), above="c0", tolerations=(), gpus=0):
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    image = {"name": "node", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": limits}}
    pod = {"containers": [image], "tolerations": list(tolerations)}
    template = {"metadata": {"annotations": dict(notes)}, "spec": pod}
    step = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}, "spec": {"template": template}}
    jobset = {"spec": {"replicatedJobs": [{"name": "node", "template": step}]}}
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    return [
        made("ResourceFlavor", "f", {}),
        made("ClusterQueue", "q", {"cohortName": above, "namespaceSelector": {}, "resourceGroups": [group]}),
        made("LocalQueue", "lq", {"clusterQueue": "q"}, namespace="default"),
        {"apiVersion": TRAINER, "kind": "ClusterTrainingRuntime", "metadata": {"name": "rt"},
         "spec": {"mlPolicy": {"numNodes": 1}, "template": jobset}},
        {"apiVersion": TRAINER, "kind": "TrainJob", "metadata": {"name": "j", "labels": labels},
         "spec": {"runtimeRef": {"name": "rt"}}},
    ]

def validated(*found):
    with open(sys.argv[1], "w") as file:
        file.write("\\n---\\n".join(map(json.dumps, found)))
    try:
        documents.validate([sys.argv[1]], "jobset", DEFAULT, "text", documents.Severities.of())
    except TrainerError as error:
        print(error)
"""
HOSTILE = {
    "many nodes with taints, and many tolerations": (
        'taints = [{"key": f"k{i}", "effect": "NoSchedule"} for i in range(9)]\n'
        'gpus = {"allocatable": {"nvidia.com/gpu": "8"}}\n'
        'nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}, "spec": {"taints": taints}, "status": gpus}'
        " for i in range(5_000)]\n"
        'validated(*nodes, *queued(tolerations=[{"key": f"x{i}", "operator": "Exists"} for i in range(5_000)], gpus=8))',
        "do not tolerate the taints of any node with GPUs: node n0 has k0",
    ),
    "a group of 5,000 digits": ('validated(*queued({GROUP: "1" * 5000}))', "may not be set when neither"),
    "layers within layers": ('validated(*queued({SLICES: "[" * 200_000}))', "it is not a JSON array of objects"),
    "a slice of 5,000 digits": ('validated(*queued({LEVEL: "a", SIZE: "9" * 5000}))', "value out of range"),
    "5,000 cohorts above each other": (
        'chain = [made("Cohort", f"c{i}", {"parentName": f"c{i + 1}"}) for i in range(5_000)]\n'
        "validated(*chain, *queued())",
        "quota",
    ),
    "5,000 cohorts below a cycle": (
        'chain = [made("Cohort", f"c{i}", {"parentName": f"c{i + 1}"}) for i in range(5_000)]\n'
        'validated(*chain, made("Cohort", "c5000", {"parentName": "c4999"}), *queued())',
        "c4999",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_validate(case: str, tmp_path: Path) -> None:
    program, words = HOSTILE[case]
    found = run(f"import sys; sys.argv[1:] = [{str(tmp_path / 'a.yaml')!r}]\n{textwrap.dedent(QUEUED)}\n{program}")
    assert words in found and len(found) < 50_000


RESTARTED = """
from pulumi_trainer.provider.targets.local.jobset_controller import JobSet
rule = {"name": "r", "action": "FailJobSet", "onJobFailureMessagePatterns": [r"^(([\\\\w ]+)*)+\\\\d#$"]}
pods = {"parallelism": 1, "backoffLimit": 0}
steps = [{"name": "node", "template": {"spec": pods}}]
spec = {"replicatedJobs": steps, "failurePolicy": {"maxRestarts": 1, "rules": [rule]}}
jobset = JobSet({"metadata": {"name": "j"}, "spec": spec})
jobset.start_ready(1)
jobset.jobs[0].pod_failed(0, [], 2)
print(jobset.verdict().action)
"""
CHECKED = """
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
print(len(list(Schema({"type": "string", "pattern": "^(a+)+$"}).faults("a" * 50_000 + "!"))))
"""


@pytest.mark.parametrize(("program", "words"), [(RESTARTED, "Restart"), (CHECKED, "1")])
def test_patterns_of_a_document(program: str, words: str) -> None:
    """Of a failure policy, and of a resource definition: as Go's, they never go back."""
    assert run(program).strip() == words


REFERENCES = """
from pulumi_trainer.provider.targets.local.environment import expand, references
text = "$(" * 1_000_000
print(expand(text, {}) == text, references(text))
"""
REQUIREMENT = """
from pulumi_trainer.provider.targets.local.plan import packages
print(packages({"install": ["a=" + " " * 200_000 + "://"]}))
"""


@pytest.mark.parametrize(("program", "words"), [(REFERENCES, "True set()"), (REQUIREMENT, "('a package from an")])
def test_texts_of_a_document(program: str, words: str) -> None:
    assert words in run(program)
