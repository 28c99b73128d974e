"""User code through the real engine: it runs as it was written, or the plan says what would not."""

from __future__ import annotations

import hashlib

import pytest

from .conftest import HEAD, Project

FUTURE = "from __future__ import annotations\n" + HEAD

EXACT = """
class Missing: ...

if True:
    def work(of: Missing = 3):
# at the margin
        print(repr('''
        hello
      there'''), of, flush=True)

job = trainer.TrainJob("exact", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=work))
"""


def test_strings_and_annotations_arrive_as_they_were_written(project: Project) -> None:
    (project.folder / "__main__.py").write_text(FUTURE + EXACT)
    project.up()
    assert repr("\n        hello\n      there") + " 3" in project.logs("exact")


WRONG = """
def generator(epochs: int):
    yield epochs

def work(epochs: int, lr: float = 0.1):
    import helpers
    print(epochs, flush=True)

def of(**given):
    return trainer.CustomTrainer(**given)

given = pulumi.Output.from_input({"epoch": 3})
for name, custom in {
    "generator": of(func=generator, func_args={"epochs": 1}),
    "missing": of(func=work),
    "outputs": of(func=work, func_args=given),
}.items():
    trainer.TrainJob(name, runtime=plain, trainer=custom)
"""


def test_code_that_would_not_run_is_refused_in_the_plan(project: Project) -> None:
    project.program(WRONG)
    told = project.preview(ok=False).out
    line = (project.folder / "__main__.py").read_text().splitlines().index("    yield epochs") + 1
    assert (
        f"func: generator is a generator, because of this yield: nobody would iterate over it (__main__.py:{line})"
        in told
    )
    assert "work(epochs: int, lr: float = 0.1) requires epochs" in told
    assert 'TrainJob("outputs")' in told and "has no such argument. Hint: did you mean epochs?" in told
    assert "4 problems" in told and "Traceback" not in told


IMPORTS = """
def work(epochs: int):
    import json
    import helpers

custom = trainer.CustomTrainer(func=work, func_args={"epochs": "three"})
trainer.TrainJob("func", runtime=plain, trainer=custom)
trainer.TrainJob("script", runtime=plain, trainer=trainer.CustomTrainer(script="code/mine.py"))
"""


def test_imports_of_the_program_and_wrong_values_are_warned_of(project: Project) -> None:
    for name, text in {
        "helpers.py": "",
        "code/ours.py": "",
        "code/mine.py": "import json\nfrom ours import x\n",
    }.items():
        (project.folder / name).parent.mkdir(exist_ok=True)
        (project.folder / name).write_text(text)
    project.program(IMPORTS)
    told = project.preview().out
    line = (project.folder / "__main__.py").read_text().splitlines().index("    import helpers") + 1
    assert (
        f"trainer.func: __main__.py:{line} imports helpers from helpers.py, which does not travel with the job" in told
    )
    assert "trainer.script: mine.py:2 imports ours from code/ours.py, which does not travel with the job" in told
    assert "trainer.func_args[\"epochs\"]: work takes int here, not 'three'" in told


SCRIPT = b"""\xef\xbb\xbfimport hashlib, pathlib\r\n\x0c\r\nfile = pathlib.Path(__file__)\r
print("sha256", hashlib.sha256(file.read_bytes()).hexdigest())"""
LATIN = b"""# coding: latin-1
import hashlib, pathlib
assert "\xe4" == chr(228)
print("sha256", hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest())
"""
SCRIPTS = """
for name in ("script", "latin"):
    trainer.TrainJob(name, runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(script=f"{name}.py"))
"""


@pytest.mark.core
def test_a_script_runs_byte_for_byte(project: Project) -> None:
    given = {"script": SCRIPT, "latin": LATIN}
    for name, content in given.items():
        (project.folder / f"{name}.py").write_bytes(content)
    project.program(SCRIPTS)
    project.up()
    logs = {
        name: log for name in given for log in project.folder.glob(f".pulumi-trainer/jobs/default/{name}-*/**/*.log")
    }
    for name, content in given.items():
        assert f"sha256 {hashlib.sha256(content).hexdigest()}" in logs[name].read_text(), name
    for name, content in given.items():  # a checkout with other line endings
        text = content.replace(b"\r\n", b"\n") if b"\r" in content else content.replace(b"\n", b"\r\n")
        (project.folder / f"{name}.py").write_bytes(text)
    project.preview("--expect-no-changes")
