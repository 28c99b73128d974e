"""Whole projects travel with a job: their files, modules and requirements, on Local by the real engine."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.documented import blocks

from .conftest import Project, eventually

FILES = {
    "train.py": """
import os, sys
from model import scale
from config.small import LR
from tools.text import shout

print("cwd", sorted(os.listdir(".")), flush=True)
print("train", sys.argv[1:], LR, scale(2), shout("x"), open("data/words.txt").read().strip(), flush=True)
""",
    "model.py": "from tools.text import shout\n\n\ndef scale(n):\n    return n * 3\n",
    "config/__init__.py": "",
    "config/small.py": "LR = 0.1\n",
    "tools/__init__.py": "",
    "tools/text.py": "from . import marks\n\n\ndef shout(word):\n    return word.upper() + marks.MARK\n",
    "tools/marks.py": "MARK = '!'\n",
    "tools/run.py": """
from tools.text import shout


def main(lr, words):
    print("func", lr, [shout(word) for word in words], flush=True)


if __name__ == "__main__":
    import sys

    print("module", sys.argv[1:], shout("m"), flush=True)
""",
    "data/words.txt": "to be\n",
    "data/tokens.bin": "secret of the folder",
    ".gitignore": "*.bin\nout/\n",
    "out/big.txt": "ignored",
    ".env": "TOKEN=abc",
    "run.sh": "#!/bin/sh\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    if "run.sh" in files:
        (folder / "run.sh").chmod(0o755)


@pytest.fixture
def repository(project: Project) -> Path:
    folder = project.folder / "nano"
    write(folder, FILES)
    return folder


def job(arguments: str, name: str = "job", more: str = "") -> str:
    trainer = f"trainer.CustomTrainer({arguments}, num_nodes=2)"
    return f'trainer.TrainJob("{name}", runtime=plain, wait_for="complete", trainer={trainer}{more})\n'


def logs(project: Project, name: str = "job") -> str:
    return "\n".join(file.read_text() for file in sorted(project.root.glob(f"jobs/*/{name}-*/logs/*/*.log")))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            'source="nano", script="train.py", args=["--x", "1"]',
            "train ['--x', '1'] 0.1 6 X! to be",
            marks=pytest.mark.core,
        ),
        ('source="nano", module="tools.run", args=["a"]', "module ['a'] M!"),
        ('source="nano", command=["python3", "train.py", "$(WORD)"], env={"WORD": "w"}', "train ['w'] 0.1 6 X! to be"),
    ],
    ids=["script", "module", "command"],
)
def test_a_project_trains_on_every_node(project: Project, repository: Path, arguments: str, expected: str) -> None:
    project.program(job(arguments))
    project.up()
    written = logs(project)
    assert written.count(expected) == 2, written
    if "cwd" in written:
        assert ".env" not in written and "tokens.bin" not in written and "'out'" not in written
        assert "run.sh" in written


def test_a_function_of_the_project_is_imported(project: Project, repository: Path) -> None:
    program = "import sys\nsys.path.insert(0, 'nano')\nfrom tools.run import main\n"
    project.program(program + job('source="nano", func=main, func_args={"lr": 0.5, "words": ["a", "b"]}'))
    project.up()
    assert logs(project).count("func 0.5 ['A!', 'B!']") == 2


@pytest.mark.core
def test_state_holds_the_digest_alone_and_an_edit_is_another_run(project: Project, repository: Path) -> None:
    project.program(job('source="nano", script="train.py"'))
    project.up()
    state = json.dumps(project.export())
    assert "to be" not in state and "def scale" not in state
    assert "unchanged" in project.preview().out and "to create" not in project.preview().out
    (repository / "out/big.txt").write_text("what git ignores is no change")
    assert "5 unchanged" in project.preview().out
    (repository / "config/small.py").write_text("LR = 0.2\n")
    previewed = project.preview().out
    lines = [line.strip() for line in previewed.splitlines()]
    assert {"config/small.py changed", "-LR = 0.1", "+LR = 0.2"} <= {*lines}, previewed
    project.up()
    assert "train [] 0.2" in logs(project)


def test_a_revision_of_a_repository_trains(project: Project, repository: Path) -> None:
    def git(*argv: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", "-C", str(repository), *who, *argv], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    git("tag", "v1")
    (repository / "config/small.py").write_text("LR = 0.7\n")
    git("commit", "-qam", "second")
    source = f'source=trainer.Source(".", git="file://{repository}", revision="%s"), script="train.py"'
    project.program(job(source % "v1"))
    project.up()
    assert "train [] 0.1" in logs(project)
    assert re.match(f"[0-9a-f]{{40}}  file://{repository}@v1\n", (project.folder / "sources.lock").read_text())
    project.program(job(source % "main"))
    assert "+LR = 0.7" in project.preview().out
    assert "the repository has no such tag or branch" in refused(project, source % "gone")


REFUSED = {
    "no folder": ('source="nowhere", script="train.py"', "no such folder: nowhere"),
    "no file": ('source="nano", script="other.py"', "the project has no file other.py"),
    "outside": ('source="nano", script="../__main__.py"', "the project has no file ../__main__.py"),
    "no module": ('source="nano", module="tools.other"', "the project has no module tools.other"),
    "module alone": ('module="tools.run"', "module: requires source"),
    "two ways": ('source="nano", module="a", script="b"', "takes exactly one of func, script, module and command"),
    "no way": ('source="nano"', "takes exactly one of func, script, module and command, not none"),
    "nothing left": ('source=trainer.Source("nano", include=["*.rs"]), script="a"', "has no files, or none that"),
    "not text": ('source=trainer.Source("nano", exclude=[1]), script="a"', "exclude[0]: must be a string, not int"),
    "former class": ('source=trainer.Source(storage_uri="file://x"), script="a"', "DataSource(storage_uri=...)"),
    "a number": ('source=3, script="train.py"', "trainer.source: must be Source or a string or Path, not 3"),
    "an Output": (
        'source=pulumi.Output.from_input("."), script="train.py"',
        "trainer.source: must be Source or a string or Path, not Output",
    ),
    "a number inside": (
        'source=trainer.Source(3), script="train.py"',
        "trainer.source.path: must be a string or Path, not 3",
    ),
    "no module name": ('source="nano", module=3', "trainer.module: must be a string, not 3"),
    "no path": (
        'source="nano", script="train.py", requirements=3',
        "trainer.requirements: must be a string or Path, not 3",
    ),
    "no pattern": (
        'source=trainer.Source("nano", include=["!"]), script="train.py"',
        "include[0]: not a valid pattern: '!'",
    ),
    "no address": (
        'source=trainer.Source(".", git="ftp://x", revision="v1"), script="train.py"',
        "trainer.source.git: ftp://x: not a valid address of a git repository",
    ),
    "no requirements": ('source="nano", script="train.py", requirements="no.txt"', "no such file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(project: Project, repository: Path, case: str) -> None:
    arguments, why = REFUSED[case]
    assert why in refused(project, arguments)


def test_what_stays_behind_is_said(project: Project, repository: Path) -> None:
    """Files with secrets, and modules that are beside the program and not in the project."""
    (project.folder / "beside.py").write_text("")
    program = "def main():\n    import beside, model\n"
    project.program(program + job('source="nano", func=main') + job('source="nano", func=main', "other"))
    shown = project.preview().out
    assert shown.partition("Diagnostics:")[2].count("files that a .gitignore names") == 1, "once for both jobs"
    assert "files that may contain secrets do not travel with the job: .env" in shown
    assert "files that a .gitignore names do not travel with the job: data/tokens.bin, out/" in shown
    assert "imports beside from beside.py, which does not travel with the job" in shown
    assert "imports model" not in shown


def test_requirements_are_installed(project: Project, repository: Path) -> None:
    package = repository / "packages" / "answer"
    write(package, {"pyproject.toml": '[project]\nname = "answer"\nversion = "42"\n', "answer.py": "VALUE = 42\n"})
    (repository / "requirements.txt").write_text("# ours\n-r more.txt\n")
    (repository / "more.txt").write_text("./packages/answer\n")
    (repository / "train.py").write_text("import answer\nprint('answer', answer.VALUE)\n")
    project.program(job('source="nano", script="train.py", requirements="requirements.txt"'))
    project.up()
    assert logs(project).count("answer 42") == 2


def test_the_program_of_the_docs(project: Project, repository: Path) -> None:
    (program,) = (block.text for block in blocks("docs/projects.md", __file__))
    write(repository, {"config/train_small.py": "learning_rate = 1e-3\n", "requirements.txt": "torch\n"})
    project.program(program.replace('"..", exclude', '"nano", exclude'), head="")
    previewed = project.preview().out
    assert "4 to create" in previewed and "warning" not in previewed, previewed


def refused(project: Project, arguments: str) -> str:
    project.program(job(arguments))
    result = project.preview(ok=False)
    assert "Traceback" not in result.out
    return " ".join(result.out.split())


def test_a_worktree_is_the_project_of_its_commit(project: Project, repository: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository)]
    for argv in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["worktree", "add", "-q", "../tree"]):
        subprocess.run([*git, *argv], check=True)
    program = job('source="tree", script="train.py"')
    project.program(program)
    project.up()
    project.program(program.replace("tree", "nano"))
    project.preview("--expect-no-changes")


def test_a_src_layout_is_imported_from_the_copy_that_travels(project: Project) -> None:
    """Whatever the interpreter has: an installation in editable mode would train on later edits of the checkout."""
    write(project.folder / "nano", {
        "train.py": "import edited\nprint('from', edited.__file__, edited.VERSION, flush=True)\n",
        "src/edited/__init__.py": "VERSION = 'travels'\n",
    })  # fmt: skip
    other = project.folder / "other" / "edited"
    write(other, {"__init__.py": "VERSION = 'installed'\n"})
    env = f'env={{"PYTHONPATH": "{other.parent}"}}'
    for name, code in (
        ("script", 'script="train.py"'),
        ("command", 'command=["python3", "train.py"]'),
        ("module", 'module="train"'),
    ):
        project.program(job(f'source="nano", {code}, {env}', name))
        project.up()
        found = re.findall(r"from (\S+) (\w+)", logs(project, name))
        assert [version for _, version in found] == ["travels"] * 2, found
        assert all("/project/src/edited/" in file for file, _ in found), found
    train = "def train():\n    from edited import VERSION\n    print('func', VERSION)\n\n"
    project.program(train + job('source="nano", func=train', "func"))
    assert "does not travel" not in project.preview().out
    project.up()
    assert "func travels" in logs(project, "func")


def test_what_pulumi_and_jobs_write_is_no_change_of_the_project(project: Project) -> None:
    """A Local root and the lock of a git source, in the folder that travels."""
    write(project.folder / "code", {"train.py": "print('trained')\n"})
    other = project.folder / "other"
    write(other, {"train.py": "print('from git')\n"})
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(other)]
    for argv in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", "v1"]):
        subprocess.run([*git, *argv], check=True)
    local = ', target=trainer.Local(root="runs")'
    program = job(
        'source=trainer.Source(".", exclude=["other", "state"]), command=["python3", "code/train.py"]', more=local
    )
    program += job(f'source=trainer.Source(".", git="file://{other}", revision="v1"), script="train.py"', "git", local)
    project.program(program)
    project.up()
    assert (project.folder / "sources.lock").exists() and (project.folder / "runs" / "jobs").is_dir()
    project.preview("--expect-no-changes")


def command(project: Project, *words: str) -> str:
    done = subprocess.run(
        ["pulumi-trainer", *words], cwd=project.folder, env=project.environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_damaged_archive_is_named_and_replaced_by_the_next_run(project: Project, repository: Path) -> None:
    suspended = job('source="nano", module="tools.run"', more=", suspend=True").replace('wait_for="complete", ', "")
    project.program(suspended)
    project.up()
    (archive,) = project.root.glob("jobs/*/job-*/source-*.tar.gz")
    archive.write_bytes(b"no archive")
    command(project, "resume", "job")
    eventually(lambda: "Failed" in command(project, "status", "job"))
    shown = " ".join(command(project, "status", "job").split())
    assert "last line: pulumi-trainer: the project in /" in shown, shown
    assert re.search(r"is not what was sent: expected [0-9a-f]{12}, found a damaged archive\. Hint: `pulumi-", shown)
    assert "which is suspended" in command(project, "rerun", "job")
    command(project, "resume", "job")
    eventually(lambda: "Succeeded" in command(project, "status", "job"))
    assert "module [] M!" in logs(project)
