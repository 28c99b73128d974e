"""Free-form data of a program: what arrives is equal to what was given, and what cannot arrive is a problem."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import numbers
import os
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple
from unittest import mock

import pulumi
import pulumi_trainer as trainer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import to_document
from pulumi_trainer.args.json_values import json_value
from pulumi_trainer.args.naming import api_names
from pulumi_trainer.plan import mounts, runtime_ref, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.crd_schemas import kinds as queue_kinds
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.trainer.pipeline.policy import Policy

from tests.trainer import kinds

Output = pulumi.Output
RUNTIME: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "r", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "python:3.12"}]}}},
                        },
                    }
                ]
            }
        },
    },
}


def work(**given: object) -> None:
    print(repr(given))


OPENED: list[tuple[str, Any, bool]] = []
"""The secrets of the last plan: key, value, and whether it is secret."""


def planned(make: Any, preview: bool = False) -> Plan:
    """The plan of a TrainJob whose arguments `make` gives, as a component would make it."""

    async def planning() -> Plan:
        args = {"runtime": "r", "target": trainer.Kubernetes(kubeconfig="nowhere"), **make()}
        plan = await trainjob_plan.plan(TrainJobArgs("job", **args))
        OPENED[:] = [(key, await s.future(), await s.is_secret()) for key, s in plan.resolved.secrets.items()]
        return plan

    catalogue: Any = mock.patch.object(runtime_ref, "from_catalogue", lambda _: (copy.deepcopy(RUNTIME), []))
    own = pulumi.runtime.Settings(project="project", stack="stack", dry_run=preview)
    with catalogue, mock.patch.object(pulumi.runtime.settings, "SETTINGS", own):
        return asyncio.run(planning())


def shipped(plan: Plan) -> str:
    """The text of the file with the arguments."""
    assert plan.problems == []
    text: str = next(o for o in plan.objects.values() if o["kind"] == "ConfigMap")["data"][code.ARGS_FILE]
    return text


def with_args(func_args: Any, **given: Any) -> Any:
    """What `planned` takes; given: functions that make further arguments, as func_args may be one where they hold Outputs."""
    made = func_args if callable(func_args) else lambda: func_args
    return lambda: {"trainer": trainer.CustomTrainer(func=work, func_args=made(), **{k: v() for k, v in given.items()})}


KEYS = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(
    ["learning_rate", "lr_0.1", "a.b", "labels", "spec", "host_ip", "numNodes", 'quote"]', "a[0]", "env", "value", ""]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5).filter(lambda value: not plaintext_secrets.problems(value, ""))
"""Without what the plan takes for a secret, such as {"TOKEN": 10000000}."""
OFTEN = settings(max_examples=40)


@settings(max_examples=200)
@given(OBJECTS)
def test_any_json_value_stays_as_it_is(value: dict[str, Any]) -> None:
    same, problems = json_value(value, "x")
    assert problems == [] and repr(same) == repr(value)


@OFTEN
@given(OBJECTS)
def test_any_json_value_is_in_the_config_map_as_it_was_given(value: dict[str, Any]) -> None:
    assert repr(json.loads(shipped(planned(with_args(value))))) == repr(value)


@OFTEN
@given(OBJECTS)
def test_any_json_value_of_outputs_is_in_the_config_map_as_it_was_given(value: dict[str, Any]) -> None:
    whole = planned(with_args(lambda: Output.from_input(0).apply(lambda _: value)))
    nested = planned(
        with_args(lambda: {"a": [Output.from_input(0).apply(lambda _: value)], "a[0]": Output.from_input(1.0)})
    )
    assert repr(json.loads(shipped(whole))) == repr(value)
    assert repr(json.loads(shipped(nested))) == repr({"a": [value], "a[0]": 1.0})


@settings(max_examples=10)
@given(OBJECTS)
def test_any_json_value_is_what_the_function_receives(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.mktemp("job")
    plan = planned(with_args(value))
    shipped(plan)
    for name, text in next(o for o in plan.objects.values() if o["kind"] == "ConfigMap")["data"].items():
        (folder / name).write_text(text, encoding="utf-8")
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:surrogatepass"}
    done = subprocess.run([sys.executable, folder / code.MAIN_FILE], env=env, capture_output=True, check=True)
    assert done.stdout.decode("utf-8", "surrogatepass") == repr(value) + "\n"


@OFTEN
@given(OBJECTS)
def test_with_a_secret_all_of_it_travels_in_the_secret(value: dict[str, Any]) -> None:
    plan = planned(with_args(lambda: {"given": value, "key": [Output.secret("canary")]}))
    assert plan.problems == []
    assert code.ARGS_FILE not in next(o for o in plan.objects.values() if o["kind"] == "ConfigMap")["data"]
    assert "canary" not in json.dumps(plan.objects, default=repr) and "canary" not in json.dumps(plan.content)
    ((key, text, secret),) = OPENED
    assert key == code.ARGS_FILE and secret and repr(json.loads(text)) == repr({"given": value, "key": ["canary"]})


class Level(str, enum.Enum):
    HIGH = "high"


class Count(enum.IntEnum):
    TWO = 2


class Pair(NamedTuple):
    a: int
    b: int


class Numpy:
    """Like a scalar of numpy."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value


