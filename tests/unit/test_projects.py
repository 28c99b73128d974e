"""Projects that travel: which files they have, what their digest depends on, and the way of their archive to a container."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import io
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import boto3
import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.args.arguments import nested_problems
from pulumi_trainer.args.project import Source
from pulumi_trainer.args.trainers import CustomTrainer
from pulumi_trainer.code import project_code, requirements, source_tree, user_code
from pulumi_trainer.code.compiled import Compiled
from pulumi_trainer.code.source_tree import SourceTree, read_tree
from pulumi_trainer.plan import code_volume, trainjob_plan
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.run_inputs import describe_inputs
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.jobs.identity import digest
from pulumi_trainer.provider.kubernetes.errors import Invalid, TargetFault
from pulumi_trainer.provider.lifecycle import source_changes
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.pod import code as api_code
from pulumi_trainer.provider.pod.shared import s3
from pulumi_trainer.provider.trainer.catalog import git

from tests.documented import blocks
from tests.moto_server import moto_server

FILES = {
    ".gitignore": "*.log\n!keep.log\n/build/\ndata/*\n!data/small/\nwith space.txt\n\\#hash\n**/deep/*.tmp\n"
    "/sub/anchored.txt\n/sub/below/anchored.txt\n/-sub/anchored.txt\n",
    "a.py": "",
    "a.log": "",
    "keep.log": "",
    "build/x": "",
    "src/build/x": "",
    "data/big.bin": "",
    "data/small/a.csv": "",
    "with space.txt": "",
    "#hash": "",
    "one/deep/x.tmp": "",
    "one/deep/x.py": "",
    "sub/.gitignore": "*.py\n!b.py\n/keep.log\n",
    "sub/a.py": "",
    "sub/anchored.txt": "",
    "sub/below/anchored.txt": "",
    "-sub/anchored.txt": "",
    "sub/b.py": "",
    "sub/keep.log": "",
    "sub/below/a.py": "",
    "sub/below/.gitignore": "!a.py\n",
    "ünïcode.py": "",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize("exclude", [(), (".git",)])
def test_the_git_file_of_worktrees_and_submodules_stays_behind(tmp_path: Path, exclude: tuple[str, ...]) -> None:
    plain = write(tmp_path / "clone", {"a.py": "", "lib/b.py": ""})
    other = write(tmp_path / "tree", {"a.py": "", "lib/b.py": "", ".git": "gitdir: /x\n", "lib/.git": "gitdir: ../y\n"})
    clone, tree = read_tree(plain), read_tree(other, exclude=exclude)
    assert tree.digest == clone.digest and [*tree.files] == ["a.py", "lib/b.py"]


def test_lock_files_that_a_plan_writes_stay_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the plan after the first one would have another project."""
    folder = write(tmp_path / "a", {"a.py": "", "infra/sources.lock": "x", "data/sources.lock": "x"})
    monkeypatch.chdir(folder / "infra")
    tree = read_tree(folder)
    assert [*tree.files] == ["a.py", "data/sources.lock"]


def test_the_variables_of_direnv_stay_behind(tmp_path: Path) -> None:
    tree = read_tree(write(tmp_path, {"a.py": "", ".envrc": "export TOKEN=x"}))
    assert tree.withheld == [".envrc"] and [*tree.files] == ["a.py"]


def test_what_never_travels_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a link of direnv's file to the user's dotfiles."""
    project, other = write(tmp_path / "p", {"a.py": ""}), write(tmp_path / "dotfiles", {"envrc": "export A=1"})
    (project / ".envrc").symlink_to(other / "envrc")
    (project / os.fsdecode(b"caf\xe9")).mkdir()
    (project / os.fsdecode(b"caf\xe9/.envrc")).write_text("export A=1")
    (project / "sources.lock").write_text("x" * 100)
    monkeypatch.chdir(project)
    monkeypatch.setattr(source_tree, "MOST_BYTES", 10)
    tree = read_tree(project)
    assert tree.withheld == [".envrc", "caf?/.envrc"] and [*tree.files] == ["a.py"]


def test_a_token_in_utf_16_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(f"token = 'ghp_{'a1B2' * 9}'\n".encode("utf-16"))
    with pytest.raises(Invalid, match=r"a\.txt:1 holds a plain-text secret"):
        read_tree(tmp_path)


def test_pointers_of_git_lfs_are_noted(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
    tree = read_tree(write(tmp_path, {"a.py": "", "weights/m.bin": pointer}))
    assert code_volume._notes_of_files(tree) == [
        "files of Git LFS that are not checked out (git lfs pull) travel as pointers: weights/m.bin"
    ]


@pytest.mark.parametrize(
    ("files", "packages"),
    [
        (["src/one/__init__.py", "src/two/__init__.py", "src/tool.py"], {"one", "two"}),
        (["src/one/a.py", "src/tool.py"], set()),
        (["src/__init__.py", "src/one/__init__.py"], set()),
        (["src/one/__init__.py", "src/logging.py"], set()),
        (["one/src/two/__init__.py"], set()),
    ],
)
def test_packages_of_a_src_layout(tmp_path: Path, files: list[str], packages: set[str]) -> None:
    assert read_tree(write(tmp_path, dict.fromkeys(files, ""))).src_packages == packages


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("root", [".", "sub", "sub/below", "-sub"])
def test_what_git_ignores_stays_behind(tmp_path: Path, root: str, tracked: bool) -> None:
    write(
        tmp_path, {**FILES, "-sub/a.log": "", "-sub/-below/.gitignore": "*.py", "-sub/-below/a.py": "", "-sub/a.py": ""}
    )
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    if tracked:
        ignored = ["build/x", "sub/below/a.py", "sub/a.py", "-sub/a.log"]
        subprocess.run(["git", "-C", str(tmp_path), "add", "-f", "--", *ignored], check=True)
    argv = ["git", "-C", str(tmp_path / root), "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split("\0")
    assert [*read_tree(tmp_path / root).files] == sorted(filter(None, listed))


@pytest.mark.parametrize(
    ("cause", "why", "hint"),
    [
        ("owner", "fatal: detected dubious ownership", "git config --global --add safe.directory {}, or exclude what"),
        ("path", "git is not on PATH", "install git, or exclude what"),
        ("worktree", "fatal: not a git repository: /gone", "exclude what"),
    ],
)
def test_what_git_tracks_is_not_guessed(
    tmp_path: Path, home: Path, cause: str, why: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file of `git add -f` would stay behind, and its jobs would run again without it."""
    root = write(tmp_path / "r", {"a.py": "", "sub/a.py": "", "sub/c.yaml": "lr: 1"})
    run = ["git", "-C", str(root)]
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run([*run, "add", "-f", "."], check=True)
    write(root, {".gitignore": "*.yaml\nempty/\n"})
    (root / "lib").mkdir()
    assert [*read_tree(root / "sub").files] == ["a.py", "c.yaml"]
    if cause == "owner":
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    elif cause == "path":
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        (root / ".git").rename(tmp_path / "git")
        write(root, {".git": "gitdir: /gone\n"})
    for folder in (root, root / "sub"):
        with pytest.raises(Invalid) as raised:
            read_tree(folder)
        (problem,) = raised.value.problems
        assert problem.why.startswith("git cannot list the files that it tracks, which travel although a .gitignore")
        assert why in problem.why and problem.hint.startswith(hint.format(root))
    assert "sub/a.py" in read_tree(root, exclude=["*.yaml"]).files, "nothing that a .gitignore names could travel"
    assert "sub/a.py" in read_tree(root, include=["*.py"]).files
    (root / ".git").rename(tmp_path / "no longer git")
    assert [*read_tree(root).files] == [".gitignore", "a.py", "sub/a.py"], "there is no repository"


