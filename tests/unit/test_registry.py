"""Own plugins: how they come in, when they run, and what is said of those that are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pulumi_trainer.args.arguments import to_document
from pulumi_trainer.code import user_code
from pulumi_trainer.plugins import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    EnforceMLPolicyPlugin,
    Info,
    Invalid,
    Policy,
    Problem,
    TrainJob,
    Unknown,
    upsert,
)
from pulumi_trainer.program import registered_plugins as plugins
from pulumi_trainer.provider.trainer.pipeline import registry
from pulumi_trainer.provider.trainer.releases import DEFAULT
from pulumi_trainer.runtime import RuntimeArgs
from pydantic import Field, model_validator

from tests.trainer import default_runtime, render, review, validate


@pytest.fixture(autouse=True)
def none_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registered", [])
    registry._load.cache_clear()
    yield
    registry._load.cache_clear()


class RayPolicy(Policy):
    serves = "mlPolicy.ray"
    port: Annotated[int, Field(ge=1024)] = 6379
    object_store: str | None = None
    labels: dict[str, str] = {}

    @model_validator(mode="after")
    def _checked(self) -> RayPolicy:
        if self.object_store == str(self.port):
            raise ValueError("objectStore must not be the port")
        return self


class Ray(EnforceMLPolicyPlugin, CustomValidationPlugin):
    name = "Ray"
    policies = (RayPolicy,)
    launcher = ("ray", "job", "submit", "--")

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        policy, container = RayPolicy.read(info), info.trainer_container
        if policy and container:
            pods = info.trainer_pod_set
            values = {"RAY_PORT": policy.port, "RAY_NODES": pods.count if pods else 0}
            env = [{"name": n, "value": v if isinstance(v, Unknown) else str(v)} for n, v in values.items()]
            container.env = upsert(container.env, env, "name")

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        if train_job.name == "bad":
            yield Problem("metadata.name", "is bad")


POD = {"containers": [{"name": "node", "image": "python", "env": [{"name": "A", "value": "b"}]}]}
STEP = {
    "name": "node",
    "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": POD}},
    },
}


def runtime(policy: Any = None, part: str = "mlPolicy", **more: Any) -> dict[str, Any]:
    own = {part: {"ray": {} if policy is None else policy, **more}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "ray"},
        "spec": {**own, "template": {"spec": {"replicatedJobs": [STEP]}}},
    }


def job(name: str = "train", **trainer: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"runtimeRef": {"name": "ray"}, "trainer": trainer}}


def env(runtime_: dict[str, Any], job_: dict[str, Any]) -> dict[str, Any]:
    jobset = render(runtime_, job_).objects["JobSet/train"]
    (container,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    return {e["name"]: e["value"] for e in container["env"]}


def refused(*args: Any, **options: Any) -> str:
    with pytest.raises(Invalid) as caught:
        render(*args, **options)
    return str(caught.value)


def test_a_plugin_runs_after_the_built_in_ones_with_its_policy_and_defaults() -> None:
    registry.register_plugin(Ray())
    assert env(runtime(), job(numNodes=3)) == {"A": "b", "RAY_PORT": "6379", "RAY_NODES": "3"}
    assert env(runtime({"port": 7000}, numNodes=2), job())["RAY_PORT"] == "7000"
    assert env(runtime({"port": 7000}, numNodes=2), job())["RAY_NODES"] == "2"
    assert validate(runtime(), job("bad")) == (Problem("metadata.name", "is bad"),)


def test_other_runtimes_do_not_notice() -> None:
    plain = runtime()
    plain["spec"]["mlPolicy"] = {"numNodes": 2}
    before = render(plain, job())
    registry.register_plugin(Ray())
    assert render(plain, job()) == before and env(plain, job()) == {"A": "b"}


def test_documents_given_stay_as_they_are() -> None:
    class Writes(Ray):
        def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
            assert info.ml_policy
            info.ml_policy["ray"]["labels"]["x"] = "y"

    registry.register_plugin(Writes())
    given = runtime({"labels": {}})
    render(given, job())
    assert given == runtime({"labels": {}})


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"port": 80}, "spec.mlPolicy.ray.port: must be greater than or equal to 1024, not 80"),
        ({"port": "7000"}, "spec.mlPolicy.ray.port: must be a whole number, not '7000'"),
        ({"prot": 7000}, "spec.mlPolicy.ray.prot: unknown field. Hint: did you mean port?"),
        ({"object_store": "x"}, "spec.mlPolicy.ray.object_store: unknown field. Hint: did you mean objectStore?"),
        ({"objectStore": "6379"}, "spec.mlPolicy.ray: objectStore must not be the port"),
        ({"labels": {"a": 1}}, "spec.mlPolicy.ray.labels.a: must be a string, not 1"),
        ([], "spec.mlPolicy.ray: must be a mapping"),
        ("x", "spec.mlPolicy.ray: must be a mapping"),
    ],
)
def test_a_wrong_policy_is_told_with_its_path(policy: Any, says: str) -> None:
    registry.register_plugin(Ray())
    assert says in refused(runtime(policy), job())
    with pytest.raises(Invalid):
        validate(runtime(policy), job())


def test_unknown_values_of_a_policy_are_right_and_arrive() -> None:
    registry.register_plugin(Ray())
    port = Unknown("port")
    assert env(runtime({"port": port}), job())["RAY_PORT"] == port
    assert render(runtime(Unknown("policy")), job()).objects


def test_one_policy_a_runtime() -> None:
    registry.register_plugin(Ray())
    says = refused(runtime({}, torch={}), job())
    assert says == "spec.mlPolicy.ray: conflicts with torch: a runtime has one policy"


def test_mode_trainer_refuses_own_policies() -> None:
    registry.register_plugin(Ray())
    says = refused(runtime(), job(), mode="trainer")
    assert "spec.mlPolicy.ray: is a plugin's own policy" in says and "mode jobset" in says
    plain = {**runtime(), "spec": {**runtime()["spec"], "mlPolicy": {"torch": {}}}}
    assert render(plain, job(), mode="trainer").objects


class GangPolicy(Policy):
    serves = "podGroupPolicy.gang"
    size: int


class Gang(ComponentBuilderPlugin):
    name = "Gang"
    policies = (GangPolicy,)

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None:
        if policy := GangPolicy.read(info):
            info.pod_labels["gang"] = str(policy.size)

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None:
        assert [*info.pod_sets[0].endpoints()] == ["train-node-0-0.train"]

    def build(self, info: Info, train_job: TrainJob) -> Iterator[dict[str, Any]]:
        yield {"apiVersion": "gang/v1", "kind": "Gang", "metadata": {"name": train_job.name}}


def test_a_policy_of_gangs_and_objects_before_the_jobset() -> None:
    registry.register_plugin(Gang())
    spec = {**runtime()["spec"], "mlPolicy": {}, "podGroupPolicy": {"gang": {"size": 4}}}
    objects = render({"spec": spec}, job()).objects
    assert list(objects) == ["Gang/train", "JobSet/train"]
    pod = objects["JobSet/train"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pod["metadata"]["labels"] == {"gang": "4"}
    assert "spec.podGroupPolicy.gang.size: is required" in refused(
        {"spec": {**spec, "podGroupPolicy": {"gang": {}}}}, job()
    )


def test_registering_the_same_again_changes_nothing_and_another_of_its_name_is_refused() -> None:
    registry.register_plugin(Ray())
    registry.register_plugin(Ray())
    assert len(registry.own_plugins()) == 1
    other = Ray()
    other.launcher = ("python3",)
    with pytest.raises(Invalid) as caught:
        registry.register_plugin(other)
    assert "plugin Ray: another plugin has this name: test_registry.Ray" in str(caught.value)
    assert "the policy mlPolicy.ray is already served by plugin Ray" in str(caught.value)


class NoPolicy(Policy):
    serves = "ray"


class TorchPolicy(Policy):
    serves = "mlPolicy.torch"


class Open(Policy):
    serves = "mlPolicy.open"
    field: Nowhere  # type: ignore[name-defined]  # noqa: F821


class Unfinished(Ray):
    policies = (Open,)


class JobSetAgain:
    name, policies = "JobSet", ()

    def build(self, info: Any, train_job: Any) -> None: ...


class Misspelt:
    name, policies = "Misspelt", ()

    def enforce_mlpolicy(self, info: Any, train_job: Any) -> None: ...


class Lacks(EnforceMLPolicyPlugin):
    name, policies = "Lacks", ()


class OneArgument(Ray):
    name, policies = "OneArgument", ()

    def enforce_ml_policy(self, info: Info) -> None:  # type: ignore[override]
        ...


class Waits(Ray):
    name, policies = "Waits", ()

    async def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None: ...  # type: ignore[override]


class Nameless(Ray):
    name = ""


class Listed(Ray):
    policies = [RayPolicy]  # type: ignore[assignment]


class Named(Ray):
    policies = ("mlPolicy.ray",)


class Misplaced(Ray):
    policies = (NoPolicy,)


class Upstreams(Ray):
    policies = (TorchPolicy,)


class NodesPolicy(RayPolicy):
    serves = "mlPolicy.numNodes"


class Counting(Ray):
    policies = (NodesPolicy,)


class Shell(Ray):
    launcher = "ray job submit"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        (Ray, "plugin Ray: is a class. Hint: give an instance: Ray()"),
        (object(), "plugin object: has no name"),
        (object(), "plugin object: has no attribute policies"),
        (Misspelt(), "implements no phase: it has none of the methods validate, enforce_ml_policy"),
        (Misspelt(), "it has enforce_mlpolicy"),
        (Lacks(), "plugin Lacks: is a EnforceMLPolicyPlugin, but lacks its method enforce_ml_policy"),
        (OneArgument(), "enforce_ml_policy must be a method that takes info and train_job"),
        (Waits(), "enforce_ml_policy must be a method that takes info and train_job"),
        (Nameless(), "plugin Nameless: has no name"),
        (Listed(), "has no attribute policies. Hint: set policies to a tuple"),
        (Named(), "'mlPolicy.ray' in policies is not a subclass of Policy. Hint: derive a class from Policy"),
        (Misplaced(), "NoPolicy.serves must be mlPolicy.NAME or podGroupPolicy.NAME, not 'ray'"),
        (Upstreams(), "the policy mlPolicy.torch is already served by plugin Torch"),
        (Counting(), "mlPolicy.numNodes is a field of Kubeflow Trainer"),
        (Unfinished(), "plugin Ray: Open is not fully defined: name 'Nowhere' is not defined"),
        (JobSetAgain(), "plugin JobSet: another plugin has this name"),
        (Shell(), "launcher must be a tuple of strings"),
    ],
)
def test_what_is_no_plugin(plugin: Any, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        registry.register_plugin(plugin)
    assert says in str(caught.value)
    assert not registry.own_plugins()


class Fails(Ray):
    def __init__(self, phase: str, result: Any) -> None:
        self.phase, self.result = phase, result

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        return self._run("enforce_ml_policy")

    def validate(self, info: Info, train_job: TrainJob) -> Any:
        return self._run("validate")

    def build(self, info: Info, train_job: TrainJob) -> Any:
        return self._run("build")

    def _run(self, phase: str) -> Any:
        return self.result() if phase == self.phase else None


def later() -> Iterator[Any]:
    yield from {}["x"]


@pytest.mark.parametrize(
    ("phase", "result", "says"),
    [
        ("enforce_ml_policy", lambda: 1 // 0, r"plugin Ray: enforce_ml_policy failed: ZeroDivisionError: .*\(test_reg"),
        ("enforce_ml_policy", lambda: [1], "plugin Ray: enforce_ml_policy returns int, but must return nothing"),
        ("build", later, "plugin Ray: build failed: KeyError: 'x'"),
        ("build", lambda: [None], "plugin Ray: build returns NoneType, but must return objects with apiVersion, kind"),
        ("build", lambda: [{"kind": "Job", "metadata": {"name": "a"}}], "build returns dict, but must return objects"),
        ("build", lambda: {"kind": "Job"}, "build returns str, but must return objects"),
    ],
)
def test_a_plugin_that_fails_is_a_problem_that_names_it(phase: str, result: Any, says: str) -> None:
    registry.register_plugin(Fails(phase, result))
    with pytest.raises(Invalid, match=says):
        render(runtime(), job())


def test_a_validation_that_fails_is_a_problem_too() -> None:
    registry.register_plugin(Fails("validate", lambda: ["wrong"]))
    with pytest.raises(Invalid, match="plugin Ray: validate returns str, but must return problems"):
        validate(runtime(), job())


def test_a_plugins_own_refusal_is_told_as_it_is() -> None:
    def refuse() -> None:
        raise Invalid(Problem("spec.x", "is no good"))

    registry.register_plugin(Fails("enforce_ml_policy", refuse))
    assert refused(runtime(), job()) == "spec.x: is no good"


def test_an_object_twice_is_refused() -> None:
    document = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"}}
    registry.register_plugin(Fails("build", lambda: [document]))
    assert refused(runtime(), job()) == "JobSet/train: is created twice, by plugin Ray and by plugin JobSet"


def test_what_a_plugin_breaks_for_others_is_told_with_its_name() -> None:
    class Breaks(Ray):
        def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
            assert info.trainer_container
            info.trainer_container.env = 7

    registry.register_plugin(Breaks())
    says = refused(runtime(), job())
    assert says.startswith("plugin JobSet: build failed: TypeError") and "ran together with Ray" in says


# Packages


def package(folder: Path, code: str, value: str, name: str = "ray") -> None:
    """An installed package with an entry point."""
    info = folder / f"{name}_plugin-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {value}\n")
    (folder / f"{name}_plugin.py").write_text(code)


RAY = """
from pulumi_trainer.plugins import EnforceMLPolicyPlugin, Policy