numbers.Integral.register(Numpy)


FLAGS: list[Any] = [
    type(name, (), {"__bool__": lambda self: self.value, "value": value, "__module__": "numpy"})
    for name, value in (("bool", True), ("bool_", False))
]
"""Like numpy's bool, which is no number."""


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        ((1, (2,)), [1, [2]]),
        (Pair(1, 2), [1, 2]),
        (Level.HIGH, "high"),
        (Count.TWO, 2),
        (Numpy(3), 3),
        (FLAGS[0](), True),
        ([FLAGS[1]()], [False]),
        (fractions.Fraction(1, 2), 0.5),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (MappingProxyType({"b": {"c_d": None}}), {"b": {"c_d": None}}),
        (float("inf"), float("inf")),
        (-0.0, -0.0),
        (2**64, 2**64),
    ],
)
def test_what_is_equal_to_a_json_value_travels_as_that(value: Any, arrives: Any) -> None:
    assert repr(json.loads(shipped(planned(with_args({"x": value}))))["x"]) == repr(arrives)
    plan = planned(with_args(lambda: {"x": Output.from_input(0).apply(lambda _: value)}))
    assert repr(json.loads(shipped(plan))["x"]) == repr(arrives)


def test_not_a_number_travels() -> None:
    assert shipped(planned(with_args({"x": float("nan")}))) == '{"x": NaN}'


class Text(str):
    """A text of another type, as numpy's and MarkupSafe's."""

    def __str__(self) -> str:
        return "not the text"


TEXTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "env": lambda t: {"trainer": trainer.CustomTrainer(func=work, env={t("A"): t("x")})},
    "list of env": lambda t: {"trainer": trainer.CustomTrainer(func=work, env=[{t("name"): t("A"), "value": t("x")}])},
    "env of an Output": lambda t: {
        "trainer": trainer.CustomTrainer(func=work, env={"A": Output.from_input(0).apply(lambda _: t("x"))})
    },
    "image": lambda t: {"trainer": trainer.CustomTrainer(func=work, image=t("x"))},
    "command and args": lambda t: {"trainer": trainer.CustomTrainer(command=[t("x")], args=[t("y")])},
    "packages": lambda t: {"trainer": trainer.CustomTrainer(func=work, packages_to_install=[t("x")])},
    "resources": lambda t: {"trainer": trainer.CustomTrainer(func=work, resources_per_node={t("memory"): t("1Gi")})},
    "metadata": lambda t: {"labels": {t("a"): t("x")}, "annotations": {t("b"): t("y")}},
    "name": lambda t: {"name": t("x")},
    "queue": lambda t: {"queue": t("x")},
    "namespace": lambda t: {"target": trainer.Kubernetes(namespace=t("x"), kubeconfig="nowhere")},
    "a patch": lambda t: {
        "runtime_patches": [{"manager": t("a.b/c"), t("training_runtime_spec"): {"template": {"spec": {}}}}]
    },
}


NUMBERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "nodes": lambda n: {"trainer": trainer.CustomTrainer(func=work, num_nodes=n(2))},
    "nodes of an Output": lambda n: {
        "trainer": trainer.CustomTrainer(func=work, num_nodes=Output.from_input(0).apply(lambda _: n(2)))
    },
    "processes": lambda n: {"trainer": trainer.CustomTrainer(func=work, num_proc_per_node=n(2))},
    "GPUs": lambda n: {"trainer": trainer.CustomTrainer(func=work, resources_per_node={"gpu": n(1)})},
    "GPUs of the long form": lambda n: {
        "trainer": trainer.CustomTrainer(func=work, resources_per_node={"limits": {"nvidia.com/gpu": n(1)}})
    },
    "deadline": lambda n: {"active_deadline_seconds": n(60)},
}