def hostile_clone(root: Path, program: str) -> None:
    """Make a clone that lacks a folder of its index, and fetches it by a program that its settings name."""
    write(root, {".gitignore": "*.log\n", "a.py": "", "a.log": "", "out/b.log": ""})
    run = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(root)]
    commands = ["init -q", "add -f .", "commit -qm 1", "sparse-checkout set --cone --sparse-index sub"]
    settings = {"extensions.partialClone": "origin", "core.repositoryFormatVersion": "1", "remote.origin.promisor": "true",
                "remote.origin.url": f"file://{root}", "remote.origin.uploadpack": program}  # fmt: skip
    for command in commands:
        subprocess.run([*run, *command.split()], check=True)
    for name, value in settings.items():
        subprocess.run([*run, "config", name, value], check=True)
    argv = [*run, "rev-parse", "HEAD:out"]
    tree = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    (root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()


def hostile_folder(root: Path, program: str) -> None:
    """Make a clone with a folder that is a bare repository, which arrives with any plain clone."""
    folder = root / "sub"
    hostile_clone(folder, program)
    for entry in (folder / ".git").iterdir():
        entry.rename(folder / entry.name)
    (folder / ".git").rmdir()
    subprocess.run(["git", "-C", str(folder), "config", "--unset", "core.worktree"], check=False)
    subprocess.run(["git", f"--git-dir={folder}", "config", "core.bare", "true"], check=True)
    subprocess.run(["git", "init", "-q", str(root)], check=True)


@pytest.mark.parametrize("make", [hostile_clone, hostile_folder])
@pytest.mark.parametrize("removed", ["", "GIT_ALLOW_PROTOCOL", "GIT_NO_LAZY_FETCH", "safe.bareRepository=explicit"])
def test_git_starts_no_program_that_a_project_names(
    tmp_path: Path, home: Path, make: Callable[[Path, str], None], removed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """removed: A protection that is taken away: the others are enough."""
    root = tmp_path / "project"
    make(root, f"touch {tmp_path}/owned; :")
    folder = root / "sub" if make is hostile_folder else root
    subprocess.run(["git", "-C", str(folder), "ls-files"], check=False, capture_output=True)
    assert (tmp_path / "owned").exists(), "git itself starts it"
    (tmp_path / "owned").unlink()
    environment, command = git._environment, git._command
    monkeypatch.setattr(
        git, "_environment", lambda names: {k: v for k, v in environment(names).items() if k != removed}
    )
    bare = "safe.bareRepository=all"
    monkeypatch.setattr(git, "_command", lambda: [bare if each == removed else each for each in command()])

    async def read() -> None:
        project_code.read_project(Source(folder))

    with pytest.raises(Invalid) as raised:
        asyncio.run(read())
    assert not (tmp_path / "owned").exists()
    (problem,) = raised.value.problems
    assert problem.why.startswith("git cannot list the files that it tracks, which travel although a .gitignore")
    assert problem.hint == "exclude what each .gitignore names"
    if make is hostile_folder and removed != "safe.bareRepository=explicit":
        assert "cannot use bare repository" in problem.why


def test_include_and_exclude(tmp_path: Path) -> None:
    write(tmp_path, {"pkg/a.py": "", "pkg/a.csv": "", "pkg/test/b.py": "", "c.py": ""})
    assert [*read_tree(tmp_path, ["pkg/**"], ["test/", "*.csv"]).files] == ["pkg/a.py"]


@pytest.mark.parametrize("pattern", ["!", "\\", "[z-a]", "a\\"])
def test_a_pattern_that_is_not_valid(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, {".gitignore": f"{pattern}\nb.py\n", "a.py": "", "b.py": ""})
    assert [*read_tree(tmp_path).files] == [".gitignore", "a.py"]  # git ignores such a line
    assert [p.where for p in Source(".", include=[pattern], exclude=["*.csv", pattern]).check()] == [
        "include[0]",
        "exclude[1]",
    ]


def test_a_gitignore_of_many_bytes(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"gitignore has more than 1,048,576 bytes"):
        read_tree(write(tmp_path, {".gitignore": "x" * (2**20 + 1), "a.py": ""}))


@pytest.mark.parametrize("arguments", [
    {"source": 3}, {"source": Source(3)}, {"source": Source(".", git=3, revision="v1")}, {"module": 3},  # type: ignore[arg-type]
    {"requirements": 3}, {"script": 3}, {"source": Source(".", storage=4)},  # type: ignore[arg-type]
])  # fmt: skip
def test_a_wrong_type_is_a_problem(arguments: dict[str, Any]) -> None:
    trainer = CustomTrainer(**{"source": ".", "script": "a.py", **arguments})
    found = [p for p in nested_problems(trainer) if "must be" in p.why]
    assert len(found) == 1 and found[0].where.startswith(next(iter(arguments)))


def test_a_source_is_a_path_as_well(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": ""})

    async def compile_all() -> None:  # an argument that is an Output needs an event loop
        for source in (tmp_path, str(tmp_path), Source(tmp_path), Source(str(tmp_path))):
            trainer = CustomTrainer(source=source, script="a.py")
            assert not nested_problems(trainer)
            compiled = user_code.compile_trainer(trainer, {}, None)
            assert not compiled.problems and compiled.tree is not None and [*compiled.tree.files] == ["a.py"]

    asyncio.run(compile_all())


def test_the_folder_of_a_package_is_not_the_one_that_contains_it(tmp_path: Path) -> None:
    root = write(tmp_path / "pkg", {"__init__.py": "", "train.py": ""})
    project = project_code.Project(root, read_tree(root))
    with pytest.raises(Invalid, match=f"source= is the package itself: give the folder that contains it, {tmp_path}"):
        project.module_file("pkg.train")
    with pytest.raises(Invalid, match="module= is the dotted name of a file"):
        project.module_file("other")


def test_a_module_is_not_given_by_its_path(tmp_path: Path) -> None:
    files = {"scripts/train.py": "", "src/pkg/fit.py": "", "a.py": "", "odd/py.py": ""}
    project = project_code.Project(tmp_path, read_tree(write(tmp_path, files)))
    assert project.module_file("odd.py") == (".", "odd/py.py")
    for path, why in {
        "scripts/train.py": 'scripts/train.py is a path, not the name of a module. Hint: give module="scripts.train", '
        'or script="scripts/train.py"',
        "./scripts/train": './scripts/train is a path, not the name of a module. Hint: give module="scripts.train", '
        'or script="scripts/train.py"',
        "src/pkg/fit.py": "src/pkg/fit.py is a path, not the name of a module. "
        'Hint: give module="pkg.fit", or script="src/pkg/fit.py"',
        "a.py": 'a.py is a path, not the name of a module. Hint: give module="a", or script="a.py"',
        "no.py": "no.py is a path, not the name of a module. Hint: module= is the dotted name of a file of source=",
        "/": "/ is a path, not the name of a module. Hint: module= is the dotted name of a file of source=",
    }.items():
        with pytest.raises(Invalid) as raised:
            project.module_file(path)
        assert str(raised.value.problems[0]) == f"module: {why}"


@pytest.mark.parametrize(
    ("bucket", "hint"),
    [
        ("bu", "the name of a bucket has 3 to 63 characters, and bu has 2"),
        ("b" * 64, f"the name of a bucket has 3 to 63 characters, and {'b' * 64} has 64"),
        ("-bucket", "expected: s3://BUCKET/PREFIX with"),
        ("key:secret@bu", "expected: s3://BUCKET/PREFIX with"),
        ("", "expected: s3://BUCKET/PREFIX with"),
    ],
)
def test_the_hint_for_a_bucket_is_about_what_is_wrong(bucket: str, hint: str) -> None:
    for address in (f"s3://{bucket}/p", f"s3://{bucket}"):
        (problem,) = Source(".", storage=address).check()
        assert problem.where == "storage" and problem.hint.startswith(hint) and "secret" not in str(problem)


def test_a_module_is_given_by_its_name_and_its_project_by_a_path() -> None:
    wrong: Any = {"module": json.decoder, "source": json}
    assert [str(problem) for problem in CustomTrainer(**wrong).check()] == [
        'module: must be a string, not the module json.decoder. Hint: give its name: module="json.decoder"',
        "source: must be Source or a string or Path, not the module json. "
        'Hint: give the path of the folder that contains it, such as source="."',
    ]
    (script,) = CustomTrainer(script=cast(Any, json)).check()
    assert str(script) == "script: must be a string or Path, not the module json. Hint: give the path of its file"
    (path,) = Source(cast(Any, json)).check()
    assert str(path) == "path: must be a string or Path, not the module json"


def test_secrets_stay_behind(tmp_path: Path) -> None:
    names = [
        ".env", ".env.local", "prod.env", "deploy.pem", "tls.key", "a.jks", "a.keystore", "a.ppk", "keys/id_rsa", ".netrc",
        ".aws/credentials",
    ]  # fmt: skip
    examples = [".env.example", "example.env", "prod.example.env"]
    tree = read_tree(write(tmp_path, {**dict.fromkeys([*names, *examples, "a.py"], "")}))
    assert [*tree.files] == [*sorted([*examples, "a.py"])] and len(tree.withheld) == len(names)
    write(tmp_path, {"Pulumi.prod.yaml": "", "src/.env": ""})
    assert "Pulumi.prod.yaml" not in read_tree(tmp_path).files
    assert read_tree(tmp_path, ["a.py"]).withheld == [], "nobody has asked for them"
    assert read_tree(tmp_path, ["a.py", "src/"]).withheld == ["src/.env"]


def test_the_plan_says_what_gitignore_leaves_out(tmp_path: Path) -> None:
    files = [
        "train.py",
        "data/train.bin",
        "out/big.txt",
        "out/small.txt",
        ".cache/x",
        "__pycache__/a.pyc",
        "notes/a.bin",
    ]
    write(tmp_path, {".gitignore": "*.bin\nout/\n__pycache__/\n*.swp\n", **dict.fromkeys(files, "")})
    tree = read_tree(tmp_path, exclude=["notes/"])
    assert tree.ignored == ["data/train.bin", "out/"], "neither what tools create nor what the user excludes"
    assert read_tree(tmp_path, ["*.py"]).ignored == [], "nobody has asked for them"
    write(tmp_path, {".env": "", **{f"a{i:02}.bin": "" for i in range(9)}, "a\nb\udcff.bin": ""})
    secrets, ignored = code_volume._notes_of_files(read_tree(tmp_path))
    assert secrets == "files that may contain secrets do not travel with the job: .env"
    begin = "files that a .gitignore names do not travel with the job: a b"
    assert ignored.startswith(begin) and ignored.endswith("a08.bin and 3 more") and ignored.encode()


def test_patterns_of_include_that_match_nothing_are_named(tmp_path: Path) -> None:
    """Such as a misspelt one, or one for files below a link to a folder."""
    write(tmp_path, {"src/a.py": "", "src/b.txt": "", ".gitignore": "data/", "data/x.bin": "", ".env": ""})
    (tmp_path / "alias").symlink_to("src")
    tree = read_tree(tmp_path, include=["src/*.py", "!src/z.py", "# text", "alias/*.py", "scr/", "data/*.bin", ".env"])
    assert [*tree.files] == ["src/a.py"] and tree.withheld == [".env"]
    assert code_volume._notes_of_files(tree)[1:] == [
        "no file of the project matches these patterns of include: alias/*.py, scr/, data/*.bin"
    ]
    assert read_tree(tmp_path, exclude=["alias"]).unmatched == []


def test_submodules_that_are_not_checked_out_are_named(tmp_path: Path, home: Path) -> None:
    root = tmp_path / "r"
    for folder in ("lib/dep", "lib/there", "there/inner", "docs/theme"):
        (root / folder).mkdir(parents=True)
    write(root, {"train.py": "", "lib/there/a.py": ""})
    (root / "lib" / "empty").mkdir()
    there = _commit(root / "lib" / "there", "a submodule with another one in it")
    (root / "lib" / "there" / "inner").mkdir()
    in_git = ["git", "-C", str(root / "lib" / "there"), "update-index", "--add", "--cacheinfo"]
    subprocess.run([*in_git, f"160000,{there},inner"], check=True)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    in_git[2] = str(root)
    for path in ("lib/dep", "lib/there", "docs/theme"):
        subprocess.run([*in_git, f"160000,{there},{path}"], check=True)
    tree = read_tree(root, exclude=["docs/"])
    assert tree.absent == ["lib/dep/", "lib/there/inner/"] and "lib/there/a.py" in tree.files
    assert code_volume._notes_of_files(tree) == [
        "submodules that are not checked out do not travel with the job: lib/dep/, lib/there/inner/"
    ]
    assert read_tree(root / "lib").absent == ["dep/", "there/inner/"]
    assert read_tree(root, ["*.py"]).absent == []
    commit = _commit(root, "first")
    with pytest.raises(Invalid, match=f"{commit}/docs/theme: must be a file, not a link or a submodule"):
        git.project_folder(f"file://{root}", commit)


def test_a_link_to_a_secret_stays_behind(tmp_path: Path) -> None:
    (write(tmp_path, {".env": "", "a.py": ""}) / "settings.txt").symlink_to(".env")
    tree = read_tree(tmp_path)
    assert [*tree.files] == ["a.py"] and tree.withheld == [".env", "settings.txt"]


def test_a_link_to_a_file_that_stays_behind_stays_behind(tmp_path: Path, home: Path) -> None:
    """By the link, its content would travel. A link to a folder that stays behind would be a problem otherwise."""
    files = {
        ".gitignore": "priv/\n/*.csv\n", "priv/p.json": "private", "priv/kept.json": "tracked", "a.csv": "", "d/a.csv": "",
        "d/b.csv": "", "d/.gitignore": "b.csv", "ex/e.txt": "", "Pulumi.dev.yaml": "", "train.py": "", "pkg/a.py": "",
    }  # fmt: skip
    repository = write(tmp_path / "r", files)
    links = {
        "cfg.json": "priv/p.json", "pkg/ex": "../ex", "stack": "Pulumi.dev.yaml", "gitcfg": ".git/config", "elink": "ex/e.txt",
        "a": "a.csv", "b": "d/b.csv", "twice": "cfg.json", "kept.json": "priv/kept.json", "c": "d/a.csv", "t.py": "train.py",
    }  # fmt: skip
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    subprocess.run(["git", "-C", str(repository), "add", "-f", "priv/kept.json"], check=True)
    before = read_tree(repository, exclude=["ex/"])
    for link, target in links.items():
        (repository / link).symlink_to(target)
    tree = read_tree(repository, exclude=["ex/"])
    assert {*tree.files} - {*before.files} == {"kept.json", "c", "t.py"}
    assert tree.links == ["a", "b", "cfg.json", "elink", "gitcfg", "pkg/ex", "stack", "twice"]
    assert "links to files that stay behind do not travel with the job: a, b, cfg.json, elink" in "\n".join(
        code_volume._notes_of_files(tree)
    )


def test_a_file_that_stays_behind_does_not_count(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_tree, "MOST_FILES", 2)
    monkeypatch.setattr(source_tree, "MOST_BYTES", 9)
    tree = read_tree(write(tmp_path, {".envrc": "12345678", "a.py": "1234", "b.py": "1234"}))
    assert [*tree.files] == ["a.py", "b.py"]


def test_the_cache_of_a_user_whose_home_is_the_project_is_no_change(tmp_path: Path) -> None:
    """Each plan writes into it, and a change would be another run of its jobs."""
    write(
        tmp_path,
        {
            "train.py": "",
            "home/.cache/pulumi-trainer/sources/a.tar.gz": "",
            ".cache/pulumi-trainer/x": "",
            ".cache/y": "",
        },
    )
    assert [*read_tree(tmp_path).files] == [".cache/y", "train.py"]


def test_files_that_editors_create_are_no_change(tmp_path: Path) -> None:
    before = read_tree(write(tmp_path, {"train.py": ""})).digest
    write(tmp_path, {".train.py.swp": "", "train.py~": "", "#train.py#": ""})
    (tmp_path / ".#train.py").symlink_to("somebody@host.1234:5678")
    assert read_tree(tmp_path).digest == before


def _loop(at: Path) -> None:
    (at / "loop").symlink_to("loop")


def _ignore_loop(at: Path) -> None:
    (at / ".gitignore").symlink_to(".gitignore")


def _dangling(at: Path) -> None:
    (at / "gone").symlink_to("nowhere.py")


def _through_file(at: Path) -> None:
    (at / "gone").symlink_to("a.py/nowhere.py")


def _folder_link(at: Path) -> None:
    (at / "pkg").mkdir()
    (at / "alias").symlink_to("pkg")


def _deep(at: Path) -> None:
    here = os.open(at, os.O_DIRECTORY)
    for _ in range(1200):  # more than PATH_MAX allows in one path
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def _newline(at: Path) -> None:
    (at / "a\nb.py").write_text("")


def _latin_1(at: Path) -> None:
    (at / os.fsdecode(b"caf\xe9")).mkdir()
    (at / os.fsdecode(b"caf\xe9/x.txt")).write_text("")


@pytest.mark.parametrize(("make", "pattern", "why"), [
    (_loop, "loop", "loop is a link that leads to itself|cannot read loop: Too many levels"),
    (_ignore_loop, ".gitignore", "gitignore is a link that leads to itself|cannot read .gitignore: Too many levels"),
    (_dangling, "gone", "gone is a link that leads to no file. Hint"),
    (_through_file, "gone", "gone is a link that leads to no file. Hint"),
    (_folder_link, "alias", "alias is a link to a folder"),
    (_deep, "deep/", r"deep/.* is a folder in more than 100 others"),
    (_newline, "a?b.py", "has a control character in its name"),
    (_latin_1, "caf?/", r"'caf\\udce9/x.txt' is not a name in UTF-8"),
])  # fmt: skip
def test_what_cannot_travel_is_a_problem_that_exclude_solves(
    tmp_path: Path, make: Callable[[Path], None], pattern: str, why: str
) -> None:
    make(write(tmp_path, {"a.py": ""}))
    with pytest.raises(Invalid, match=why) as raised:
        read_tree(tmp_path)
    assert "exclude it" in raised.value.problems[0].hint
    assert "a.py" in read_tree(tmp_path, exclude=[pattern]).files
    subprocess.run(["rm", "-rf", str(tmp_path / "deep")], check=True)


def test_a_folder_whose_name_is_not_utf8_is_refused_only_if_a_file_of_it_would_travel(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "", ".gitignore": "/caf?/y.log\n"})
    _latin_1(tmp_path)
    (tmp_path / os.fsdecode(b"caf\xe9/y.log")).write_text("")
    tree = read_tree(tmp_path, ["*.py", "*.log"])
    assert [*tree.files] == ["a.py"] and tree.ignored == ["caf?/y.log"]


@pytest.mark.parametrize("character", ["\u202f", "\u00a0", "\u3000", "\u200d", "\ufe0f", "\u0378"])
def test_blanks_and_joiners_of_other_scripts_are_names(tmp_path: Path, character: str) -> None:
    name = f"Screenshot 1.00{character}PM.png"
    tree = read_tree(write(tmp_path, {name: "", "a.py": ""}))
    assert [*tree.files] == [name, "a.py"] and tree.archive


@pytest.mark.parametrize(
    "character", ["\r", "\x1b", "\u2028", "\u2029", "\u202e", "\u2066", "\u200f", "\u061c", "\x85"]
)
def test_characters_that_forge_lines_are_refused_in_files_that_travel(tmp_path: Path, character: str) -> None:
    write(tmp_path, {f"docs/a{character}b.txt": "", "a.py": ""})
    with pytest.raises(Invalid, match="has a control character in its name"):
        read_tree(tmp_path)
    assert [*read_tree(tmp_path, include=["*.py"]).files] == ["a.py"]


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0c", "\r"])
def test_a_line_of_a_gitignore_ends_where_it_does_for_git(tmp_path: Path, character: str) -> None:
    write(tmp_path, {"a.py": "", "b.log": ""})
    (tmp_path / ".gitignore").write_bytes(f"x{character}a.py\n*.log\r\n".encode())
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    argv = ["git", "-C", str(tmp_path), "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    assert [*read_tree(tmp_path).files] == listed == [".gitignore", "a.py"]


def test_a_gitignore_with_a_byte_order_mark(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "\ufeff*.log\r\n", "a.log": "", "a.py": ""})
    assert [*read_tree(tmp_path).files] == [".gitignore", "a.py"]


@pytest.mark.parametrize(
    "name",
    ["train.py", "main.tf", "prod.tfvars", "app.js", "run.bash", "Dockerfile", "config.j2", "a.unheard-of", "a.csv"],
)
def test_a_token_in_clear_is_a_problem(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"a.py": "", name: "first\nkey = 'hf_" + "abcdefghij0123456789abcd'\n"})
    with pytest.raises(Invalid, match=f"{name}:2 holds a plain-text secret"):
        read_tree(tmp_path)


def test_a_token_of_letters_alone_is_a_problem(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.py": f"x = hf_{'AutoModelForSequenceClassification'}\nlogin('hf_{'QwErTyUiOpAsDfGhJkLzXcVbNmqWeRtYuI'}')\n"
        },
    )
    with pytest.raises(Invalid, match=r"a\.py:2 holds a plain-text secret"):
        read_tree(tmp_path)


