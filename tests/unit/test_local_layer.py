"""The cached environments of packages: shared by interpreters with the same packages, and by no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pulumi_trainer.provider.targets.local import layer

PLAIN = {"PATH": os.defpath}


def interpreter(folder: Path, *present: str) -> Path:
    """A virtual environment with packages of these names, version 1."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    for name in present:
        (packages / f"{name}.py").write_text(f"NAME = {name!r}\n")
        info = packages / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    return folder / "bin" / "python"


@pytest.fixture
def layered(tmp_path: Path) -> Callable[[Path], dict[str, str]]:
    def run(python: Path) -> dict[str, str]:
        env = {**PLAIN, "PULUMI_TRAINER_ENVIRONMENTS": str(tmp_path / "environments")}
        done = subprocess.run([python, layer.__file__, "pip"], env=env, capture_output=True, text=True, check=True)
        return dict(json.loads(done.stdout))

    return run


def test_a_second_clone_with_the_same_packages_uses_the_first_ones_layer_and_its_own_packages(
    tmp_path: Path, layered: Callable[[Path], dict[str, str]]
) -> None:
    one, two = interpreter(tmp_path / "one", "below"), interpreter(tmp_path / "two", "below")
    first, second = layered(one), layered(two)
    assert first["PYTHONPATH"] == second["PYTHONPATH"]
    assert len(list((tmp_path / "environments").glob("*/complete"))) == 1
    for variables, own in ((first, tmp_path / "one"), (second, tmp_path / "two")):
        inside = Path(variables["PATH"].split(os.pathsep)[0], "python3")
        said = subprocess.run(
            [inside, "-c", "import below; print(below.__file__)"],
            env={**PLAIN, layer.BELOW_ENV: variables[layer.BELOW_ENV]},
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout.startswith(str(own))


def test_other_packages_below_are_another_layer(tmp_path: Path, layered: Callable[[Path], dict[str, str]]) -> None:
    one, two = interpreter(tmp_path / "one", "below"), interpreter(tmp_path / "two", "below", "more")
    assert layered(one)["PYTHONPATH"] != layered(two)["PYTHONPATH"]