PACKAGES_OF_THIS_MACHINE = [
    (["-r", "requirements.txt"], 1, "use requirements="),
    (["-c", "requirements.txt"], 1, "use requirements="),
    (["./mylib"], 0, "source="),
    (["x", "lib/x.whl[extra]"], 1, "source="),
    (["-e", "."], 1, "source="),
]


@pytest.mark.parametrize(("words", "at", "hint"), PACKAGES_OF_THIS_MACHINE)
def test_a_package_of_this_machine_does_not_travel_to_a_cluster(
    words: list[str], at: int, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mylib").mkdir()
    (tmp_path / "lib").mkdir()
    for name in ("requirements.txt", "lib/x.whl"):
        (tmp_path / name).write_text("")

    def problems(**given: Any) -> list[Any]:
        return planned(
            lambda: {"trainer": trainer.CustomTrainer(func=work, packages_to_install=words, **given)}
        ).problems

    (problem,) = problems()
    assert problem.where == f"trainer.packages_to_install[{at}]" and hint in problem.hint
    assert problems(image="own") == [], "the image may have a file of that name"
    monkeypatch.chdir(Path("/"))
    assert problems() == [] or words == ["-e", "."], "nothing here has that name"


@pytest.mark.parametrize("file", [Output.from_input(Unknown("later")), "", " ", "[dev]"])
def test_a_file_whose_name_is_not_known_yet_is_not_a_package_of_this_machine(file: Any) -> None:
    packages = ["-r", file]
    made = planned(lambda: {"trainer": trainer.CustomTrainer(func=work, packages_to_install=packages)})
    assert not [problem for problem in made.problems if "of this machine" in problem.why]


@pytest.mark.parametrize("amount", [[], [1], {}, 1.5, True, 10**30])
def test_an_amount_of_another_type_is_a_problem(amount: Any) -> None:
    resources = {"nvidia.com/gpu": amount}
    found = planned(lambda: {"trainer": trainer.CustomTrainer(func=work, resources_per_node=resources)}).problems
    assert found and all("must be a quantity such as 3" in problem.why for problem in found), found


@pytest.mark.parametrize(
    ("make", "plain", "other"),
    [*((make, int, Numpy) for make in NUMBERS.values()), *((make, str, Text) for make in TEXTS.values())],
    ids=[*NUMBERS, *TEXTS],
)
def test_a_value_of_another_type_is_the_equal_value(
    make: Callable[[Any], dict[str, Any]], plain: type, other: type
) -> None:
    given = {"trainer": trainer.CustomTrainer(func=work)}
    expected, found = planned(lambda: {**given, **make(plain)}), planned(lambda: {**given, **make(other)})
    assert found.problems == expected.problems == []
    assert found.content_digest == expected.content_digest
    assert repr(found.made) == repr(expected.made)


def test_a_path_is_passed_as_text() -> None:
    (problem,) = planned(lambda: {"trainer": trainer.CustomTrainer(args=[PurePosixPath("x")], command=["a"])}).problems
    assert problem.where == "trainer.args[0]" and problem.hint == "pass str(value)"


@dataclasses.dataclass
class Conf:
    lr: float = 0.1


class Kind(enum.Enum):
    A = 1


REFUSED: list[tuple[Any, str, str]] = [
    (datetime.date(2026, 1, 1), "datetime.date", "value.isoformat()"),
    (datetime.datetime(2026, 1, 1), "datetime.datetime", "value.isoformat()"),
    ({1}, "set", "sorted(value)"),
    (b"x", "bytes", "base64"),
    (PurePosixPath("x"), f"{PurePosixPath.__module__}.PurePosixPath", "str(value)"),
    (decimal.Decimal("0.1"), "decimal.Decimal", "str(value)"),
    (fractions.Fraction(1, 3), "fractions.Fraction", ""),
    (Kind.A, f"{__name__}.Kind", ".value"),
    (Conf(), f"{__name__}.Conf", "dataclasses.asdict(value)"),
    (Conf, f"the class {__name__}.Conf", ""),
    (1j, "complex", ""),
    (trainer.PodPatch(), "pulumi_trainer.args.patches.PodPatch", ""),
]


@pytest.mark.parametrize(("value", "kind", "hint"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_no_json_value_is_a_problem_with_its_place(value: Any, kind: str, hint: str) -> None:
    later = with_args(lambda: {"conf": {"a b": Output.from_input(0).apply(lambda _: [value])}})
    for make in (with_args({"conf": {"a b": [value]}}), later):
        (problem,) = planned(make).problems
        where = 'trainer.func_args["conf"]["a b"][0]'
        assert str(problem).startswith(
            f"{where}: not a JSON value: {kind} (expected str, int, float, bool, None, list or dict)"
        )
        assert hint in problem.hint


def test_keys_levels_and_circles_are_problems_with_their_place() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = [loop, loop]
    deep: Any = 1
    for _ in range(2000):
        deep = [deep]
    value = {"keys": {1: 2, (1, 2): 3}, "loop": loop, "deep": deep, "int": 10**4301}
    assert list(map(str, planned(with_args(value)).problems)) == [
        'trainer.func_args["keys"][1]: not a JSON key: int (expected str). Hint: pass str(key)',
        'trainer.func_args["keys"][(1, 2)]: not a JSON key: tuple (expected str). Hint: pass str(key)',
        'trainer.func_args["loop"]["again"][0]: contains itself',
        'trainer.func_args["loop"]["again"][1]: contains itself',
        f'trainer.func_args["deep"]{"[0]" * 100}: has more than 100 levels',
        'trainer.func_args["int"]: not a JSON value: an int of more than 4300 digits, which Python does not read.'
        " Hint: pass hex(value)",
    ]
    labels = planned(
        lambda: {"trainer": trainer.CustomTrainer(func=work), "labels": {"a": loop, "b": "\ud800"}}
    ).problems
    assert [str(p) for p in labels][:1] == ['labels["a"]["again"][0]: contains itself']
    assert str(labels[-1]) == 'labels["b"]: not text: holds half of a surrogate pair'


DIGESTS: dict[str, tuple[str, Any]] = {
    "literals": (
        "86415c2fd86b59e05c51331f0c03de94",
        {"conf": {"lr": 0.1, "steps": 3, "name": "ü", "list": [1, 2.5, {"x": 1.0}]}, "a_b": 1, "t": (1, 2)},
    ),
    "outputs": (
        "c3d670d01c24a4593762e1d970d58da4",
        lambda: {"c": {"lr": Output.from_input(0.5), "n": Output.from_input(8.0), "one": 1.0}},
    ),
    "mapping": ("d3b6211895bc8c6e6dc04029d3c23b5e", lambda: Output.from_input({"k": [1, 2.0], "lr": 0.1})),
    "none": ("38b6f0050f42bccf966a5d2a94c0d62d", None),
}


@pytest.mark.parametrize("name", DIGESTS)
def test_a_job_whose_arguments_arrived_keeps_its_digest(name: str) -> None:
    digest, func_args = DIGESTS[name]
    assert planned(with_args(func_args)).content_digest == digest


def test_variables_and_patches_keep_their_digest() -> None:
    def made() -> dict[str, Any]:
        secret = {"name": "T", "value": Output.secret("x")}
        pod = {"spec": {"containers": [{"name": "side", "env": [secret]}]}}
        step = {"name": "node", "template": {"spec": {"template": pod}}}
        return {
            "trainer": trainer.CustomTrainer(func=work, env={"A_b": "1", "TOKEN": Output.secret("x")}),
            "labels": {"my_label": "x"},
            "runtime_patches": [
                {"manager": "a.io/x", "training_runtime_spec": {"template": {"spec": {"replicated_jobs": [step]}}}}
            ],
        }

    plan = planned(made)
    assert plan.content_digest == "41e24dfa0b4878fa801da8a9e2bd0c71"
    assert all(set(key) <= set("-._0123456789") | set(map(chr, range(65, 123))) for key in plan.resolved.secrets)


def test_numbers_of_outputs_do_not_change_the_digest_as_they_are_equal() -> None:
    whole, fraction = (planned(with_args(lambda n=n: {"x": Output.from_input(n)})) for n in (1, 1.0))
    assert whole.content_digest == fraction.content_digest
    assert (shipped(whole), shipped(fraction)) == ('{"x": 1}', '{"x": 1.0}')


def test_secret_keys_of_two_pods_are_two() -> None:
    def made() -> dict[str, Any]:
        patches = [
            trainer.RuntimePatch(
                manager=f"a.io/{n}",
                jobs=[
                    trainer.JobPatch(
                        name="node",
                        pod=trainer.PodPatch(
                            containers=[trainer.ContainerPatch(name="side", env={"my token": Output.secret(str(n))})]
                        ),
                    )
                ],
            )
            for n in range(2)
        ]
        return {"trainer": trainer.CustomTrainer(func=work), "runtime_patches": patches}

    secrets = planned(made).resolved.secrets
    assert len(secrets) == 2
    assert all(key.replace("-", "").replace(".", "").replace("_", "").isalnum() and key.isascii() for key in secrets)


def test_an_env_that_is_one_secret_gives_a_key_for_each_variable() -> None:
    plan = planned(with_args(None, env=lambda: Output.secret({"A_B": "canary", "C": "canary2"})))
    assert plan.problems == [] and set(plan.resolved.secrets) == {"trainer.A_B", "trainer.C"}
    jobset = next(o for key, o in plan.objects.items() if key.startswith("JobSet/"))
    env = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    reference = {"secretKeyRef": {"name": plan.secret_name, "key": "trainer.A_B"}}
    assert {"name": "A_B", "valueFrom": reference} in env
    assert "canary" not in json.dumps(plan.objects, default=repr)


def test_an_env_that_is_one_secret_and_not_known_yet_hides_nothing_else() -> None:
    def made() -> dict[str, Any]:
        later: Any = Output(set(), asyncio.sleep(0), asyncio.sleep(0, result=False), asyncio.sleep(0, result=True))
        return {"trainer": trainer.CustomTrainer(func=work, func_args={"a": [later]}, env=later)}

    plan = planned(made, preview=True)
    assert plan.problems == [] and set(plan.resolved.secrets) == {code.ARGS_FILE}
    jobset = next(o for key, o in plan.objects.items() if key.startswith("JobSet/"))
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["projected"]["sources"][1]["secret"]["name"] == plan.secret_name
    assert isinstance(plan.content_digest, Unknown)


def not_known() -> Any:
    return Output(set(), asyncio.sleep(0), asyncio.sleep(0, result=False), asyncio.sleep(0, result=False))


@pytest.mark.parametrize("named", [{"output": True}, {"checkpoint": trainer.CheckpointPolicy(to="s3://abc/d")}])
def test_variables_that_are_not_known_yet_stay_in_the_plan(named: dict[str, Any]) -> None:
    def variables(env: Any) -> Any:
        plan = planned(lambda: {"trainer": trainer.CustomTrainer(func=work, env=env()), **named}, preview=True)
        assert plan.problems == []
        jobset = next(o for key, o in plan.objects.items() if key.startswith("JobSet/"))
        pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        return pod["containers"][0]["env"]

    known = {"name": "A", "value": "1"}
    found = variables(lambda: [known, not_known()])
    assert known in found and any(isinstance(each, Unknown) for each in found)
    assert any(each["name"].startswith("TRAINER_") for each in found if not isinstance(each, Unknown))
    assert isinstance(variables(not_known), Unknown), "a list would look complete"


def test_patches_that_are_not_known_yet_stay_in_the_plan() -> None:
    written = {"trainer": trainer.CustomTrainer(func=work), "target": trainer.Kubernetes(mode="trainer")}
    plan = planned(lambda: {**written, "runtime_patches": not_known()}, preview=True)
    assert plan.problems == []
    own, theirs = plan.objects[f"TrainJob/{plan.name}"]["spec"]["runtimePatches"]
    assert own["manager"] == mounts.MANAGER and isinstance(theirs, Unknown)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: {"labels": {"a.b/c": Output.secret("canary")}}, 'labels["a.b/c"]: is secret'),
        (lambda: {"labels": Output.secret({"a": "canary"})}, "labels: is secret"),
        (lambda: {"annotations": {"a": [[Output.secret("canary")]]}}, "annotations.a[0][0]: is secret"),
        (lambda: {"suspend": Output.secret("canary")}, "suspend: is secret"),
        (lambda: {"env": {"A": Output.secret(("canary",))}}, "trainer.env[0].value: must be a string, not tuple"),
        (lambda: {"env": Output.secret(["canary"])}, "trainer.env: is secret, so it must be a mapping of strings"),
        (
            lambda: {"env": Output.secret([{"name": "A", "valueFrom": "canary"}])},
            "trainer.env: is secret, so it must be a mapping",
        ),
        (lambda: {"env": {"A": None}}, 'trainer.env["A"]: must be a string, not None'),
        (
            lambda: {"env": [{"name": Output.secret("canary"), "value": Output.secret("x")}]},
            "trainer.env[0].name: is secret",
        ),
        (lambda: {"args": [Output.secret("canary")]}, "trainer.args[0]: is secret"),
        (lambda: {"packages_to_install": [[1]]}, "trainer.packages_to_install[0]: must be a string, not list"),
        (lambda: {"pip_index_urls": [None]}, "trainer.pip_index_urls[0]: must be a string, not NoneType"),
        (
            lambda: {"func_args": Output.from_input(0).apply(lambda _: ["canary"])},
            "trainer.func_args: must be a mapping, not list",
        ),
        (lambda: {"func_args": Output.secret("canary")}, "trainer.func_args: must be a mapping, not str"),
        (lambda: {"uri": Output.secret("canary")}, "initializer.model.storage_uri: is secret"),
        (lambda: {"ignore_patterns": ["a", 1]}, "initializer.model.ignore_patterns[1]: must be a string, not int"),
        (lambda: {"ignore_patterns": ["a,b"]}, "initializer.model.ignore_patterns[0]: must not contain a comma"),
    ],
)
def test_what_cannot_travel_is_a_problem_that_shows_no_secret(make: Any, said: str) -> None:
    def made() -> dict[str, Any]:
        given = make()
        own = {"ignore_patterns", "uri"} & given.keys()
        source = {"storage_uri": given.get("uri", "s3://a/b"), **{k: given[k] for k in own - {"uri"}}}
        rest = {k: v for k, v in given.items() if k not in own}
        code_ = {k: rest.pop(k) for k in [*rest] if k in trainer.CustomTrainer().fields}
        fetched = {"initializer": trainer.Initializer(model=trainer.S3ModelInitializer(**source))} if own else {}
        return {"trainer": trainer.CustomTrainer(func=work, **code_), **fetched, **rest}

    told = "\n".join(map(str, planned(made).problems))
    assert said in told and "canary" not in told