def test_bytes_and_long_files_are_not_searched_for_tokens(tmp_path: Path) -> None:
    token = "key = 'hf_" + "abcdefghij0123456789abcd'\n"
    write(tmp_path, {"a.bin": f"\0{token}", "b.txt": token + "x" * 2**20})
    assert [*read_tree(tmp_path).files] == ["a.bin", "b.txt"]


def test_the_digest_is_that_of_names_modes_and_contents(tmp_path: Path) -> None:
    def tree(folder: str, mode: int = 0o644, **files: str) -> SourceTree:
        made = write(tmp_path / folder, files)
        (made / "b").chmod(mode)
        os.utime(made / "b", (1, 1))
        return read_tree(made)

    first, same = tree("one", a="1", b="2"), tree("two", b="2", a="1")
    assert first.digest == same.digest and first.archive == same.archive
    others = [tree("three", a="1", b="3"), tree("four", a="1", b="2", c=""), tree("five", 0o755, a="1", b="2")]
    assert len({first.digest, *(other.digest for other in others)}) == 4
    assert tree("six", 0o600, a="1", b="2").digest == first.digest  # what a umask does


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ("abcdef", "has more than 4 files"),
        (["a", "data/x/1", "data/x/2", "data/y/1", "src/b"], "has more than 4 files, at least 3 of them in data"),
        (["a", "src/data/1", "src/data/2", "src/data/3", "src/data/4"],
         "has more than 4 files, at least 4 of them in src/data"),
        (["a/1", "a/2", "b/1", "c/1", "d/1"], "has more than 4 files, at least 2 of them in a"),
    ],
)  # fmt: skip
def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], why: str) -> None:
    monkeypatch.setattr(source_tree, "MOST_FILES", 4)
    with pytest.raises(Invalid) as raised:
        read_tree(write(tmp_path, dict.fromkeys(files, "")))
    assert [each.why for each in raised.value.problems] == [why]


def test_too_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_tree, "MOST_BYTES", 2**20)
    with pytest.raises(Invalid) as raised:
        read_tree(write(tmp_path, {"a": "1", "data/blob": "x" * 1_000_000, "data/more": "x" * 100_000}))
    assert [each.why for each in raised.value.problems] == ["has more than 1 MiB, of which data/blob has 1.0 MiB"]


@pytest.fixture
def planned(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[CustomTrainer], Plan]:
    """Returns the plan of a job in a cluster."""
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)

    def plan(made: CustomTrainer) -> Plan:
        async def planning() -> Plan:
            target = trainer.Kubernetes(context="none", namespace="ml")
            return await trainjob_plan.plan(
                TrainJobArgs("job", runtime="torch-distributed", target=target, trainer=made)
            )

        found = asyncio.run(planning())
        assert found.problems == []
        return found

    return plan


