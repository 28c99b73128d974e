"""What a class declares is what type checkers, `inspect.signature` and completion see, and what a call is held against."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.args.arguments import Args, nested_problems
from pulumi_trainer.args.field_types import FieldType, field_types
from pulumi_trainer.args.signatures import bind
from pulumi_trainer.job_component import OUTPUTS
from pulumi_trainer.plan.runtime_ref import RuntimeSource
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.jobs.progress import progress
from pulumi_trainer.provider.jobs.status import JobStatus

CLASSES = [c for name in trainer.__all__ if isinstance(c := getattr(trainer, name), type)]
COMPONENTS = [c for c in CLASSES if issubclass(c, pulumi.ComponentResource)]
ARGUMENTS = [c for c in CLASSES if issubclass(c, Args)]


@pytest.mark.parametrize("cls", [*COMPONENTS, *ARGUMENTS])
def test_every_argument_has_its_name(cls: type) -> None:
    parameters = inspect.signature(cls).parameters
    assert parameters or cls is trainer.TensorBoard
    assert not [p for p in parameters.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    assert all(p.annotation is not p.empty for p in parameters.values())
    assert set(getattr(cls, "fields", ())) <= set(parameters)


@pytest.mark.parametrize("cls", [*COMPONENTS, *ARGUMENTS])
def test_every_argument_is_described(cls: type) -> None:
    section = (inspect.cleandoc(cls.__doc__ or "")).partition("\nArgs:\n")[2]
    described = re.findall(r"^    (\w+): \S", section, re.MULTILINE)
    assert sorted(described) == sorted(inspect.signature(cls).parameters)


@pytest.mark.parametrize("cls", ARGUMENTS)
def test_annotations_are_types_at_run_time(cls: type) -> None:
    assert field_types(cls).keys() == inspect.signature(cls).parameters.keys()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("runtime", FieldType((RuntimeSource, str), (), output=True, optional=False)),
        ("labels", FieldType((Mapping,), (), output=True, optional=True)),
        ("runtime_patches", FieldType((Sequence,), (), output=True, optional=True)),
        ("output", FieldType((bool, trainer.OutputVolume), (), output=False, optional=False)),
        ("interrupt", FieldType((), ("refuse", "allow", "checkpoint"), output=False, optional=False)),
        ("opts", FieldType((pulumi.ResourceOptions,), (), output=False, optional=True)),
    ],
)
def test_types_are_read_from_annotations(field: str, expected: FieldType) -> None:
    assert field_types(TrainJobArgs)[field] == expected


def test_an_object_without_a_name_is_the_argument_of_its_own_class() -> None:
    """Of two arguments of its class the next one that has no value."""
    data = trainer.HuggingFaceDatasetInitializer(storage_uri="hf://a/b")
    model = trainer.HuggingFaceModelInitializer(storage_uri="hf://a/c")
    signature = inspect.signature(trainer.Initializer)
    for unnamed, named in (([data, model], {}), ([model], {"dataset": data}), ([data], {"model": model})):
        given, problems = bind(signature, unnamed, named)
        assert {name: given.get(name) for name in ("dataset", "model")} == {"dataset": data, "model": model}
        assert {problem.why for problem in problems} == {"must be passed by name"}


def test_a_call_is_held_against_the_signature() -> None:
    def declared(first: str, second: int = 2, *, third: str, fourth: bool = False) -> None: ...

    signature = inspect.signature(declared)
    assert bind(signature, ["a"], {"third": "c"}) == ({"first": "a", "third": "c"}, [])
    given, found = bind(signature, ["a", 1, "c"], {"fourht": True})
    assert given == {"first": "a", "second": 1, "third": "c"}
    assert [str(p) for p in found] == [
        "third: must be passed by name. Hint: write third=...", "fourht: unknown field. Hint: did you mean fourth?",
    ]  # fmt: skip
    given, found = bind(signature, [], {"second": 1})
    assert given == {"first": None, "second": 1, "third": None}
    assert [str(p) for p in found] == ["first: is required", "third: is required"]
    assert [str(p) for p in bind(signature, ["a"], {"first": "b", "third": "c"})[1]] == [
        "first: is given twice. Hint: give first= once"
    ]
    assert [p.why for p in bind(signature, [1, 2, 3, 4, 5], {})[1]] == [
        "must be passed by name", "must be passed by name", "takes 4 arguments, but 5 were given",
    ]  # fmt: skip


def test_an_object_without_a_name_is_the_argument_of_its_class() -> None:
    made = trainer.CustomTrainer(script="train.py"), trainer.CheckpointPolicy()
    given, found = bind(inspect.signature(trainer.TrainJob), ["a", "torch-distributed", *made], {})
    assert [p.where for p in found] == ["runtime", "trainer", "checkpoint"]
    assert (given["runtime"], given["trainer"], given["checkpoint"]) == ("torch-distributed", *made)


@pytest.mark.parametrize("cls", ARGUMENTS)
def test_arguments_that_do_not_fit_are_problems(cls: Any) -> None:
    declared = inspect.signature(cls).parameters
    made = cls(*range(len(declared) + 1), no_such_thing=1)
    found = [p for p in made.check() if p in made.misnamed]
    assert "no_such_thing" in [p.where for p in found]
    assert any("were given" in p.why for p in found)
    copied = copy.copy(cls(no_such_thing=1))
    assert next(p.where for p in copied.check() if p in copied.misnamed) == "no_such_thing"


def test_where_the_nodes_are_is_given_by_name_or_by_position() -> None:
    for given in (trainer.Required("rack"), trainer.Required(level="rack")):
        assert nested_problems(given) == [] and given.level == "rack"
    assert [str(p) for p in nested_problems(trainer.Required(levl="rack"))] == [  # type: ignore[call-arg]
        "levl: unknown field. Hint: did you mean level?",
        "level: is required",
    ]


def test_no_attribute_of_the_module_has_another_name() -> None:
    known = r"^test_typed_signatures.py:\d+: module 'pulumi_trainer' has no attribute 'TrainJbo'. Hint: did you mean TrainJob\?$"
    with pytest.raises(AttributeError, match=known):
        getattr(trainer, "TrainJbo")  # noqa: B009
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'$"):
        getattr(trainer, "xyzzy")  # noqa: B009
    assert not hasattr(trainer, "xyzzy")
    with pytest.raises(ImportError, match=known):
        exec(compile("from pulumi_trainer import TrainJbo", __file__, "exec"), {})


@pytest.mark.parametrize(
    "line",
    [
        b'{"trainerStatus": {"progressPercentage": 40, "metrics": [{"name": "loss", "value": 0.5}]}}',
        b'{"trainerStatus": {"estimatedRemainingSeconds": 3}}',
    ],
)
def test_progress_holds_what_its_type_says(line: bytes) -> None:
    types = {"progressPercentage": int, "estimatedRemainingSeconds": int, "metrics": dict, "lastUpdatedTime": str}
    assert types.keys() == get_type_hints(trainer.Progress).keys()
    read = progress(line, 1769860800.7)
    held = OUTPUTS["progress"](JobStatus("a", "b", progress=read))
    assert held.keys() <= types.keys()
    assert {"metrics", "lastUpdatedTime"} <= held.keys()
    assert all(type(value) is types[name] for name, value in held.items())
    assert all(type(text) is str for pair in held["metrics"].items() for text in pair)
    assert held["lastUpdatedTime"] == "2026-01-31T12:00:00Z"


def test_progress_of_a_cluster_may_be_anything() -> None:
    reported = {"metrics": [5, {"value": 1}, {"name": "loss"}], "lastUpdatedTime": None}
    held = OUTPUTS["progress"](JobStatus("a", "b", progress=reported))
    assert held == {"metrics": {}, "lastUpdatedTime": ""}
    assert OUTPUTS["progress"](JobStatus("a", "b", progress={"metrics": None}))["metrics"] == {}
