"""What a program gives as free-form data arrives as it is: in the function on Local, in the objects of a cluster."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import HEAD, Project, eventually

GIVEN = """
conf = {
    "learning_rate": .1, "lr_0.1": 3, "none": None, "z": {"b_c": [None, 1.0, {"d_e": None}], "A": 1e-7}, "a": True,
    "a.b": "first", "a_b": {"c": "second"}, "größe": "ü\\u2028\\n", "big": 2**70, "empty": {}, "": "",
}
"""
EXPECTED: dict[str, Any] = {
    "learning_rate": 0.1, "lr_0.1": 3, "none": None, "z": {"b_c": [None, 1.0, {"d_e": None}], "A": 1e-7}, "a": True,
    "a.b": "first", "a_b": {"c": "second"}, "größe": "ü\u2028\n", "big": 2**70, "empty": {}, "": "",
}  # fmt: skip
FUNCTION = """
def train(**given):
    import hashlib
    text = repr(given)
    print("RECEIVED " + text)
    print("DIGEST " + hashlib.sha256(text.encode()).hexdigest())
"""
JOBS = f"""
{FUNCTION}
{GIVEN}
later = pulumi.Output.from_input
def job(name, **func_args):
    whole = func_args.pop("whole", None)
    given = trainer.CustomTrainer(func=train, func_args=whole if whole is not None else func_args)
    return trainer.TrainJob(name, runtime=plain, wait_for="complete", trainer=given)
job("literal", conf=conf, steps_per_epoch=2, ratio=1.0, pair=(1, 2))
job("leaf", conf={{"some_key": later(1.0), "other.key": later(None), "some": {{"key": later({{"k_v": [1.0, None]}})}}}})
job("whole", whole=later({{"conf": conf, "ratio": 1.0}}))
"""


def received(project: Project, name: str) -> Any:
    line = next(line for line in project.logs(name).splitlines() if "RECEIVED " in line)
    return line.partition("RECEIVED ")[2]


@pytest.mark.core
def test_func_args_arrive_verbatim_on_this_machine(project: Project) -> None:
    project.program(JOBS)
    project.up()
    assert received(project, "literal") == repr({"conf": EXPECTED, "steps_per_epoch": 2, "ratio": 1.0, "pair": [1, 2]})
    leaf = {"some_key": 1.0, "other.key": None, "some": {"key": {"k_v": [1.0, None]}}}
    assert received(project, "leaf") == repr({"conf": leaf})
    assert received(project, "whole") == repr({"conf": EXPECTED, "ratio": 1.0})


@pytest.mark.core
def test_func_args_and_maps_stand_verbatim_in_the_objects_of_a_cluster(project: Project) -> None:
    project.config("trainer:target", "kubernetes")
    project.program(f"""
{FUNCTION}
{GIVEN}
runtime = trainer.ClusterTrainingRuntime("own", ml_policy=trainer.PlainPolicy(), labels={{"my_runtime": "a"}},
    template=trainer.JobSetTemplate(labels={{"a_jobset": "b"}}, replicated_jobs=[trainer.ReplicatedJob(
        name="node", pod_labels={{"a_pod": "c"}}, pod_spec={{"node_selector": {{"my_zone": "a"}}, "containers": [{{
            "name": "node", "image": "x", "env": [{{"name": "lower_case", "value": "1"}}],
        }}]}},
    )]))