@pytest.mark.parametrize(
    ("script", "files", "such_as"),
    [
        ("train.py", {"blob": 1_000_000, "notes.txt": 10, "model.py": 30_000}, ", such as blob,"),
        ("train.py", {"blob": 900_000, "c.csv": 20_000, "b.csv": 30_000}, ", such as blob, b.csv, c.csv,"),
        ("train", {f"{i}.txt": 5_000 for i in range(300)}, ","),
    ],
)
def test_the_hint_for_a_large_project_names_large_files_and_no_code(
    tmp_path: Path, script: str, files: dict[str, int], such_as: str
) -> None:
    project = write(tmp_path / "p", {script: f"print(1)\n# {'x' * 20_000}\n"})
    for name, size in files.items():
        (project / name).write_bytes(os.urandom(size))
    problem = code_volume._too_large(read_tree(project), 900_000, [script])
    assert (
        problem.hint == f'leave large files out (exclude=[...]){such_as} or give Source(storage="s3://BUCKET/PREFIX")'
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def unpacked(
    tmp_path: Path, tree: SourceTree, archive: bytes | None, packages: Sequence[str] = (), **more: object
) -> subprocess.CompletedProcess[str]:
    """Run what a container runs, with a script that prints its folder."""
    code, folder = tmp_path / "code", tmp_path / "source"
    folder.mkdir(exist_ok=True)
    code.mkdir(exist_ok=True)
    data = user_code.files("", None, packages, None, "", tree.digest, ["a.py"], ["."], stored=more or None)
    launch = {**json.loads(data["launch.json"]), "folder": str(folder), "launcher": [sys.executable]}
    for name, text in {**data, "launch.json": json.dumps(launch)}.items():
        (code / name).write_text(text)
    if archive is not None:
        (code / "source.tar.gz").write_bytes(archive)
    return subprocess.run([sys.executable, str(code / "bootstrap.py")], capture_output=True, text=True, timeout=60)


def test_a_container_runs_the_project_and_nothing_else(tmp_path: Path) -> None:
    tree = read_tree(write(tmp_path / "p", {"a.py": "import b\nprint(b.X)", "b.py": "X = 1"}))
    other = read_tree(write(tmp_path / "q", {"a.py": "print('other')", "b.py": "X = 1"}))
    refused = unpacked(tmp_path, tree, other.archive)
    place, hint = tmp_path / "code" / "source.tar.gz", "Hint: `pulumi-trainer rerun` sends it again"
    told = f"pulumi-trainer: the project in {place} is not what was sent: expected {tree.digest[:12]}, found"
    assert refused.stderr.startswith(f"{told} {other.digest[:12]}. {hint}")
    assert refused.returncode and not refused.stdout
    assert not (tmp_path / "source" / "project").exists()
    for damaged in (tree.archive[:-40], tree.archive[:12] + b"damaged" + tree.archive[19:], b"no archive", b""):
        cut = unpacked(tmp_path, tree, damaged)
        assert cut.stderr.startswith(f"{told} a damaged archive. {hint}") and cut.stderr.count("\n") == 1
        assert cut.returncode and not cut.stdout
        assert not (tmp_path / "source" / "project").exists()
    assert unpacked(tmp_path, tree, tree.archive).stdout == "1\n"
    assert unpacked(tmp_path, tree, tree.archive).stdout == "1\n"  # the container starts again


INSTALLS = """
import json, os, queue, sys
assert os.path.exists("a.py") and hasattr(queue, "Queue"), queue.__file__
print(json.dumps({"PYTHONPATH": "/packages:" + os.environ["PYTHONPATH"]}), file=%s)
"""


@pytest.mark.parametrize("local", [False, True])
def test_modules_of_a_project_that_have_names_of_pythons_do_not_break_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    files = {"a.py": "import os\nprint(os.environ['PYTHONPATH'])", "json.py": "MINE = 1", "queue.py": "MINE = 1"}
    tree = read_tree(write(tmp_path / "p", files))
    image, layer = tmp_path / "image", tmp_path / "layer.py"
    write(image, {"pip/__init__.py": "", "pip/__main__.py": INSTALLS % "sys.stderr"})
    layer.write_text(INSTALLS % "sys.stdout")
    monkeypatch.setenv("PYTHONPATH", str(image))
    project, above = tmp_path / "source" / "project", ""
    if local:
        monkeypatch.setenv(api_code.LAYER_ENV, str(layer))
        above = "/packages:"
    done = unpacked(tmp_path, tree, tree.archive, ["six"])
    assert done.stdout == f"{above}{project}/.:{image}\n", done.stderr


def test_a_function_of_a_module_named_main_is_the_projects(tmp_path: Path) -> None:
    """The file that starts it is called main.py as well."""
    tree = read_tree(write(tmp_path / "p", {"main.py": "def train(lr):\n    print('trains with', lr)"}))
    code, folder = tmp_path / "code", tmp_path / "source"
    folder.mkdir()
    code.mkdir()
    script = project_code._IMPORTED.format(module="main", name="train")
    data = user_code.files(script, {"lr": 0.1}, None, None, "", tree.digest, None, ["."])
    launch = {**json.loads(data["launch.json"]), "folder": str(folder), "launcher": [sys.executable]}
    for name, text in {**data, "launch.json": json.dumps(launch)}.items():
        (code / name).write_text(text)
    (code / "source.tar.gz").write_bytes(tree.archive)
    done = subprocess.run([sys.executable, str(code / "bootstrap.py")], capture_output=True, text=True, timeout=60)
    assert done.stdout == "trains with 0.1\n", done.stderr


def test_a_volume_that_is_too_small_is_a_clear_failure(tmp_path: Path) -> None:
    tree = read_tree(write(tmp_path / "p", {"a.py": "print(1)", "large.txt": "x" * 4_000_000}))
    script = tmp_path / "code" / "bootstrap.py"
    unpacked(tmp_path, tree, b"")  # writes the files of the container
    (script.parent / "source.tar.gz").write_bytes(tree.archive)
    argv = [sys.executable, str(script)]
    limited = subprocess.run(argv, capture_output=True, text=True, timeout=60, preexec_fn=_limit_files)
    why = f"pulumi-trainer: the project cannot be unpacked to {tmp_path}/source/project: File too large\n"
    assert limited.returncode and limited.stderr == why and not limited.stdout
    assert subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout == "1\n", (
        "nothing was left half-unpacked"
    )


def _limit_files() -> None:
    """Let a process write files of at most one megabyte: a full disk is the same to it, with another errno."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with moto_server() as url:
        for name, value in {
            "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="code", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        yield "s3://code/projects"


def test_a_large_project_travels_by_a_bucket(
    tmp_path: Path, home: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = read_tree(write(tmp_path / "p", {"a.py": "print('large')"}))
    address = f"{bucket}/{tree.digest}.tar.gz"
    source_archives.store(tree.digest, lambda: tree.archive)
    source_archives.upload(address, tree.digest)
    assert len(tree.archive) < tree.most_bytes
    ran = unpacked(tmp_path, tree, None, address=address, limit=tree.most_bytes)
    assert ran.stdout == "large\n", ran.stderr
    (tmp_path / "limited").mkdir()
    limited = unpacked(tmp_path / "limited", tree, None, address=address, limit=20)
    assert limited.returncode and "has more than 20 bytes" in limited.stderr and not limited.stdout
    other = read_tree(write(tmp_path / "q", {"a.py": "print('other')"}))
    boto3.client("s3").put_object(Bucket="code", Key="projects/other.tar.gz", Body=other.archive)
    (tmp_path / "replaced").mkdir()
    replaced = unpacked(tmp_path / "replaced", tree, None, address=f"{bucket}/other.tar.gz", limit=1000)
    assert f"the project in {bucket}/other.tar.gz is not what was sent: expected {tree.digest[:12]}" in replaced.stderr
    assert f"found {other.digest[:12]}. Hint: delete it there; then `pulumi-trainer rerun` sends it" in replaced.stderr
    (tmp_path / "other").mkdir()
    gone = unpacked(tmp_path / "other", tree, None, address=f"{bucket}/no", limit=1)
    assert (
        gone.returncode and f"cannot be fetched from {bucket}/no: 404" in gone.stderr and "Traceback" not in gone.stderr
    )
    with pytest.raises(TargetFault, match=r"cannot be written: .*NoSuchBucket"):
        source_archives.upload("s3://nowhere/x.tar.gz", tree.digest)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(TargetFault, match=r"Invalid endpoint: localhost:9000\. Hint: .*AWS_ENDPOINT_URL"):
        source_archives.upload(address, tree.digest)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
@pytest.mark.parametrize("size", [1 << 28, 900], ids=["one", "many"])
def test_an_archive_in_a_bucket_is_read_up_to_the_size_of_what_was_sent(
    tmp_path: Path, bucket: str, kind: bytes, size: int
) -> None:
    """256 MiB of zeros in a header are 256 KiB in the bucket."""
    tree = read_tree(write(tmp_path / "p", {"a.py": "print('large')"}))
    header = tarfile.TarInfo("a.py")
    header.type, header.size = kind, size
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9) as file:
        for _ in range(1 if size > 1000 else 500):
            file.write(header.tobuf())
            for start in range(0, size, 1 << 20):
                file.write(bytes(min(1 << 20, -(-(size - start) // 512) * 512)))
    boto3.client("s3").put_object(Bucket="code", Key="bomb.tar.gz", Body=packed.getvalue())
    limit = 2 << 20
    if size < 1000:
        limit = 200_000
    done = unpacked(tmp_path, tree, None, address="s3://code/bomb.tar.gz", limit=limit)
    assert done.returncode and f"expected {tree.digest[:12]}, found more than {limit} bytes. Hint:" in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout


def test_a_request_is_signed_as_botocore_signs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = "https://s3.eu-west-1.amazonaws.com/code/a%20b/x.tar.gz"
    made = s3.sign_headers("GET", url, "eu-west-1", "key", "secret", "token")
    request = AWSRequest("GET", url, headers={"x-amz-content-sha256": "UNSIGNED-PAYLOAD"})
    request.context["timestamp"] = made["x-amz-date"]
    request.headers["X-Amz-Date"] = made["x-amz-date"]
    request.headers["x-amz-security-token"] = "token"
    auth = S3SigV4Auth(Credentials("key", "secret", "token"), "s3", "eu-west-1")
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert made["Authorization"].endswith(f"Signature={signature}")


def test_an_archive_of_another_zlib_is_the_same_project(tmp_path: Path, bucket: str) -> None:
    tree = read_tree(write(tmp_path / "p", {"a.py": "print('same')"}))
    packed = gzip.compress(gzip.decompress(tree.archive), compresslevel=1, mtime=5)
    assert packed != tree.archive
    boto3.client("s3").put_object(Bucket="code", Key="x.tar.gz", Body=packed)
    ran = unpacked(tmp_path, tree, None, address="s3://code/x.tar.gz", limit=tree.most_bytes)
    assert ran.stdout == "same\n", ran.stderr


def test_an_archive_that_cannot_be_stored(home: Path) -> None:
    home.write_text("a file, where the folder of the user is expected")
    with pytest.raises(TargetFault, match="cannot be written: Not a directory"):
        source_archives.store("0" * 64, lambda: b"")


def test_an_archive_that_cannot_be_written_leaves_nothing(home: Path) -> None:
    def full() -> bytes:
        raise OSError(28, "No space left on device")

    with pytest.raises(TargetFault, match="No space left"):
        source_archives.store("0" * 64, full)
    assert not [file for file in home.rglob("*") if file.is_file()]


@pytest.mark.parametrize("left", [0, 12, -9, None], ids=["nothing", "the head", "most", "zeros"])
def test_an_archive_that_a_power_failure_has_damaged_is_written_anew(
    tmp_path: Path, home: Path, left: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = read_tree(write(tmp_path / "p", {"a.py": "print('whole')"}))
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_size))
    source_archives.store(tree.digest, lambda: tree.archive)
    assert synced == [len(tree.archive)]
    damaged = tree.archive[:left] if left is not None else b"\0" * len(tree.archive)
    source_archives.archive_path(tree.digest).write_bytes(damaged)
    source_archives._whole.clear()  # the next program
    with pytest.raises(
        TargetFault, match=rf"\({tree.digest[:12]}\) is damaged on this machine. Hint: `pulumi up` makes"
    ):
        source_archives.read(tree.digest)
    now = read_tree(write(tmp_path / "q", {"a.py": "print('now')"}))
    source_archives.store(now.digest, lambda: now.archive)
    (note,) = source_changes.source_notes(project_inputs("a", tree), project_inputs("a", now))
    assert note.endswith("so they cannot be compared")
    source_archives.store(tree.digest, lambda: tree.archive)
    assert source_archives.read(tree.digest) == tree.archive


def test_the_page_shows_a_changed_project(tmp_path: Path, home: Path) -> None:
    (block,) = blocks("docs/projects.md", __file__)
    begin = "import math\n\nlearning_rate = "
    trees = [
        read_tree(write(tmp_path / rate, {"config/train_small.py": f"{begin}{rate}\n"})) for rate in ("1e-3", "3e-4")
    ]
    for tree in trees:
        source_archives.store(tree.digest, lambda tree=tree: tree.archive)
    (note,) = source_changes.source_notes(*(project_inputs("gpt-1a2b3", tree) for tree in trees))
    digests = r"\b[0-9a-f]{8}\b"
    assert re.sub(digests, "DIGEST", note) == re.sub(digests, "DIGEST", block.text.strip())


def test_links_of_a_revision_are_copies_of_its_files(tmp_path: Path, home: Path) -> None:
    repository = write(tmp_path / "r", {"conf/base.py": "LR = 1", "run.sh": "", "conf/deep/x.py": ""})
    (repository / "run.sh").chmod(0o755)
    for link, target in {"conf/now.py": "base.py", "conf/deep/up.py": "../now.py", "go": "conf/../run.sh"}.items():
        (repository / link).symlink_to(target)
    first = _commit(repository, "first")
    tree = read_tree(git.project_folder(f"file://{repository}", first), committed=True)
    assert tree.digest == read_tree(repository).digest and tree.files["go"].executable
    assert tree.files["conf/deep/up.py"].content == b"LR = 1"


def test_files_of_a_revision_are_on_disk_before_its_folder_is_kept(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = write(tmp_path / "r", {"a.py": "1", "conf/b.py": "two"})
    commit = _commit(repository, "first")
    synced: list[int] = []
    monkeypatch.setattr(os, "sync", lambda: synced.extend(file.stat().st_size for file in home.rglob("*.py")))
    kept = git.project_folder(f"file://{repository}", commit)
    assert sorted(synced) == [1, 3] and (kept / "a.py").is_file()


def read(source: Source) -> project_code.Project:
    async def reading() -> project_code.Project:  # a program has an event loop
        return project_code.read_project(source)

    return asyncio.run(reading())


LINKS = {
    "/etc/hosts": "out is a link that leads to no file of the commit",
    "../../etc/hosts": "out is a link that leads to no file of the commit",
    "..": "out is a link that leads to no file of the commit",
    "nowhere": "out is a link that leads to no file of the commit",
    "out": "out is a link that leads to no file of the commit",
    "conf/../../r": "out is a link that leads to no file of the commit",
    "conf": "out is a link to a folder",
    "conf/deep": "out is a link to a folder",
    ".": "out is a link to a folder|out is a link that leads out of the project",
}


@pytest.mark.parametrize("target", LINKS)
def test_a_link_of_a_revision_is_refused_only_if_it_would_travel(tmp_path: Path, home: Path, target: str) -> None:
    repository = write(tmp_path / "r", {"conf/base.py": "LR = 1", "conf/deep/x.py": "", "a.py": ""})
    (repository / "out").symlink_to(target)
    commit, url = _commit(repository, "first"), f"file://{repository}"
    with pytest.raises(Invalid, match=LINKS[target]) as raised:
        read(Source(".", git=url, revision=commit))
    assert "exclude it" in raised.value.problems[0].hint
    for source, files in (
        (Source(".", git=url, revision=commit, exclude=["out"]), ["a.py", "conf/base.py", "conf/deep/x.py"]),
        (Source(".", git=url, revision=commit, include=["*.py"]), ["a.py", "conf/base.py", "conf/deep/x.py"]),
        (Source("conf", git=url, revision=commit), ["base.py", "deep/x.py"]),
    ):
        assert [*read(source).tree.files] == files
    folder = git.project_folder(url, commit)
    assert folder in (folder / "out").resolve().parents or (folder / "out").resolve() == folder


def test_no_file_of_a_revision_is_written_through_a_link(tmp_path: Path, home: Path) -> None:
    """Links to links, and through links to folders, also stay in the folder of the commit."""
    repository = write(tmp_path / "r", {"a/b/c.py": "", "d.py": ""})
    targets = {"one": "a", "two": "one", "a/up": "../one/../..", "a/three": "../one/b", "a/four": "../a/b/../b"}
    for link, target in targets.items():
        (repository / link).symlink_to(target)
    folder = git.project_folder(f"file://{repository}", _commit(repository, "first"))
    found = {link: (folder / link).readlink() for link in targets}
    assert found == {
        "one": Path("a"), "two": Path("a"), "a/up": Path(git.NOWHERE), "a/three": Path(git.NOWHERE), "a/four": Path("b"),
    }  # fmt: skip
    assert [*read_tree(folder, exclude=[*targets], committed=True).files] == ["a/b/c.py", "d.py"]


def test_problems_of_a_revision_name_the_argument(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = write(tmp_path / "r", {"src/a.py": "", "docs/b.py": "", "c.py": ""})
    commit, url = _commit(repository, "first"), f"file://{repository}"
    monkeypatch.chdir(tmp_path)

    def problem(path: str, revision: str, address: str = url) -> str:
        with pytest.raises(Invalid) as raised:
            read(Source(path, git=address, revision=revision))
        (found,) = raised.value.problems
        return str(found)

    for path in ("nodir", "src/no", "c.py"):
        why = f"path: commit {commit[:12]} of the repository has no folder {path}. Hint: its folders: docs, src"
        assert problem(path, commit) == why
    for name in (commit[:8], "HEAD"):
        why = f"revision: {url}@{name}: the repository has no such tag or branch. "
        assert problem(".", name) == f"{why}Hint: give the full commit hash, which git rev-parse {name} prints"
    why = f"revision: {url}@gone: the repository has no such tag or branch. Hint: git ls-remote lists its tags and branches"
    assert problem(".", "gone") == why
    assert problem(".", "a..b").startswith(f"revision: {url}@a..b: not a valid tag, branch or full commit hash")
    assert problem(".", "0" * 40) == f"revision: {url}@{'0' * 40}: the repository has no commit {'0' * 40}"
    hint = "expected: https://..., ssh://..., user@host:path, file:///..., or a folder as /PATH, ./PATH or ../PATH"
    for address in (".", "r"):
        assert problem(".", "v1", address) == f"git: {address}: not a valid address of a git repository. Hint: {hint}"
    assert problem(".", "v1", "./gone").startswith("git: ./gone@v1: cannot be fetched")

    assert "its folders" not in problem(
        "x", _commit(write(tmp_path / "flat", {"a.py": ""}), "1"), f"file://{tmp_path}/flat"
    )
    assert read(Source(".", git=url, revision=_branch(repository))).tree.files
    write(repository, {"c.py": "changed"})
    _commit(repository, "second")
    git._folder.cache_clear()
    moved = f"revision: {url}@{_branch(repository)}: has moved: sources.lock pins commit {commit[:12]}"
    assert problem("src", _branch(repository)).startswith(moved)


def _branch(repository: Path) -> str:
    argv = ["git", "-C", str(repository), "branch", "--show-current"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_the_record_names_revision_and_commit(
    tmp_path: Path, home: Path, planned: Callable[[CustomTrainer], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, url = write(tmp_path / "r", {"train.py": "print(1)\n"}), f"file://{tmp_path / 'r'}"
    monkeypatch.chdir(tmp_path)
    first = _commit(repository, "first")
    branch = _branch(repository)

    def plan(source: Source) -> Plan:
        return planned(CustomTrainer(source=source, script="train.py"))

    at_commit, at_branch = plan(Source(".", git=url, revision=first)), plan(Source(".", git=url, revision=branch))
    folder = plan(Source(str(git.project_folder(url, first)), exclude=["unused"]))
    code = folder.job.run_inputs["code"]
    assert "git" not in code
    assert at_commit.job.run_inputs["code"] == f"{code} (git {first[:12]})"
    assert at_branch.job.run_inputs["code"] == f"{code} (git {branch} {first[:12]})"
    assert digest(at_branch.content) == digest(at_commit.content) == digest(folder.content)

    write(repository, {"train.py": "print(2)\n"})
    second = _commit(repository, "second")
    changed = plan(Source(".", git=url, revision=second))

    def inputs(made: Plan) -> JobInputs:
        objects = {name: json.dumps(each) for name, each in made.objects.items() if name.endswith("-code")}
        return replace(made.job, namespace="team", name="job", objects=objects)

    (note,) = source_changes.source_notes(inputs(at_branch), inputs(changed))
    shown = re.sub("project [0-9a-f]{8}", "project 1", note.splitlines()[0])
    assert re.sub("-> [0-9a-f]{8}", "-> 2", shown) == (
        f"team/job: project 1 (git {branch} {first[:12]}) -> 2 (git {second[:12]})"
    )


def test_names_of_a_revision_need_not_be_utf8(tmp_path: Path, home: Path) -> None:
    repository = write(tmp_path / "r", {"a.py": ""})
    for name in (b"caf\xe9.txt", b"caf\xe8.txt"):
        (repository / os.fsdecode(name)).write_bytes(name)
    folder = git.project_folder(f"file://{repository}", _commit(repository, "first"))
    assert {os.fsencode(each.name) for each in folder.iterdir()} == {b"a.py", b"caf\xe8.txt", b"caf\xe9.txt"}


def test_links_do_not_multiply_a_revision(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = write(tmp_path / "r", {"a.txt": "x" * 1000})
    for number in range(3):
        (repository / f"b{number}").symlink_to("a.txt")
    monkeypatch.setattr(git, "MAX_REPOSITORY", 4 * 3000)
    with pytest.raises(Invalid, match="is too large for a project"):
        git._extract(repository / ".git", "r", _commit(repository, "first"), tmp_path / "kept", git._PROJECT)
    assert not (tmp_path / "kept").exists()


def _commit(repository: Path, message: str) -> str:
    run = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for argv in (["init", "-q"], ["add", "."], ["commit", "-qm", message]):
        subprocess.run([*run, *argv], check=True)
    return subprocess.run([*run, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def test_requirements_of_a_project(tmp_path: Path) -> None:
    write(tmp_path, {
        "pyproject.toml": '[project]\nname = "x"\ndependencies = ["numpy<3", "torch"]\n',
        "requirements.txt": "numpy # a\n-r more/all.txt\n",
        "more/all.txt": "-r own.txt\n",
        "more/own.txt": "scipy\n",
        "circle.txt": "-r circle.txt\n",
        "blank.txt": "  -r more/own.txt\n",
        **{f"bomb{i}.txt": f"-r bomb{i + 1}.txt\n-r ./bomb{i + 1}.txt\n" for i in range(25)},
        "bomb25.txt": "",
        "constrained.txt": "-c limits.txt\n",
        "broken/pyproject.toml": "[project\n",
        "empty/pyproject.toml": "",
    })  # fmt: skip
    project = project_code.Project(tmp_path, read_tree(tmp_path))
    assert requirements.read_requirements("pyproject.toml", project) == "numpy<3\ntorch\n"
    assert requirements.read_requirements("requirements.txt", project) == "numpy # a\nscipy\n"
    assert requirements.read_requirements("blank.txt", project) == "scipy\n"
    for name, why in (
        ("circle.txt", "includes itself"),
        ("bomb0.txt", "is included through more than 20 files"),
        ("bomb6.txt", "or 20,000 lines"),
        ("constrained.txt", "constrained.txt:1: -c is not supported"),
        ("broken/pyproject.toml", "is not valid TOML"),
        ("empty/pyproject.toml", "has no list project.dependencies"),
        ("none.txt", "no such file"),
    ):
        with pytest.raises(Invalid, match=why):
            requirements.read_requirements(name, project)


def test_a_lock_of_uv_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Path(__file__).parents[2] / ".venv/bin"  # where set-up installs uv, also for the tests on other Pythons
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    package = write(tmp_path / "own", {"pyproject.toml": '[project]\nname = "own"\nversion = "1"\n', "own.py": ""})
    write(tmp_path / "p", {
        "pyproject.toml": f'[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = ["own"]\n'
        f'[tool.uv.sources]\nown = {{ path = "{package}" }}\n',
    })  # fmt: skip
    subprocess.run(["uv", "lock", "-q", "--offline"], cwd=tmp_path / "p", check=True)
    text = requirements.read_requirements("uv.lock", project_code.Project(tmp_path / "p", SourceTree({})))
    assert str(package) in text or "own" in text


@pytest.mark.parametrize("below", ["", "infra/deep/"])
@pytest.mark.parametrize(
    ("path", "line", "refused"),
    [
        ("libs/own", "-e ./libs/own", ""),
        ("libs/my own", "./libs/my own", ""),
        ("libs/gone", "-e ./libs/gone", "./libs/gone"),
        ("../mylib", "../mylib", "../mylib"),
    ],
)
def test_a_path_of_a_lock_is_in_the_project(
    tmp_path: Path, with_uv: None, below: str, path: str, line: str, refused: str
) -> None:
    """pip runs in the folder of the project, wherever the lock is."""
    editable = str(line.startswith("-e")).lower()
    from_lock = os.path.relpath(path, below or ".")
    write(tmp_path / "p", {
        f"{path}/pyproject.toml": '[project]\nname = "own"\nversion = "1"\n', f"{path}/own.py": "", ".gitignore": "",
        f"{below}pyproject.toml": '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = ["own"]\n'
        f'[tool.uv.sources]\nown = {{ path = "{from_lock}", editable = {editable} }}\n',
    })  # fmt: skip
    subprocess.run(["uv", "lock", "-q", "--offline"], cwd=tmp_path / "p" / below, check=True)
    project = project_code.Project(tmp_path / "p", read_tree(tmp_path / "p", exclude=["libs/gone"]))
    if not refused:
        assert requirements.read_requirements(f"{below}uv.lock", project) == f"{line}\n"
        return
    with pytest.raises(Invalid) as raised:
        requirements.read_requirements(f"{below}uv.lock", project)
    (problem,) = raised.value.problems
    assert problem.why == f"uv.lock: the project has no {refused}" and "source=" in problem.hint


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("torch>>2", "'torch>>2' is not a valid requirement: "),
        ("./vendored", "the project has no ./vendored"),
        ("-e ./nowhere", "the project has no ./nowhere"),
    ],
)
def test_a_dependency_of_pyproject_is_checked_as_a_line_of_requirements(tmp_path: Path, line: str, why: str) -> None:
    write(tmp_path, {"pyproject.toml": f'[project]\nname = "x"\ndependencies = ["numpy", "{line}"]\n'})
    with pytest.raises(Invalid) as raised:
        requirements.read_requirements("pyproject.toml", project_code.Project(tmp_path, read_tree(tmp_path)))
    assert raised.value.problems[0].why.startswith(f"pyproject.toml: {why}")


def test_a_path_of_requirements_without_a_project_does_not_travel_to_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"libs/own/pyproject.toml": ""})
    monkeypatch.chdir(tmp_path)
    code: dict[str, Any] = {"requirements": "torch\n-e ./libs/own\n./in/the/image\n"}
    assert [str(each) for each in user_code.unshipped_packages(code)] == [
        "requirements: ./libs/own is a path of this machine, and no file travels with requirements. "
        "Hint: give the address of a package, or source="
    ]
    assert not [*user_code.unshipped_packages({**code, "source": "digest"})]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("./nosuch", "./nosuch"),
        ("./nosuch[dev]  # ours", "./nosuch"),
        ("-e ./nosuch", "./nosuch"),
        ("--editable=libs/nosuch", "libs/nosuch"),
        ("../other", "../other"),
        ("dist/x-1-py3-none-any.whl --no-deps", "dist/x-1-py3-none-any.whl"),
        ("./libs/own", ""),
        ("libs/own/", ""),
        ("-e .", ""),
        ("-e ./libs/own[dev]", ""),
        ("own.whl", ""),
        ("/opt/wheels/x.whl", ""),
        ("~/x.whl", ""),
        ("./nosuch ; sys_platform == 'win32'", ""),
        ("own @ file:./nosuch", ""),
        ("https://a.b/c.whl", ""),
        ("git+ssh://git@a.b/c", ""),
        ("${OWN}/x", ""),
        ("--find-links ./nosuch", ""),
        ("# ./nosuch", ""),
    ],
)
def test_a_path_of_requirements_is_in_the_project(tmp_path: Path, line: str, path: str) -> None:
    files = {"requirements.txt": f"torch\n-r more/all.txt\n{line}\n", "more/all.txt": "./libs/own\n"}
    write(tmp_path, {**files, "libs/own/pyproject.toml": "", "own.whl": ""})
    project = project_code.Project(tmp_path, read_tree(tmp_path))
    if not path:
        assert line in requirements.read_requirements("requirements.txt", project)
        return
    with pytest.raises(Invalid) as raised:
        requirements.read_requirements("requirements.txt", project)
    (problem,) = raised.value.problems
    assert problem.why == f"requirements.txt:3: the project has no {path}" and "source=" in problem.hint
    assert line in requirements.read_requirements(tmp_path / "requirements.txt", None)


@pytest.mark.parametrize(
    "name", ["-r {}", "--requirement={}", "--requirem {}", "-r{} # all", "-r more/all.txt", "-r ignored.txt"]
)
def test_requirements_include_only_files_of_the_project(tmp_path: Path, name: str) -> None:
    """Else the author of a project would read files of whoever plans its job."""
    outside = write(tmp_path / "home", {"password.txt": "hunter2"}) / "password.txt"
    for shown in (str(outside), "../home/password.txt"):
        line = name.format(shown)
        files = {"train.py": "", "requirements.txt": f"torch\n{line}\n", "more/all.txt": f"-r ../{shown}\n"}
        write(tmp_path / "p", {**files, ".gitignore": "ignored.txt\n", "ignored.txt": "hunter2"})
        with pytest.raises(Invalid) as raised:
            requirements.read_requirements("requirements.txt", read(Source(tmp_path / "p")))
        found = str(raised.value)
        assert re.search(r"(requirements.txt:2|all.txt:1): (the project has no|ignored.txt does not travel)", found)
        assert "hunter2" not in found
    assert "hunter2" in requirements.read_requirements(write(tmp_path, {"a.txt": "-r p/ignored.txt"}) / "a.txt", None)


def test_no_error_shows_a_line_of_a_file_that_requirements_include(tmp_path: Path) -> None:
    write(tmp_path, {"all.txt": "-r other.txt\n", "other.txt": "machine a login me password hunter2\n"})
    for project in (None, project_code.Project(tmp_path, read_tree(tmp_path))):
        with pytest.raises(Invalid) as raised:
            requirements.read_requirements(tmp_path / "all.txt", project)
        assert [each.why for each in raised.value.problems] == ["other.txt:1 is not a valid requirement"]


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml", "uv.lock"])
def test_requirements_are_not_read_through_a_link_out_of_the_project(tmp_path: Path, name: str) -> None:
    """A link that a .gitignore names does not travel, and so is not refused with the files of the project."""
    outside = write(tmp_path / "home", {name: "hunter2\n"}) / name
    project = write(tmp_path / "p", {"train.py": "", ".gitignore": f"{name}\n"})
    (project / name).symlink_to(outside)
    with pytest.raises(Invalid, match=f"{name} is a link that leads out of the project"):
        requirements.read_requirements(name, read(Source(project)))


@pytest.mark.parametrize("line", ["--pre -r {}", "-e . --requirement={}", "--no-index --constraint {}"])
def test_an_option_that_names_a_file_needs_a_line_of_its_own(tmp_path: Path, line: str) -> None:
    """pip reads it after other options, too, and that file would not travel."""
    write(
        tmp_path, {"all.txt": line.format("other.txt"), "plain.txt": f"--pre # {line}\n-e . # -r x\n", "other.txt": ""}
    )
    with pytest.raises(Invalid, match=r"all.txt:1: \S+ needs a line of its own"):
        requirements.read_requirements(tmp_path / "all.txt", None)
    assert "-e ." in requirements.read_requirements(tmp_path / "plain.txt", None)


def test_the_environment_of_the_plan_is_no_file_of_requirements() -> None:
    with pytest.raises(Invalid, match="/proc/self/environ has a NUL character"):
        requirements.read_requirements("/proc/self/environ", None)


@pytest.mark.parametrize(
    ("command", "warning"),
    [
        (["python", "nothere.py"], "nothere.py is not in the project. Hint: it is relative to the folder of source="),
        (["/usr/bin/python3.11", "train.py"], "train.py is not in the project. Hint: did you mean src/train.py?"),
        (["torchrun", "./src/no.py", "--lr", "1"], "src/no.py is not in the project"),
        (["python3", "src/train.py"], ""),
        (["python3", "./src/../src/train.py"], ""),
        (["python3", "-m", "train.py"], ""),
        (["python3", "/app/train.py"], ""),
        (["python3", "$(SCRIPT).py"], ""),
        (["python3", "src/data.json"], ""),
        (["accelerate", "launch.py"], ""),
        (["python3"], ""),
    ],
)
def test_a_file_of_a_command_that_does_not_travel_is_a_warning(
    tmp_path: Path, planned: Callable[[CustomTrainer], Plan], command: list[str], warning: str
) -> None:
    write(tmp_path, {"src/train.py": "print(1)\n"})
    found = planned(CustomTrainer(source=tmp_path, command=command)).warnings
    shown = [str(each) for each in found if each.where == "trainer.command"]
    assert len(shown) == bool(warning) and all(each.startswith(f"trainer.command: {warning}") for each in shown)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("use.py", "use.py does not travel with the job: include, exclude or a built-in pattern leaves it out"),
        ("lib/one.py", "lib/one.py does not travel with the job: a .gitignore names it"),
        ("two.py", "two.py does not travel with the job: a .gitignore names it"),
        ("alias.py", "alias.py does not travel with the job: it is a link to a file that stays behind"),
        ("none.py", ""),
        ("a.py", ""),
    ],
)
def test_a_file_that_starts_and_stays_behind_is_named_with_the_reason(
    tmp_path: Path, planned: Callable[[CustomTrainer], Plan], path: str, why: str
) -> None:
    project = write(tmp_path / "p", {".gitignore": "lib/\ntwo.py\n", **dict.fromkeys(("lib/one.py", "two.py"), "")})
    write(project, {"use.py": "print(1)\n", "a.py": "print(1)\n"})
    (project / "alias.py").symlink_to("two.py")
    source = Source(project, exclude=["use.py"])
    found = read(source)
    if path != "a.py":
        (problem,) = project_code.script_problems(found, path)
        assert problem.why == (why or f"the project has no file {path}")
        assert problem.hint.endswith("must not leave it out")
        with pytest.raises(Invalid) as raised:
            found.module_file(path.removesuffix(".py").replace("/", "."))
        assert raised.value.problems[0].why.startswith(why or "the project has no module none: ")
    warnings = planned(CustomTrainer(source=source, command=["python", path])).warnings
    expected = [] if path == "a.py" else [why or f"{path} is not in the project"]
    assert [each.why for each in warnings if each.where == "trainer.command"] == expected


@pytest.mark.parametrize("name", ["pyproject.toml", "uv.lock"])
def test_a_project_for_another_python_is_a_warning(tmp_path: Path, name: str) -> None:
    def warnings(required: str, python: str) -> list[str]:
        write(
            tmp_path, {"pyproject.toml": f"[project]\ndependencies = []\nrequires-python = {required}\n", "uv.lock": ""}
        )
        made = CustomTrainer(script="train.py", requirements=tmp_path / name)
        return [str(each) for each in requirements.project_warnings(made, python)]

    assert warnings('">=3.13"', "3.11.7") == [
        "requirements: pyproject.toml requires Python >=3.13, and the job runs with 3.11.7, the Python of this program. "
        "Hint: give Local(python=) such an interpreter, or run the program with it"
    ]
    for required, python in (
        ('">=3.10"', "3.11.7"),
        ('">=3.13"', "3.14.0rc1"),
        ('">=3.13"', ""),
        ('">>3"', "3.11"),
        ("3", "2.7"),
    ):
        assert warnings(required, python) == []


@pytest.mark.parametrize("line", ["not a req!", "torch==", "torch numpy", "dependencies:"])
def test_a_line_that_is_no_requirement_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    write(tmp_path, {"requirements.txt": f"# all\n\n{line}\n"})
    with pytest.raises(Invalid, match=r"requirements.txt:3: .* is not a valid requirement"):
        requirements.read_requirements(tmp_path / "requirements.txt", None)


def test_a_secret_in_a_file_of_requirements_is_named_by_its_line(tmp_path: Path) -> None:
    secret = "https://user:pa55word@example.com/x.whl"
    for text in (f"six\n{secret}\n", f"six\n--extra-index-url {secret}\n", f"six \\\n{secret}\n", f"\n-r {secret}\n"):
        write(tmp_path, {"all.txt": "\n\n-r cred.txt\n", "cred.txt": text})
        with pytest.raises(Invalid) as raised:
            requirements.read_requirements(tmp_path / "all.txt", None)
        (problem,) = raised.value.problems
        assert problem.where == "requirements" and problem.why.startswith("cred.txt:2 is a plain-text secret")
        assert "PIP_INDEX_URL" in problem.hint and "pa55word" not in str(problem)


def test_every_line_that_pip_reads_travels(tmp_path: Path) -> None:
    text = (
        "torch>=2  # a comment\n-e .\n--pre\n./libs/foo\nmylib @ file:../mylib\nhttps://a.b/c.whl\n${OWN}\n"
        "x[a,b]==1.0; python_version < '3.12'\na==1 --hash=sha256:00\nb==1 \\\n    --hash=sha256:00\nc>= \\\n1\\\n,<2\n"
    )
    write(tmp_path, {"requirements.txt": text})
    assert requirements.read_requirements(tmp_path / "requirements.txt", None) == text


def test_a_byte_order_mark_does_not_travel(tmp_path: Path) -> None:
    write(tmp_path, {
        "requirements.txt": "\ufefftorch>=2\n-r more.txt\n", "more.txt": "\ufeffnumpy\n", "all.txt": "\ufeff-r more.txt\n",
        "pyproject.toml": '\ufeff[project]\ndependencies = ["scipy"]\n', "plain.txt": "numpy\n",
        "joined.txt": "torch\n\ufeffnumpy\n",
    })  # fmt: skip
    expected = {
        "requirements.txt": "torch>=2\nnumpy\n",
        "all.txt": "numpy\n",
        "pyproject.toml": "scipy\n",
        "plain.txt": "numpy\n",
    }
    for name, text in expected.items():
        assert requirements.read_requirements(tmp_path / name, None) == text
    with pytest.raises(Invalid, match=r"joined.txt:2: '\\ufeffnumpy' is not a valid requirement"):
        requirements.read_requirements(tmp_path / "joined.txt", None)


@pytest.mark.parametrize(
    ("encoding", "why", "hint"),
    [
        ("utf-16", "is UTF-16 text, not UTF-8", "save it as UTF-8; in PowerShell: "),
        ("utf-16-be", "is UTF-16 text, not UTF-8", "save it as UTF-8; in PowerShell: "),
        ("latin-1", "is not UTF-8 text: invalid continuation byte, at byte 5", "save it as UTF-8"),
    ],
)
def test_requirements_in_another_encoding_are_refused(tmp_path: Path, encoding: str, why: str, hint: str) -> None:
    text = "# caf\u00e9s\ntorch\n"
    if encoding == "utf-16-be":
        text = f"\ufeff{text}"
    (tmp_path / "requirements.txt").write_bytes(text.encode(encoding))
    with pytest.raises(Invalid) as raised:
        requirements.read_requirements("requirements.txt", project_code.Project(tmp_path, SourceTree({})))
    (problem,) = raised.value.problems
    assert why in problem.why and problem.hint.startswith(hint)


def test_an_environment_of_conda_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"environment.yml": "name: x\n"})
    with pytest.raises(Invalid, match="is an environment of conda"):
        requirements.read_requirements(tmp_path / "environment.yml", None)


def test_a_notebook_is_refused() -> None:
    (problem,) = CustomTrainer(script="a/train.ipynb").check()
    assert problem.where == "script" and "jupyter nbconvert --to script a/train.ipynb" in problem.hint


@pytest.fixture
def with_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Path(__file__).parents[2] / ".venv/bin"
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")


CORP = "https://index.corp.example/simple"


def locked(folder: Path, index: str, default: str, *, digest: str = "a" * 64) -> project_code.Project:
    """A project whose lock has a package of uv's default index and one of another; an empty digest is none."""
    write(folder, {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\n'
        'dependencies = ["My_Lib", "torch"]\n[tool.uv.sources]\nmy-lib = { index = "priv" }\n'
        f'[[tool.uv.index]]\nname = "priv"\nurl = "{index}"\nexplicit = true\n',
        "uv.lock": 'version = 1\nrevision = 2\nrequires-python = ">=3.10"\n'
        + package("my-lib", index, digest)
        + package("torch", default, "b" * 64)
        + '[[package]]\nname = "x"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "my-lib" }, { name = "torch" }]\n[package.metadata]\n'
        f'requires-dist = [{{ name = "my-lib", index = "{index}" }}, {{ name = "torch" }}]\n',
        "train.py": "print(1)\n",
    })  # fmt: skip
    return project_code.Project(folder, SourceTree({}))


def package(name: str, index: str, digest: str) -> str:
    file = f'url = "https://files.example/{name.replace("-", "_")}-1.0-py3-none-any.whl"'
    hashed = f', hash = "sha256:{digest}"' if digest else ""
    source = f'source = {{ registry = "{index}" }}'
    return f'[[package]]\nname = "{name}"\nversion = "1.0"\n{source}\nwheels = [{{ {file}{hashed} }}]\n'


@pytest.fixture
def default(tmp_path_factory: pytest.TempPathFactory, with_uv: None) -> str:
    """The index of uv itself."""
    folder = write(tmp_path_factory.mktemp("empty"), {
        "pyproject.toml": '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\n',
        "uv.lock": 'version = 1\nrevision = 2\nrequires-python = ">=3.10"\n'
        '[[package]]\nname = "x"\nversion = "1"\nsource = { virtual = "." }\n',
    })  # fmt: skip
    found = requirements._default_index(folder / "uv.lock")
    assert found.startswith("https://") and not found.endswith("/")
    return found


def test_a_lock_of_several_indexes_travels_with_them_and_with_its_hashes(tmp_path: Path, default: str) -> None:
    text = requirements.read_requirements("uv.lock", locked(tmp_path, CORP, default))
    assert text.startswith(f"--index-url {default}\n--extra-index-url {CORP}\n\nmy-lib==1.0")
    assert f"my-lib==1.0 \\\n    --hash=sha256:{'a' * 64}" in text and f"--hash=sha256:{'b' * 64}" in text
    (problem,) = user_code.package_problems({"requirements": text, "packages": ["numpy"]})
    assert "pip then installs nothing without one" in problem.why and "lock" in problem.hint
    assert not user_code.package_problems({"requirements": text, "packages": ["--pre", "--timeout", "60"]})


def test_a_lock_of_the_default_index_alone_travels_as_names_and_versions(tmp_path: Path, default: str) -> None:
    text = requirements.read_requirements("uv.lock", locked(tmp_path, f"{default}/", default))
    assert text == "my-lib==1.0\ntorch==1.0\n"


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_an_index_of_the_environment_is_not_the_default_one(
    tmp_path: Path, default: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, CORP)
    text = requirements.read_requirements("uv.lock", locked(tmp_path, CORP, CORP))
    assert f"--index-url {CORP}\n" in text and text.count("--hash=") == 2
    assert requirements.read_requirements("uv.lock", locked(tmp_path, default, default)) == "my-lib==1.0\ntorch==1.0\n"


def test_settings_of_a_user_do_not_change_what_a_lock_says(
    tmp_path: Path, default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each user of a project would start its jobs again, and the password would be in them."""
    other = "https://ann:s3cretPassw0rd@other.example/simple"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(write(tmp_path / "config", {"uv/uv.toml": ""})))
    project = locked(tmp_path / "p", CORP, default)
    text = requirements.read_requirements("uv.lock", project)
    for name in ("UV_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX"):
        with monkeypatch.context() as shell:
            shell.setenv(name, other)
            assert requirements.read_requirements("uv.lock", project) == text
    for setting in (
        'index-url = "https://mirror.example/simple"\n',
        'extra-index-url = ["https://mirror.example/simple"]\n',
    ):
        write(tmp_path / "config", {"uv/uv.toml": setting})
        requirements._default_index.cache_clear()  # the next program
        assert requirements.read_requirements("uv.lock", project) == text


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_lock_brings_the_indexes_that_it_names(tmp_path: Path, default: str, slash: str) -> None:
    """Those of the program's user are not known on another machine."""
    index = f"{CORP}{slash}"
    project = locked(tmp_path, index, index)
    file = tmp_path / "pyproject.toml"
    file.write_text(file.read_text().partition("[tool.uv.sources]")[0])
    text = requirements.read_requirements("uv.lock", project)
    assert text.startswith(f"--index-url {index}\n\nmy-lib==1.0 \\\n") and text.count("--hash=") == 2


def test_an_editable_package_of_a_lock_of_several_indexes_is_refused(tmp_path: Path, default: str) -> None:
    """pip installs none where others have hashes."""
    project = locked(tmp_path, CORP, default)
    pyproject, lock = tmp_path / "pyproject.toml", tmp_path / "uv.lock"
    write(tmp_path, {
        "own/pyproject.toml": '[project]\nname = "own"\nversion = "1"\n',
        "pyproject.toml": pyproject.read_text().replace('"torch"]', '"torch", "own"]')
        .replace("sources]\n", 'sources]\nown = { path = "own", editable = true }\n'),
        "uv.lock": lock.read_text().replace('{ name = "torch" }]\n[', '{ name = "torch" }, { name = "own" }]\n[')
        + '[[package]]\nname = "own"\nversion = "1"\nsource = { editable = "own" }\n',
    })  # fmt: skip
    with pytest.raises(Invalid, match=r"has no hashes of -e \./own: with several indexes"):
        requirements.read_requirements("uv.lock", project)


def test_a_lock_of_several_indexes_without_hashes_is_refused(tmp_path: Path, default: str) -> None:
    with pytest.raises(Invalid, match=r"has no hashes of my-lib==1\.0: with several indexes"):
        requirements.read_requirements("uv.lock", locked(tmp_path, CORP, default, digest=""))


def test_dependencies_with_a_source_of_uv_are_a_warning(tmp_path: Path) -> None:
    project = locked(tmp_path, CORP, CORP)
    (warning,) = requirements.source_warnings("pyproject.toml", project)
    assert "names the sources of My_Lib for uv" in warning.why and 'requirements="uv.lock"' in warning.hint
    assert not requirements.source_warnings("uv.lock", project)

    async def compiled() -> Any:  # an argument that is an Output needs an event loop
        made = CustomTrainer(source=tmp_path, script="train.py", requirements="pyproject.toml")
        return user_code.compile_trainer(made, {}, None)

    assert asyncio.run(compiled()).warnings == (warning,)


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ((b"a\n", False), (b"a\n", True), "  a.py executable now"),
        ((b"a\n", True), (b"b\n", False), "  a.py changed, not executable any more"),
        ((b"a\n", False), (b"a\r\n", False), "  a.py changed (line endings alone)"),
        ((b"a", False), (b"\0", False), "  a.py changed (not a text in UTF-8)"),
        ((b"\xe8", False), (b"\xe9", False), "  a.py changed (not a text in UTF-8)"),
        ((b"", False), (b"a" * (2**20 + 1), False), "  a.py changed (more than 1 MiB)"),
        ((b"a\n" * 30_000, False), (b"b\n", False), "  a.py changed (more than 20,000 lines)"),
    ],
)
def test_what_is_not_a_changed_line_is_named(before: Any, after: Any, line: str) -> None:
    changes = source_changes._changes({"a.py": source_changes._File(*before)}, {"a.py": source_changes._File(*after)})
    assert changes[0] == line