class P(Policy):
    serves = "mlPolicy.ray"
    port: int = 6379

class Ray(EnforceMLPolicyPlugin):
    name = "Ray"
    policies = (P,)
    def enforce_ml_policy(self, info, train_job):
        info.annotations["ray"] = str(P.read(info).port)

one = Ray()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("ray_plugin", "other_plugin"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("value", ["ray_plugin:Ray", "ray_plugin:one"])
def test_a_package_brings_a_plugin(site: Path, value: str) -> None:
    package(site, RAY, value)
    assert render(runtime(), job()).objects["JobSet/train"]["metadata"]["annotations"] == {"ray": "6379"}
    assert "spec.mlPolicy.ray.port" in refused(runtime({"port": "x"}), job())
    with pytest.raises(Invalid, match="another plugin has this name: ray_plugin"):
        registry.register_plugin(Ray())
    registry.register_plugin(sys.modules["ray_plugin"].Ray())
    assert len(registry.own_plugins()) == 1


@pytest.mark.parametrize(
    ("code", "value", "says"),
    [
        ("import nothing_of_this_name", "ray_plugin:Ray", "cannot be imported: ModuleNotFoundError: No module named"),
        ("", "ray_plugin:Ray", "cannot be imported: AttributeError"),
        (RAY, "ray_plugin:P", "has no name"),
        (RAY.replace("enforce_ml_policy(", "enforce("), "ray_plugin:Ray", "lacks its method enforce_ml_policy"),
    ],
)
def test_a_package_that_is_broken_is_named(site: Path, code: str, value: str, says: str) -> None:
    package(site, code, value)
    told = refused(runtime(), job())
    assert f"package ray-plugin 1.2: entry point ray = {value}" in told and says in told
    assert refused(runtime(), job()) == told


def test_two_packages_with_one_policy(site: Path) -> None:
    package(site, RAY, "ray_plugin:Ray")
    package(site, RAY.replace('"Ray"', '"Other"'), "other_plugin:Ray", "other")
    told = refused(runtime(), job())
    assert "package ray-plugin 1.2: entry point ray = ray_plugin:Ray: plugin Ray" in told
    assert "the policy mlPolicy.ray is already served by plugin Other" in told


def test_packages_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: calls.append(1) or [])
    render(runtime(), job())
    validate(runtime(), job())
    assert len(calls) == 1