trainer.TrainJob("a", runtime=runtime, labels={{"my_team": "nlp"}}, annotations={{"my_note": "x"}},
    trainer=trainer.CustomTrainer(func=train, func_args={{"conf": conf}}, env={{"snake_case": "1"}}),
    runtime_patches=[{{"manager": "acme.io/x", "training_runtime_spec": {{"template": {{"spec": {{"replicated_jobs": [
        {{"name": "node", "template": {{"spec": {{"template": {{
            "metadata": {{"annotations": {{"options": "o", "patch_note": "p"}}}},
            "spec": {{"volumes": [{{"name": "v", "csi": {{"driver": "d", "volume_attributes": {{"share_name": "s"}}}}}}]}},
        }}}}}}}}
    ]}}}}}}}}],
)
""")  # fmt: skip
    out = project.preview("--json").out
    steps = json.loads(out[out.index("{") :])["steps"]
    objects = next(s for s in steps if s["urn"].endswith("JobSet::a"))["newState"]["inputs"]["objects"]
    documents = [json.loads(o) if isinstance(o, str) else o for o in objects.values()]
    code = next(d for d in documents if d["kind"] == "ConfigMap")
    assert json.dumps(json.loads(code["data"]["func_args.json"])) == json.dumps({"conf": EXPECTED})
    jobset = next(d for d in documents if d["kind"] == "JobSet")
    assert jobset["metadata"]["labels"]["my_team"] == "nlp" and jobset["metadata"]["labels"]["a_jobset"] == "b"
    assert jobset["metadata"]["annotations"]["my_note"] == "x"
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pod["metadata"]["labels"]["a_pod"] == "c"
    assert {"options": "o", "patch_note": "p"}.items() <= pod["metadata"]["annotations"].items()
    assert pod["spec"]["nodeSelector"] == {"my_zone": "a"}
    assert {"lower_case", "snake_case"} <= {e["name"] for e in pod["spec"]["containers"][0]["env"]}
    assert pod["spec"]["volumes"][0]["csi"]["volumeAttributes"] == {"share_name": "s"}


SECRETS = f"""
{FUNCTION}
secret = pulumi.Config().require_secret("password")
everything = pulumi.Config().require_secret_object("everything")
def job(name, func_args, **given):
    return trainer.TrainJob(name, runtime=plain, wait_for="complete", output=False, trainer=trainer.CustomTrainer(
        func=train, func_args=func_args, **given))
job("nested", {{"conf": {{"api_key": [secret], "steps_total": 3, "none": None}}}})
job("whole", everything)
job("env", {{}}, env=everything.apply(lambda given: {{"USER_NAME": "me", "PASS_WORD": given["pass_word"]}}))
"""


def test_secret_values_in_nested_places_reach_the_job_and_nothing_else(project: Project) -> None:
    canary = "canary-5ebe2294"
    project.config("password", canary, "--secret")
    project.config("everything", json.dumps({"pass_word": canary, "n": 1.5}), "--secret")
    told = SECRETS.replace('print("RECEIVED " + text)', 'import os; print("USER", os.environ.get("USER_NAME"))')
    told = told.replace("text = repr(given)", 'text = repr(given) + os.environ.get("PASS_WORD", "")').replace(
        "import hashlib", "import hashlib, os"
    )
    project.program(told)
    shown = project.preview("--diff").out + project.up("--diff").out
    for name, expected in {
        "nested": repr({"conf": {"api_key": [canary], "steps_total": 3, "none": None}}),
        "whole": repr({"pass_word": canary, "n": 1.5}),
        "env": repr({}) + canary,
    }.items():
        assert f"DIGEST {hashlib.sha256(expected.encode()).hexdigest()}" in project.logs(name), name
    assert "USER me" in project.logs("env")
    shown += project.preview("--expect-no-changes", "--diff").out + project.refresh("--diff").out
    assert canary not in shown and "steps_total" in shown
    assert canary not in project.stack_text()


BESIDE = """
def train(lr, steps, token):
    print("TRAINS with", lr, steps, len(token))
config = pulumi.Config()
trainer.TrainJob("beside", runtime=plain, wait_for="complete", output=False, trainer=trainer.CustomTrainer(
    func=train, func_args={"lr": LR, "steps": None, "token": config.require_secret("token")}))
"""


def test_a_plain_argument_beside_a_secret_one_runs_the_job_again_and_the_secret_does_not(project: Project) -> None:
    project.config("token", "canary-1", "--secret")
    project.program(BESIDE.replace("LR", "1"))
    project.up()
    assert "TRAINS with 1 None 8" in project.logs("beside")
    project.config("token", "canary-12", "--secret")
    rotated = project.up()
    assert "1 updated" in rotated.out and "applies at the next run" in rotated.out, rotated.out
    project.program(BESIDE.replace("LR", "1.0"))
    shown = project.preview("--diff").out
    assert "+-1 to replace" in shown and "arguments" in shown, shown
    project.up()
    assert "TRAINS with 1.0 None 9" in project.logs("beside")
    assert "canary" not in project.stack_text()


def test_a_secret_of_func_args_is_masked_where_a_failed_job_says_it(project: Project) -> None:
    project.config("password", "canary-5ebe2294", "--secret")
    project.program("""