def test_a_long_change_of_one_file_hides_no_other_one() -> None:
    before = {f"{name}.py": source_changes._File(b"old\n") for name in "bcde"}
    numbers = b"".join(b"%d\n" % number for number in range(400))
    after = {name: source_changes._File(b"new\n" + numbers) for name in before}
    changes = source_changes._changes(
        before, {"a.csv": source_changes._File(numbers), **after, "z.py": source_changes._File(b"z\n")}
    )
    assert [line.split()[0] for line in changes if not line.startswith("    ")] == ["a.csv", *before, "z.py"]
    assert (
        changes[:4] == ["  a.csv added", "    @@ -0,0 +1,400 @@", "    +0", "    +1"]
        and changes[41] == "    ... 361 more lines"
    )
    assert changes[-2:] == ["  z.py added", "    ... 2 more lines"], "200 lines of all files together"
    assert sum(line.startswith("    ") and "more line" not in line for line in changes) == source_changes.MOST_LINES


def test_a_changed_line_is_shown_in_part() -> None:
    (_, _, old, new) = source_changes._changes(
        {"a.ipynb": source_changes._File(b"a" * 900_000)}, {"a.ipynb": source_changes._File(b"b")}
    )
    assert (
        old.startswith("    -aaa") and old.endswith("a... (900,000 characters)") and len(old) < 250 and new == "    +b"
    )