# In a program


def test_a_policy_in_a_program_keeps_what_it_is_given() -> None:
    assert RayPolicy(object_store=None).document() == {"ray": {}}
    policy = RayPolicy(port=80, num_nodes=3, object_store="x", labels={"a_b": "c"})
    own = {"port": 80, "objectStore": "x", "labels": {"a_b": "c"}}
    assert to_document(policy) == {"numNodes": 3, "ray": own}
    assert policy.framework == "ray" and "80" not in repr(policy) and "80" not in str(policy)
    unchecked: Any = RayPolicy
    assert to_document(unchecked(prot="x")) == {"ray": {"prot": "x"}}
    assert GangPolicy(size=3).framework == ""


def test_what_is_wrong_in_a_program_has_its_path() -> None:
    registry.register_plugin(Ray())
    args = RuntimeArgs("r", ml_policy=RayPolicy(port=80))
    document = {**runtime(), "spec": {**runtime()["spec"], **to_document(args)}}
    (problem,) = plugins.runtime_problems(document, DEFAULT)
    assert problem.where == "spec.mlPolicy.ray.port"
    assert args.place("mlPolicy.ray.port") == "ml_policy.port"
    assert args.place("mlPolicy.ray.objectStore") == "ml_policy.object_store"
    assert args.place("mlPolicy.numNodes") == "ml_policy.num_nodes"
    assert args.place("mlPolicy.ray") == "ml_policy"
    assert not plugins.runtime_problems(runtime(), DEFAULT)