def train(conf):
    raise ValueError("cannot log in with " + conf["key"] + " to " + conf["server"])
secret = pulumi.Config().require_secret("password")
trainer.TrainJob("fails", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(
    func=train, func_args={"conf": {"key": secret, "server": "models.example"}}))
""")
    out = project.up(ok=False).out
    assert "cannot log in with [secret] to models.example" in out and "canary" not in out, out


def test_secrets_that_a_failed_job_says_are_neither_shown_nor_in_the_state(project: Project) -> None:
    """Of several lines, longer than what is shown, and as Python writes them."""
    token = hashlib.sha512(b"t").hexdigest() * 7
    pem = "key: -----BEGIN X KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwgg7sAgEAAoIBAQC7VJTUt9Us8cKj\n-----END X KEY-----"
    for name, value in {"token": token, "pem": pem, "login": "domain\\user7Pw"}.items():
        project.config(name, value, "--secret")
    project.program("""
def train(**given):
    import os
    print(dict(os.environ), given)
    raise PermissionError("401 for Authorization: Bearer " + given["token"], repr(given), os.environ["LOGIN"])
config = pulumi.Config()
job = trainer.TrainJob("fails", runtime=plain, wait_for="created", trainer=trainer.CustomTrainer(
    func=train, func_args={"token": config.require_secret("token"), "key": config.require_secret("pem")},
    env={"LOGIN": config.require_secret("login")}))
pulumi.export("message", job.message)
""")
    project.up()
    eventually(lambda: project.job("fails").phase == "Failed")
    shown = project.refresh().out + project.up().out + json.dumps(project.outputs())
    for file in (*(project.folder / "state").rglob("*.*"), *project.root.rglob("*.json")):
        shown += file.read_text() if file.is_file() else ""
    assert shown.count("401 for Authorization: Bearer [secret]") > 3
    for secret in ("MIIE", "8cKj", "user7Pw", *(token[i : i + 8] for i in range(0, 128, 8))):
        assert secret not in shown, secret


def job_lines(out: str, name: str) -> str:
    return "\n".join(line for line in out.splitlines() if f'TrainJob("{name}")' in line)


ELSEWHERE = """
import datetime

def runtime(name, **given):
    return trainer.ClusterTrainingRuntime(name, **{"ml_policy": trainer.PlainPolicy(), "template": trainer.JobSetTemplate(
        replicated_jobs=[trainer.ReplicatedJob(name="node", pod_spec=given.pop("pod_spec", {"containers": []}))]), **given})

when = datetime.date(2026, 1, 1)
runtime("labels", labels={"a": when})
runtime("policy", ml_policy={"torch": {1: 2}})
runtime("pods", pod_spec={"node_selector": {"my_zone": {when}}})
runtime("later", labels={"a": pulumi.Output.from_input(1).apply(lambda _: object())})
trainer.DatasetInitializer("patterns", storage_uri="s3://bucket/b", ignore_patterns=[when])
trainer.DatasetInitializer("endpoint", storage_uri="s3://bucket/b", endpoint={("a", 1): 2}, size=when)
trainer.DatasetInitializer("env", storage_uri="s3://bucket/b", env={"A": 1})
trainer.ModelInitializer("secret", storage_uri="s3://bucket/b", env=pulumi.Output.secret("canary"))
"""


def test_what_is_no_json_in_runtimes_and_datasets_is_a_problem_with_its_place(project: Project) -> None:
    project.program(ELSEWHERE)
    out = project.preview(ok=False).out
    for kind, name, said in (
        ("ClusterTrainingRuntime", "labels", "labels.a: not a JSON value: datetime.date"),
        ("ClusterTrainingRuntime", "policy", "ml_policy.torch[1]: not a JSON key: int (expected str)"),
        ("ClusterTrainingRuntime", "pods", "replicated_jobs[0].pod_spec.node_selector.my_zone: not a JSON value: set"),
        ("ClusterTrainingRuntime", "later", "labels.a: must be plain data (mappings, lists, strings, numbers)"),
        ("DatasetInitializer", "patterns", "ignore_patterns[0]: must be a string, not date"),
        ("DatasetInitializer", "endpoint", "endpoint: must be a string, not dict"),
        ("DatasetInitializer", "endpoint", "size: must be a string, not date"),
        ("DatasetInitializer", "env", 'env["A"]: must be a string, not int'),
        ("ModelInitializer", "secret", "env: is secret, so it must be a mapping of strings"),
    ):
        lines = [line for line in out.splitlines() if f'{kind}("{name}")' in line]
        assert any(said in line for line in lines), f"{name}: {said}\n{out}"
    assert "Traceback" not in out and "canary" not in out, out


NOTHING = """
import pulumi
import pulumi_trainer as trainer