@pytest.mark.parametrize(
    ("folder", "hint"),
    [
        ("", '__main__.py is the program itself: exclude=["/__main__.py"] leaves it out'),
        ("infra/", 'infra/__main__.py is the program itself: exclude=["/infra/"] leaves its folder out'),
    ],
)
def test_an_edit_of_the_program_itself_is_named(folder: str, hint: str) -> None:
    before, after = (
        {f"{folder}__main__.py": source_changes._File(text), f"{folder}Pulumi.yaml": source_changes._File()}
        for text in (b"1\n", b"2\n")
    )
    assert source_changes._changes(before, after)[-1] == f"  {hint}, and its edits start no other run"


STALE = {
    "another version": ('["My.Lib>=2", "torch"]', ["my-lib"]),
    "one more": ('["my_lib<2", "torch", "scipy"]', ["scipy"]),
    "one less": ('["my-lib<2"]', ["torch"]),
    "none": ("[]", ["my-lib, torch"]),
    "the same": ('["torch", "MY_LIB <2.0"]', []),
    "its own extras": ('["x[all]"]', []),
    "not valid": ('["my-lib>>2"]', []),
}


@pytest.mark.parametrize("case", STALE)
def test_a_lock_of_another_pyproject_is_a_warning(tmp_path: Path, with_uv: None, case: str) -> None:
    """A lock as uv makes it, here without an index."""
    names = {"my-lib": "1.0", "torch": "2.0", "extra": "1.0"}
    for name, version in names.items():
        write(tmp_path / name, {"pyproject.toml": f'[project]\nname = "{name}"\nversion = "{version}"\n'})
    overrides = [f"{name} @ file://{tmp_path / name}" for name in names]
    project = write(tmp_path / "p", {"train.py": "print(1)\n"})

    def depend(dependencies: str) -> None:
        text = f'[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = {dependencies}\n'
        more = f'optional-dependencies.more = ["extra>=1"]\n[tool.uv]\noverride-dependencies = {overrides}\n'
        write(project, {"pyproject.toml": text + more})

    depend('["my-lib<2", "torch"]')
    subprocess.run(["uv", "lock", "-q", "--offline"], cwd=project, check=True)
    dependencies, changed = STALE[case]
    depend(dependencies)
    found = requirements.source_warnings("uv.lock", project_code.Project(project, SourceTree({})))
    assert [str(each) for each in found] == [
        "requirements: uv.lock does not fit pyproject.toml, which has other requirements now: "
        f"{names}; the locked versions are installed. Hint: uv lock"
        for names in changed
    ]


