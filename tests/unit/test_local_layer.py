"""The cached environments of packages: shared by interpreters with the same packages, and by no others."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pulumi_trainer.provider.machine.uv_program import find_uv
from pulumi_trainer.provider.pod import layer

pytestmark = pytest.mark.slow

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
        env = {**PLAIN, "PULUMI_TRAINER_ENVIRONMENTS": str(tmp_path / "environments"), layer.UV_ENV: find_uv()}
        argv = [python, layer.__file__, "below", "--no-index"]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
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


def test_other_packages_are_another_layer(tmp_path: Path, layered: Callable[[Path], dict[str, str]]) -> None:
    one, two = interpreter(tmp_path / "one", "below"), interpreter(tmp_path / "two", "below", "more")
    assert layered(one)["PYTHONPATH"] != layered(two)["PYTHONPATH"]


def made(home: Path) -> Path:
    """A complete environment without packages."""
    home.mkdir()
    (home / layer.RECORD).write_text(json.dumps({"python": "3", "requirements": []}))
    return home


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("requirements", "fixed"),
    [
        (["torch>=2.6", "--index-url", "https://a.example/simple", "--extra-index-url=https://b.example"], True),
        ([f"git+https://a.example/lib.git@{COMMIT}"], True),
        ([f"lib[extra] @ git+https://a.example/lib@{COMMIT}#subdirectory=x"], True),
        (["git+https://a.example/lib.git@main"], False),
        (["-e", "git+ssh://git@a.example/lib.git"], False),
        (["lib @ git+https://a.example/lib@v1"], False),
        (["https://a.example/lib-1-py3-none-any.whl"], True),
        (["https://a.example/main.zip"], False),
        ([f"https://a.example/main.zip#sha256={COMMIT}"], True),
        (["-rhttps://a.example/requirements.txt"], False),
        (["numpy", "--constraint=https://a.example/constraints.txt"], False),
        (["-f", "https://a.example/torch_stable.html"], True),
    ],
)
def test_what_names_no_fixed_content_is_known(requirements: list[str], fixed: bool) -> None:
    content = layer.Content(requirements)
    assert (content.fixed, content.digest) == (fixed, "")


def test_the_content_of_local_packages_counts(tmp_path: Path) -> None:
    package = tmp_path / "my lib"
    (package / "src").mkdir(parents=True)
    module, constraints = package / "src" / "module.py", tmp_path / "constraints.txt"
    module.write_text("1")
    constraints.write_text("numpy<3\n")
    listed = tmp_path / "requirements.txt"
    listed.write_text(
        f"numpy \\\n  --hash=sha256:1\n-c constraints.txt # of ours\n-r requirements.txt\n-e '{package}'\n"
    )
    ways = [
        [str(package)], [f"{package}[extra]"], ["-e", str(package)], [f"lib @ {package.as_uri()}"], [f"--editable={package}"],
        [f"-r{listed}"], ["numpy", "--requirement", str(listed)],
    ]  # fmt: skip

    def digests() -> list[str]:
        found = [layer.Content(way) for way in ways]
        assert all(content.fixed and content.digest for content in found)
        return [content.fingerprint for content in found]

    before = digests()
    twin = shutil.copytree(package, tmp_path / "twin")
    first, other = ([layer.Content([*way, str(at)]).digest for way in ([], ["-e"])] for at in (package, twin))
    assert first[0] == other[0] and first[1] != other[1], "an environment has a link to an editable package"
    for made in (".git", "src/__pycache__", "build/lib", "build/bdist.linux-x86_64", "src/lib.egg-info"):
        (package / made).mkdir(parents=True)
        (package / made / "made").write_text("by a tool")
    assert digests() == before
    module.write_text("2")
    assert not set(digests()) & set(before)
    changed = digests()
    module.rename(package / "src" / "renamed.py")
    assert not set(digests()) & set(changed)
    changed = digests()
    constraints.write_text("numpy<2\n")
    assert [now != then for now, then in zip(digests(), changed, strict=True)] == [False] * 5 + [True] * 2


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "setup.py").write_text("")
    before = layer.Content([str(package)]).digest
    for name in ("one", "two"):  # each level would have twice as many folders as the one before
        (package / name).symlink_to(package)
    found = layer.Content([str(package)])
    assert found.digest not in ("", before) and found.fixed and found._files == 1


def test_a_folder_of_too_many_files_is_installed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "MOST_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_text(name)
    (tmp_path / "again").symlink_to(tmp_path)
    assert not layer.Content([str(tmp_path)]).fixed


def test_all_pods_of_a_run_have_the_same_environment(tmp_path: Path) -> None:
    package = tmp_path / "lib"
    package.mkdir()

    def name(run: str, word: str = str(package)) -> str:
        return layer._name(layer.Content([word]), {}, {}, tmp_path, run)

    (package / "a").write_text("1")
    first = name("one")
    assert name("two") == first
    (package / "a").write_text("2")
    assert name("one") == first and name("three") != first
    moving = "git+https://a.example/lib"
    assert name("one", moving) == name("one", moving) != name("two", moving)


def test_the_place_of_a_file_of_requirements_does_not_count(
    tmp_path: Path, layered: Callable[[Path], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []
    monkeypatch.setattr(layer, "_build", lambda home, *_: built.append(home) or made(home))
    for folder, text in (("one", "numpy"), ("two", "numpy"), ("three", "numpy<3")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "requirements.txt").write_text(text)
        layer.layer(["-r", str(tmp_path / folder / "requirements.txt")], tmp_path / "layers", run=folder)
    assert len(built) == len(set(built)) == 2


def test_the_lines_of_a_file_are_the_same_environment_as_a_list(
    tmp_path: Path, layered: Callable[[Path], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[list[str]] = []
    monkeypatch.setattr(layer, "_build", lambda home, words, *_: built.append(words) or made(home))
    plain, hashed = tmp_path / "requirements.txt", tmp_path / "hashed.txt"
    plain.write_text("# ours\n\ntorch>=2.6 # the trainer\nnumpy\n")
    hashed.write_text("numpy==2 --hash=sha256:0\n")
    for words in (["torch>=2.6", "numpy"], ["-r", str(plain)], ["-r", str(hashed)]):
        layer.layer(words, tmp_path / "layers")
    assert built == [["torch>=2.6", "numpy"], ["-r", str(hashed)]]