known = pulumi.Output.from_input
nothing = {"a": None}

def runtime(pod=None, container=None, **fields):
    node = {"name": "node", "image": "python:3.12", "command": ["true"], **(container or {})}
    step = trainer.ReplicatedJob(name="node", pod_spec={"containers": [node], **(pod or {})}, **fields)
    return trainer.JobSetTemplate(replicated_jobs=[step])

def job(name, **given):
    command = trainer.CustomTrainer(command=["true"])
    trainer.TrainJob(name, **{"runtime": "torch-distributed", "trainer": command, **given})

def custom(name, **given):
    job(name, trainer=trainer.CustomTrainer(command=["true"], **given))

term = {"topology_key": "x", "label_selector": {"match_labels": nothing}}
for name, template in {
    "selector": runtime({"node_selector": nothing}),
    "selector-output": runtime({"node_selector": known(nothing)}),
    "selector-value": runtime({"node_selector": {"a": known(None)}}),
    "variable": runtime(container={"env": [{"name": "A", "value": None}]}),
    "variable-output": runtime(container={"env": known([{"name": "A", "value": None}])}),
    "limits": runtime(container={"resources": {"limits": {"cpu": None}}}),
    "overhead": runtime({"overhead": {"cpu": None}}),
    "driver": runtime({"volumes": [{"name": "v", "csi": {"driver": "d", "volume_attributes": nothing}}]}),
    "match": runtime({"affinity": {"pod_affinity": {"required_during_scheduling_ignored_during_execution": [term]}}}),
    "labels": runtime(pod_labels=nothing),
}.items():
    trainer.ClusterTrainingRuntime(name, template=template)
custom("env", env={"A": None})
custom("env-output", env=known({"A": None, "B": "1"}))
custom("env-value", env={"A": known(None)})
custom("env-list", env=[{"name": "A", "value": None}])
custom("resources-output", resources_per_node=known({"cpu": None}))
job("labels", labels={"a": known(None)})
job("patch", runtime_patches=[trainer.RuntimePatch(manager="a.b/c", jobs=[
    trainer.JobPatch(name="node", pod=trainer.PodPatch(node_selector=nothing))])])
trainer.DatasetInitializer("digits", storage_uri="hf://a/b", env={"A": None})
trainer.DatasetInitializer("letters", storage_uri="hf://a/b", env=known({"A": None}))
fields = {"priority_class_name": None, "node_selector": None}
variables = [{"name": "A", "value": None, "value_from": {"field_ref": {"field_path": "metadata.name"}}}]
trainer.ClusterTrainingRuntime("right", template=runtime(fields, {"env": variables}))
"""
_POD = "template.replicated_jobs[0].pod_spec"
_TERM = "affinity.pod_affinity.required_during_scheduling_ignored_during_execution[0].label_selector.match_labels.a"
NOTHINGS = {
    "ClusterTrainingRuntime": {
        "selector": f"{_POD}.node_selector.a", "selector-output": f"{_POD}.node_selector.a",
        "selector-value": f"{_POD}.node_selector.a", "variable": f"{_POD}.containers[0].env[0].value",
        "variable-output": f"{_POD}.containers[0].env[0].value", "limits": f"{_POD}.containers[0].resources.limits.cpu",
        "overhead": f"{_POD}.overhead.cpu", "driver": f"{_POD}.volumes[0].csi.volume_attributes.a",
        "match": f"{_POD}.{_TERM}", "labels": "template.replicated_jobs[0].pod_labels.a",
    },
    "TrainJob": {
        "env": 'trainer.env["A"]', "env-output": "trainer.env[0].value", "env-value": "trainer.env[0].value",
        "env-list": "trainer.env[0].value", "resources-output": "trainer.resources_per_node.limits.cpu",
        "labels": "labels.a", "patch": "runtime_patches[0].jobs[0].pod.node_selector.a",
    },
    "DatasetInitializer": {"digits": 'env["A"]', "letters": "env[0].value"},
}  # fmt: skip


def test_no_value_is_left_out_in_silence(project: Project) -> None:
    project.program(NOTHING, head="")
    result = project.preview(ok=False)
    for kind, places in NOTHINGS.items():
        for name, place in places.items():
            assert re.search(
                rf'{kind}\("{name}"\) \(__main__.py:\d+\)\.{re.escape(place)}: must [^;]*not None', result.out
            ), f"{kind} {name} {place}\n{result}"
    assert '"right"' not in result.out


FAILING = """
from pulumi import Output