def test_a_lock_that_cannot_be_compared_is_no_warning(tmp_path: Path) -> None:
    source = 'source = { editable = "." }\n'
    lock = f'[[package]]\nname = "x"\n{source}dependencies = [{{ name = "torch" }}]\n'
    made = f'[[package]]\nname = "x"\n{source}[package.metadata]\nrequires-dist = [{{ name = "torch", specifier = "?" }}]\n'
    declared = '[project]\nname = "x"\ndependencies = ["numpy"]\n'
    for content in (
        {"uv.lock": lock, "pyproject.toml": declared},
        {"uv.lock": made, "pyproject.toml": declared},
        {"uv.lock": "", "pyproject.toml": declared},
        {"uv.lock": made, "pyproject.toml": "[project"},
        {"uv.lock": "[[package", "pyproject.toml": declared},
        {"uv.lock": made.replace("?", ">=2"), "pyproject.toml": '[project]\nname = "x"\ndynamic = ["dependencies"]\n'},
    ):
        assert requirements.source_warnings(write(tmp_path, content) / "uv.lock", None) == ()
    (tmp_path / "pyproject.toml").unlink()
    assert requirements.source_warnings(tmp_path / "uv.lock", None) == ()


def test_lines_that_look_like_a_header_of_a_diff_are_shown() -> None:
    found = source_changes._line_diff(b"-- a\n", b"++ b\n")
    assert found == ["@@ -1 +1 @@", "--- a", "+++ b"]