def test_a_policy_in_the_wrong_place_is_told() -> None:
    (problem,) = RuntimeArgs("r", ml_policy=GangPolicy(size=3), pod_group_policy=GangPolicy(size=3)).check()
    assert str(problem) == "ml_policy: GangPolicy belongs in podGroupPolicy.gang"


def test_a_policy_whose_plugin_is_missing_is_refused() -> None:
    (problem,) = plugins.runtime_problems(runtime(), DEFAULT)
    assert problem.where == "spec.mlPolicy.ray" and "register_plugin" in problem.hint


def test_the_launcher_of_a_plugin_starts_code() -> None:
    assert user_code.framework({"spec": {"mlPolicy": {"ray": {}}}}) == ""
    registry.register_plugin(Ray())
    assert registry.launcher("ray") == ("ray", "job", "submit", "--")
    assert registry.launcher("torch") is None
    assert user_code.framework({"spec": {"mlPolicy": {"ray": {}}}}) == "ray"


def test_a_plugins_module_loads_neither_pulumi_nor_a_client() -> None:
    code = "import sys, pulumi_trainer.plugins as p; print(*sorted(sys.modules)); [getattr(p, n) for n in p.__all__]"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "pulumi_trainer.plugins" in loaded and not {"pulumi", "kubernetes", "yaml"} & set(loaded)


