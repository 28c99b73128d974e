"""What a program imports: each name once, lazily, and the same for type checkers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer import exports

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


def test_names_are_exported_as_type_checkers_require_and_come_from_the_package() -> None:
    tree = ast.parse(Path(str(exports.__file__)).read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    aliases = [alias for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for alias in aliases)
    assert sorted(alias.name for alias in aliases) == trainer.__all__ == dir(trainer)
    assert all(getattr(trainer, name).__module__.startswith("pulumi_trainer.") for name in trainer.__all__)


def test_a_module_is_imported_without_the_names_that_load_pulumi() -> None:
    code = "import sys; from pulumi_trainer import plugins; sys.exit('pulumi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_a_problem_of_the_program_with_its_line() -> None:
    with pytest.raises(pulumi.RunError) as unknown:
        getattr(trainer, "TrainJbo")  # noqa: B009
    line = unknown.traceback[0].lineno + 1
    assert str(unknown.value) == (
        f"test_typed_exports.py:{line}: module 'pulumi_trainer' has no attribute 'TrainJbo'. Hint: did you mean TrainJob?"
    )
    assert not hasattr(trainer, "TrainJbo")