def train(**given):
    print(given)

def job(name, **func_args):
    return trainer.TrainJob(name, runtime=plain, trainer=trainer.CustomTrainer(func=train, func_args=func_args))

job("keys", o=Output.secret({1: 2}))
job("fails", o=Output.secret("canary").apply(lambda value: {}[value]))
"""


def test_outputs_that_fail_are_problems_with_their_place(project: Project) -> None:
    project.program(FAILING)
    out = project.preview(ok=False).out
    print(out)
    assert 'TrainJob("keys") (__main__.py:' in out
    assert 'func_args["o"]: the Output is a mapping with a key that is not a string' in out, out
    line = (HEAD + FAILING).splitlines().index(
        'job("fails", o=Output.secret("canary").apply(lambda value: {}[value]))'
    ) + 1
    assert f'func_args["o"]: the Output cannot be computed: KeyError (__main__.py:{line})' in out, out


KEYS = """
def train(**given):
    print(given)

def job(name, func_args):
    return trainer.TrainJob(name, runtime=plain, trainer=trainer.CustomTrainer(func=train, func_args=func_args))

job("whole", pulumi.Output.from_input({"a": {1: 2}}))
job("leaf", {"a": [pulumi.Output.secret({1: 2})]})
job("applied", pulumi.Output.secret("canary").apply(lambda _: {1: 2}))
job("nested", {"a": pulumi.Output.secret("canary").apply(lambda _: {"b": {1: 2}})})
job("beside", {"a": pulumi.Output.from_input({1: 2}), "b": pulumi.Output.secret("canary")})
"""


def test_keys_that_are_no_strings_in_outputs_are_problems_without_a_traceback(project: Project) -> None:
    """The SDK fails at such keys itself, and would end the program with a traceback that names no line of it."""
    project.program(KEYS)
    for out in (project.preview(ok=False).out, project.up(ok=False).out):
        for name, said in {
            "whole": "func_args: the Output is a mapping with a key that is not a string",
            "leaf": 'func_args["a"][0]: the Output is a mapping with a key that is not a string',
            "applied": "func_args[1]: not a JSON key: int (expected str)",
            "nested": 'func_args["a"]["b"][1]: not a JSON key: int (expected str)',
            "beside": 'func_args["a"]: the Output is a mapping with a key that is not a string',
        }.items():
            assert f"trainer.{said}. Hint: pass str(key)" in job_lines(out, name), f"{name}\n{out}"
        assert "Traceback" not in out and "canary" not in out and "5 problems" in out, out


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
GENERATED = """
import json

def train(place, literal, later):
    with open(place, "w") as file:
        print(ascii(literal), file=file)
        print(ascii(later), file=file)

with open("values.json", encoding="utf-8") as file:
    values = json.load(file)
later = pulumi.Output.from_input(values)
for name, given in {"plain": later, "secret": pulumi.Output.secret(values)}.items():
    trainer.TrainJob(name, runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(
        func=train, func_args={"place": FOLDER + name, "literal": values, "later": given}))
"""


def generated_values() -> list[Any]:
    made: list[Any] = []

    @settings(max_examples=150)
    @given(JSON)
    def keep(value: Any) -> None:
        made.append(value)

    keep()
    return made


def test_any_json_value_arrives_verbatim_on_this_machine(project: Project) -> None:
    """As an argument, as an Output and in a Secret."""
    values = generated_values()
    (project.folder / "values.json").write_text(json.dumps(values))
    project.program(GENERATED.replace("FOLDER", repr(f"{project.folder}/received-")))
    project.up()
    for name in ("plain", "secret"):
        received = (project.folder / f"received-{name}").read_text()
        assert received == f"{values!a}\n" * 2, name
    project.preview("--expect-no-changes")