def fully(schema: Any, depth: int = 0) -> tuple[Any, Any]:
    """A value with all fields of a schema, in Python's names and in the API's; keys of maps are the same in both."""
    if schema.properties:
        pairs = {name: fully(each, depth + 1) for name, each in schema.properties.items()}
        words = {name: re.sub("(?<=[a-z])([A-Z]+)", r"_\1", name).lower() for name in pairs}
        return {words[n]: a for n, (a, _) in pairs.items()}, {n: b for n, (_, b) in pairs.items()}
    if schema.items:
        inner = fully(schema.items, depth + 1)
        return [inner[0]], [inner[1]]
    if schema.additional_properties:
        return {"snake_key": "a_b"}, {"snake_key": "a_b"}
    return "a_b", "a_b"


@pytest.mark.parametrize("kind", sorted({**kinds, **queue_kinds()}))
def test_names_of_the_api_are_those_that_its_schema_declares_and_no_others(kind: str) -> None:
    given, expected = fully({**kinds, **queue_kinds()}[kind].schema)
    assert api_names(kind, given) == expected == api_names(kind, expected)


def test_a_field_that_is_given_by_both_names_is_not_lost() -> None:
    assert api_names("TrainJob.spec.trainer", {"num_nodes": 1, "numNodes": 2}) == {"num_nodes": 1, "numNodes": 2}


def test_data_of_a_plugins_policy_stays_as_it_is() -> None:
    class Part(Policy):
        max_workers: int | None = None

    class Ray(Policy):
        serves = "mlPolicy.ray_values"

        object_store: int | None = None
        options: dict[str, Any] | None = None
        groups: dict[str, Part] | None = None
        first: Annotated[list[Part] | None, "any"] = None

    free = {"learning_rate": 0.1, "none": None, "object_store": [{"a_b": 1.0}]}
    given = {
        "object_store": 1,
        "options": free,
        "groups": {"my_part": {"max_workers": 2}},
        "first": [{"max_workers": 3}],
    }
    named = {"objectStore": 1, "options": free, "groups": {"my_part": {"maxWorkers": 2}}, "first": [{"maxWorkers": 3}]}
    assert Ray.api_names(given) == named == Ray.api_names(named)
    typed = Ray(object_store=1, options=free, groups={"my_part": Part(max_workers=2)}, first=[Part(max_workers=3)])
    assert to_document(typed) == {"ray_values": named}