def project_inputs(job: str, tree: SourceTree) -> JobInputs:
    """The inputs of a job of a project."""
    metadata = {"name": f"{job}-code", "annotations": {"pulumi-trainer.dev/source": tree.digest}}
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    objects = {f"ConfigMap/{job}-code": json.dumps(code)}
    return JobInputs(namespace="team", name=job, digest="d", run="1", target={}, objects=objects)


def test_changes_are_shown_line_by_line_once(tmp_path: Path, home: Path) -> None:
    trees = []
    for folder, lr in (("one", "0.1"), ("two", "0.2\x1b[2J")):
        more = {"gone.py": ""} if folder == "one" else {"new.bin": "\0"}
        trees.append(read_tree(write(tmp_path / folder, {"a.py": f"first = 1\nlr = {lr}\n", **more})))
    for tree in trees:
        source_archives.store(tree.digest, lambda tree=tree: tree.archive)  # type: ignore[misc]
    (note,) = source_changes.source_notes(project_inputs("a", trees[0]), project_inputs("a", trees[1]))
    assert note.splitlines()[1:] == [
        "  a.py changed", "    @@ -2 +2 @@", "    -lr = 0.1", "    +lr = 0.2", "  gone.py removed", "  new.bin added",
    ]  # fmt: skip
    (second,) = source_changes.source_notes(project_inputs("b", trees[0]), project_inputs("b", trees[1]))
    assert second.endswith("as for team/a")
    assert source_changes.source_notes(project_inputs("a", trees[0]), project_inputs("a", trees[0])) == ()
    unknown = SourceTree({"x": source_tree.SourceFile(b"")})
    (third,) = source_changes.source_notes(project_inputs("a", trees[0]), project_inputs("a", unknown))
    assert "are not in the cache of this machine" in third


def test_a_package_of_this_machine_does_not_hide_the_others() -> None:
    def described(numpy: str) -> dict[str, str]:
        code = {"script": "pass", "packages": ["./mylib", numpy], "requirements": "torch==2.7\n"}
        data = {"packages": {"name": "of this machine", "version": "1a2b3c4d"}}
        return describe_inputs(code, {}, None, {"name": "torch", "digest": "1"}, data, {})

    before = described("numpy==1.26")
    assert re.fullmatch(r"requirements \w{12} ./mylib numpy==1.26 of this machine 1a2b3c4d", before["packages"])
    assert {*before.items()} ^ {*described("numpy==2.0").items()} == {
        ("packages", before["packages"]), ("packages", before["packages"].replace("1.26", "2.0")),
    }  # fmt: skip


DEEP = {
    "minus": "x = " + "-" * 200_000 + "1",
    "plus": "x = 1" + "+1" * 300_000,
    "elif": "if a: pass\n" + "elif a: pass\n" * 20_000,
}
"""Code that Python itself cannot read."""


def compiled(made: CustomTrainer) -> Compiled:
    async def compiling() -> Compiled:
        return user_code.compile_trainer(made, {}, None)

    return asyncio.run(compiling())


@pytest.mark.parametrize("source", [None, "."], ids=["file", "project"])
@pytest.mark.parametrize("kind", DEEP)
def test_code_that_is_nested_too_deeply_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, source: str | None
) -> None:
    write(tmp_path, {"deep.py": f"import pulumi_trainer.training\n{DEEP[kind]}\n"})
    monkeypatch.chdir(tmp_path)
    told = ["deep.py: is nested too deeply for Python"]
    script = compiled(CustomTrainer(script="deep.py", source=source))
    assert [each.why for each in script.problems] == told
    if source is not None:
        module = compiled(CustomTrainer(module="deep", source=source))
        assert [each.why for each in module.problems] == told


@pytest.mark.parametrize("kind", ["x = {}1", "x = 1{}", "if a: pass\n{}"])
def test_code_that_python_reads_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    nested = {"x = {}1": "-", "x = 1{}": "+1"}.get(kind, "elif a: pass\n") * 1_800
    text = f"import pulumi_trainer.training\na = 1\n{kind.format(nested)}\nprint(x if a > 1 else 1)\n"
    compile(text, "deep.py", "exec")
    write(tmp_path, {"deep.py": text})
    monkeypatch.chdir(tmp_path)
    for source in (None, "."):
        assert not compiled(CustomTrainer(script="deep.py", source=source)).problems


def test_a_function_in_code_that_is_nested_too_deeply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would not import it: the file has become so afterwards."""
    monkeypatch.syspath_prepend(write(tmp_path, {"deep_of_project.py": "def train():\n    return 1\n"}))
    monkeypatch.chdir(tmp_path)
    train = importlib.import_module("deep_of_project").train
    write(tmp_path, {"deep_of_project.py": f"def train():\n    return 1{'+1' * 300_000}\n"})
    for source in (None, "."):
        (problem,) = compiled(CustomTrainer(func=train, source=source)).problems
        assert "nested too deeply for Python" in str(problem) and problem.where == "func"


def test_another_use_of_an_archive_is_noted_once_an_hour(home: Path) -> None:
    source_archives.store("1" * 64, lambda: gzip.compress(b"x"))
    place = source_archives.archive_path("1" * 64)
    for ago, is_noted in ((7200, True), (600, False)):
        then = time.time() - ago
        os.utime(place, (then, then))
        source_archives.store("1" * 64, lambda: b"")
        assert (place.stat().st_mtime > then + 1) is is_noted
