"""What a program imports: each name once, lazily, and the same for type checkers."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pulumi
import pulumi_trainer as trainer
import pytest

TYPED = [
    "BuiltinTrainer", "ContainerPatch", "CoschedulingPodGroup", "CoschedulingPolicy", "DataCacheInitializer",
    "DataFormat", "DataType", "EnvInjectionTarget", "FluxPolicy", "JAXPolicy", "JobPatch", "KAIPolicy",
    "LoraConfig", "Loss", "MPIPolicy", "PlainPolicy", "PodPatch", "RuntimePatch", "TorchPolicy", "TorchTuneConfig",
    "TorchTuneInstructDataset", "VolcanoNetworkTopology", "VolcanoPodGroup", "VolcanoPolicy", "XGBoostPolicy",
]  # fmt: skip


@pytest.mark.parametrize("name", TYPED)
def test_the_typed_api_is_exported_and_documented(name: str) -> None:
    assert name in trainer.__all__
    assert len(inspect.getdoc(getattr(trainer, name)) or "") > 20


def test_type_checkers_see_what_is_imported_when_it_is_used() -> None:
    tree = ast.parse(Path(str(trainer.__file__)).read_text())
    checked = next(n for n in tree.body if isinstance(n, ast.If))
    seen = {
        alias.asname or alias.name: str(node.module).removeprefix("pulumi_trainer.")
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lazy = {name: module for module, names in trainer._MODULES.items() for name in names}
    assert seen == lazy
    assert len(trainer.__all__) == len(set(trainer.__all__)) == len(lazy)
    assert {name: getattr(trainer, name).__module__.removeprefix("pulumi_trainer.") for name in lazy} == lazy


def test_an_unknown_name_is_a_problem_of_the_program_with_its_line() -> None:
    with pytest.raises(pulumi.RunError) as unknown:
        getattr(trainer, "TrainJbo")  # noqa: B009
    line = unknown.traceback[0].lineno + 1
    assert str(unknown.value) == (
        f"test_typed_exports.py:{line}: module 'pulumi_trainer' has no attribute 'TrainJbo'. Hint: did you mean TrainJob?"
    )
    assert not hasattr(trainer, "TrainJbo")