# Admission and the command line


def test_admission_takes_own_policies_and_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register_plugin(Ray())
    verdict = review(runtime({"port": 7000}, numNodes=2))
    assert verdict.admitted and not verdict.unknown
    assert verdict.stored and verdict.stored["spec"]["mlPolicy"] == {"numNodes": 2, "ray": {"port": 7000}}
    again = review(runtime({"port": 7001}, numNodes=2), old=verdict.stored)
    assert again.stored and again.stored["spec"]["mlPolicy"]["ray"] == {"port": 7001}
    wrong = review(runtime({"port": 80}))
    assert not wrong.admitted and wrong.stage == "schema"
    assert [str(p) for p in wrong.errors] == ["spec.mlPolicy.ray.port: must be greater than or equal to 1024, not 80"]
    trainer = review(runtime(), mode="trainer")
    assert (trainer.stage, [p.where for p in trainer.errors]) == ("decode", ["spec.mlPolicy.ray"])
    assert default_runtime(runtime({"port": 7000}))["spec"]["mlPolicy"]["ray"] == {"port": 7000}


def test_admission_drops_policies_of_nobody() -> None:
    verdict = review(runtime({"port": 80}))
    assert verdict.unknown and verdict.stored and verdict.stored["spec"]["mlPolicy"] == {}


def test_the_command_line_knows_plugins_of_packages(site: Path) -> None:
    package(site, RAY, "ray_plugin:Ray")
    train_job = {**job(), "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    file = site / "job.yaml"

    def run(*options: str, policy: Any) -> tuple[int, str]:
        file.write_text(yaml.safe_dump_all([runtime(policy), train_job]))
        argv = [str(Path(sys.executable).with_name("pulumi-trainer")), *options, str(file)]
        env = {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
        return done.returncode, done.stdout + done.stderr

    code, out = run("render", policy={"port": 7000})
    assert code == 0 and "ray: '7000'" in out
    code, out = run("validate", policy={"port": "x"})
    assert code == 1 and "must be a whole number, not 'x'" in out
    for command in ("validate", "render"):
        code, out = run(command, "--mode", "trainer", policy={})
        assert code == 1 and "is a plugin's own policy" in out and "Traceback" not in out
