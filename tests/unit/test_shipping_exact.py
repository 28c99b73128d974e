"""What runs is what was written: strings, annotations, arguments; what would not be is refused with its line."""

from __future__ import annotations

import importlib
import json
import linecache
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulumi_trainer.code import entry_source, project_code
from pulumi_trainer.code.source_tree import read_tree
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

Load = Callable[[str], Any]

EXACT = {
    "a string with blanks at the beginning of its lines": """
if True:
    def work():
        return '''
        hello
      there'''
""",
    "a line of blanks in a string": """
def work():
    return '''a
    \nb'''
""",
    "text at the margin": """
if True:
    def work():
        return '''
hello
'''
""",
    "a comment at the margin": """
if True:
    def work():
        first = 1
# not yet
        return first
""",
    "a string that goes on": """
if True:
    def work():
        return "a\\
        b"
""",
    "an f-string of several lines": """
if True:
    def work():
        return f'''
            {1 + 1}
        '''
""",
    "a docstring that is read": """
class Trainer:
    def work():
        def inner():
            '''One.

            Two.
            '''
        return inner.__doc__
""",
    "tabs": """
if True:
\tdef work():
\t\treturn '''
\t\thello'''
""",
    "annotations that are not evaluated": """
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import numpy as np
if True:
    def work(of: np.ndarray = 3) -> Missing:
        each: Missing = of
        def inner(x: Missing) -> np.ndarray:
            return x
        return [inner(each), '''
        hello''', work.__annotations__]
""",
    "defaults that are no constants": """
def work(a=-1, b=[1, 2], c=float("inf"), d=len, e={"x", "y"}, f=lambda: 3, *, g=(1, None), h=int("7"), i="a" + "b"):
    return [a, b, str(c), d([1]), sorted(e), f(), [*g], h, i]
""",
    "names of its own with two underscores": """
class Trainer:
    def work():
        __mine = 3

        class Own:
            __more = 4

            def sum(self):
                return self.__more

        return Own().sum() + __mine
""",
    "another name than the one of its def": """
def work():
    return 3
work.__name__ = "other"
""",
}

REFUSED = {
    "a generator": ("def work():\n    print(1)\n    yield 1\n", "mine.py:3", "is a generator"),
    "yield from": ("def work():\n    yield from [1]\n", "mine.py:2", "is a generator"),
    "a generator in a condition": (
        "if True:\n    def work():\n        '''\n        a'''\n        return (yield)\n", "mine.py:5", "is a generator",
    ),
    "an asynchronous generator": ("async def work():\n    yield 1\n", "mine.py:2", "is a generator"),
    "a coroutine": ("async def work():\n    return 1\n", "mine.py:1", "is a coroutine"),
    "an evaluated annotation": (
        "import json\ndef work(of: json.JSONDecoder = None):\n    return 1\n", "mine.py:2", "from __future__ import annotations",
    ),
    "a default": (
        "from __future__ import annotations\nLR = 1\ndef work(\n    lr: float = LR,\n):\n    return lr\n", "mine.py:4", "uses LR",
    ),
    "the file of the program": ("def work():\n    return __file__\n", "mine.py:2", "uses __file__, which has"),
    "the text of the module": ('"Mine."\ndef work():\n    return __doc__\n', "mine.py:3", "uses __doc__, which has"),
    "a name of the module": ("from math import pow\ndef work():\n    return pow(2, 3)\n", "mine.py:3", "uses pow, which"),
    "a def of the module": ("def round(x):\n    return 42\ndef work():\n    return round(1.5)\n", "mine.py:4", "uses round"),
    "a builtin that is a default": ("len = 3\ndef work(n=len):\n    return n\n", "mine.py:2", "uses len"),
}  # fmt: skip


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Returns the function `work` of a module of that text."""
    monkeypatch.syspath_prepend(tmp_path)

    def function(text: str) -> Any:
        (tmp_path / "mine.py").write_text(text)
        module = importlib.import_module("mine")
        return getattr(module, "Trainer", module).work

    yield function
    sys.modules.pop("mine", None)


def returned(folder: Path, script: str) -> Any:
    """What `work` of the script returns."""
    (folder / "shipped.py").write_text(script)
    argv = [sys.executable, "-c", "import json, shipped; print(json.dumps(shipped.work()))"]
    return json.loads(subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("text", EXACT.values(), ids=EXACT)
def test_what_runs_is_what_was_written(load: Load, tmp_path: Path, text: str) -> None:
    work = load(text)
    shipped = entry_source.from_function(work)
    assert shipped.problems == ()
    assert returned(tmp_path, shipped.script) == work()


@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")
@given(
    text=st.text(" \t\nab#'\"\\{}", max_size=60),
    above=st.sampled_from(["", "if True:\n", "class Trainer:\n    if True:\n", "if True:\n\tif True:\n"]),
    comment=st.sampled_from(["", "# at the margin\n"]),
)
def test_any_string_arrives(text: str, above: str, comment: str) -> None:
    """Between triple quotes, as far as Python accepts it there."""
    step = "\t" if "\t" in above else "    "
    margin = step * above.count("\n")
    source = f"{above}{margin}def work():\n{comment}{margin}{step}return '''{text}'''\n"
    names: dict[str, Any] = {}
    try:
        exec(compile(source, "<any>", "exec"), names)
    except SyntaxError:
        return
    linecache.cache["<any>"] = (len(source), None, source.splitlines(keepends=True), "<any>")
    work = getattr(names.get("Trainer"), "work", None) or names["work"]
    shipped = entry_source.from_function(work)
    assert shipped.problems == ()
    ran: dict[str, Any] = {"__name__": "shipped"}
    exec(shipped.script, ran)
    assert ran["work"]() == work()


@pytest.mark.parametrize("text", EXACT.values(), ids=EXACT)
def test_the_script_calls_it(load: Load, tmp_path: Path, text: str) -> None:
    (tmp_path / "main.py").write_text(entry_source.from_function(load(text)).script)
    (tmp_path / "func_args.json").write_text("{}")
    subprocess.run([sys.executable, "main.py"], cwd=tmp_path, check=True)


def test_a_def_without_strings_of_several_lines_loses_its_indentation(load: Load) -> None:
    text = """
        def work(lr: float = 0.1) -> int:
            '''Trains.

            For a long time.
            '''
            # a comment
            text = 'one line'

            return len(text)
"""
    work = load("from __future__ import annotations\nif True:\n" + text)
    expected = "from __future__ import annotations\n"
    expected += "\n".join(line.removeprefix("        ") for line in text.strip("\n").splitlines()) + "\n"
    assert entry_source.from_function(work).script.partition('\n\nif __name__ == "__main__"')[0] == expected


UNBOUND = {
    "the class around it": "class Net:\n    def clone(self) -> Net:\n        return Net()\nreturn bool(Net().clone())",
    "a dataclass with itself": (
        "from dataclasses import dataclass\n@dataclass\nclass Cfg:\n    parent: Cfg | None = None\nreturn Cfg().parent"
    ),
    "a class further down": "def loss(x: Cfg):\n    return x\nclass Cfg: pass\nreturn loss(1)",
    "an import for type checkers": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch import Tensor\n"
        "def loss(x: Tensor) -> Tensor:\n    return x\nreturn loss(1)"
    ),
    "an import for type checkers, in a function inside": (
        "import typing\nif typing.TYPE_CHECKING:\n    from torch import Tensor\n"
        "def outer():\n    def loss(x: Tensor):\n        return x\n    return loss(1)\nreturn outer()"
    ),
    "a field of its own name": (
        "from datetime import date\n"
        "class Day:\n    date: date\n    def of(self, other: date): pass\nreturn list(Day.__annotations__)"
    ),
}


def of_body(load: Load, body: str) -> Any:
    return load("from __future__ import annotations\ndef work():\n    " + body.replace("\n", "\n    ") + "\n")


@pytest.mark.parametrize("body", UNBOUND.values(), ids=UNBOUND)
def test_annotations_that_the_file_does_not_evaluate_stay_unevaluated(load: Load, tmp_path: Path, body: str) -> None:
    work = of_body(load, body)
    assert returned(tmp_path, entry_source.from_function(work).script) == work()


@pytest.mark.parametrize(("text", "line", "why"), REFUSED.values(), ids=REFUSED)
def test_what_would_not_run_is_refused_with_its_line(load: Load, text: str, line: str, why: str) -> None:
    (problem,) = entry_source.from_function(load(text)).problems
    assert line in str(problem) and why in str(problem) and problem.hint


BEFORE = "def other():\n    return 1\ndef work():\n    return 2\n"
EDITED = {
    "two functions swapped": "def work():\n    return 2\ndef other():\n    return 1\n",
    "a line above": f"import os\n{BEFORE}",
    "a statement instead": "def other():\n    return 1\nwork = 3\nother()\n",
    "no such line": "",
    "half written": BEFORE + "def (",
}


@pytest.mark.parametrize("text", EDITED.values(), ids=EDITED)
def test_a_file_that_was_edited_after_its_import_is_refused(load: Load, tmp_path: Path, text: str) -> None:
    work = load(BEFORE)
    assert entry_source.from_function(work).problems == ()
    (tmp_path / "mine.py").write_text(text)
    linecache.clearcache()  # it compares size and time, and the same moment may have both
    (problem,) = entry_source.from_function(work).problems
    assert "func: mine.py has changed since it was imported: its text is not that of work any more" in str(problem)


def test_a_generator_inside_of_it_is_none(load: Load) -> None:
    text = "def work():\n    def each():\n        yield 1\n    return list(each()) + [(lambda: (yield)) is None]\n"
    assert entry_source.from_function(load(text)).problems == ()


def takes(epochs: int, lr: float = 0.1, name: str = "a", *, deep: bool = False, of: list[int] | None = None) -> None:
    """Has annotations."""


def positional(epochs: int, /, lr: float) -> None:
    """Cannot be called by name."""


def nothing() -> None:
    """Takes no name."""


def anything(epochs: int, **more: int) -> None:
    """Takes every name."""


@pytest.mark.parametrize(
    ("func", "given", "says"),
    [
        (takes, {"epoch": 3}, ['func_args["epoch"]', "did you mean epochs?", "func_args: takes(", "requires epochs"]),
        (takes, {}, ["requires epochs"]),
        (
            takes,
            {"epochs": 1, "LR": 2},
            ['func_args["LR"]: takes(epochs: ', "has no such argument. Hint: did you mean lr?"],
        ),
        (takes, [1], ["must be a mapping, not list"]),
        (positional, {"epochs": 1, "lr": 2}, ["epochs must not be positional-only"]),
        (nothing, {"other": 1}, [" has no such argument. Hint: leave it out"]),
        (anything, {"other": 1}, ["requires epochs"]),
    ],
)
def test_arguments_that_do_not_fit(func: Callable[..., None], given: Any, says: list[str]) -> None:
    told = "\n".join(str(p) for p in entry_source.argument_problems(func, given))
    assert all(text in told for text in says), told


@pytest.mark.parametrize("given", [{"epochs": 1}, {"epochs": Unknown("x"), "deep": True}, Unknown("x")])
def test_arguments_that_fit(given: Any) -> None:
    assert entry_source.argument_problems(takes, given) == []
    assert entry_source.argument_warnings(takes, given) == []


def test_every_name_fits_a_function_that_takes_all() -> None:
    assert entry_source.argument_problems(anything, {"epochs": 1, "other": 2}) == []


def test_values_that_are_not_what_annotations_say() -> None:
    given = {"epochs": "three", "lr": 1, "name": 5, "deep": "yes", "of": [1]}
    assert [p.where for p in entry_source.argument_warnings(takes, given)] == [
        'func_args["epochs"]',
        'func_args["name"]',
        'func_args["deep"]',
    ]
    assert entry_source.argument_warnings(takes, {"epochs": 3.0, "lr": None, "of": None, "deep": True}) == []
    assert "takes int here, not 2.5" in str(entry_source.argument_warnings(takes, {"epochs": 2.5})[0])


SCRIPT = """import json, torch
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import hints
import helpers
from lib.deep import x
try:
    import folder.inner
except ImportError:
    from . import sibling
def later():
    import helpers.more as more
later()
"""


def test_imports_of_a_script_that_stay_behind(tmp_path: Path) -> None:
    for name in ("helpers.py", "hints.py", "lib/__init__.py", "folder/inner.py", "torch/notes.txt", "mine.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SCRIPT if name == "mine.py" else "")
    shipped = entry_source.from_script(tmp_path / "mine.py")
    assert shipped.problems == ()
    told = [str(p) for p in shipped.warnings]
    assert [text.partition(" imports ")[0] for text in told] == [f"script: mine.py:{n}" for n in (5, 6, 8, 10, 12)]
    assert f"imports helpers from {tmp_path / 'helpers.py'}, which does not travel" in told[0]
    assert "packages_to_install" in told[0]


def test_imports_of_a_function_that_stay_behind(load: Load, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("")
    text = "if True:\n    def work():\n        import json, theirs\n        import pytest, sys\n        return '''\n x'''\n"
    (warning,) = entry_source.from_function(load(text)).warnings
    assert f"mine.py:3 imports theirs from {tmp_path / 'theirs.py'}" in str(warning)


SCRIPTS = {
    "functions": ("def main():\n    train()\ndef train():\n    pass\n", True),
    "settings and constants": (
        "import logging, torch\nLR = 0.1\nlog = logging.getLogger(__name__)\ntorch.manual_seed(0)\ndef main():\n    pass\n", True,
    ),
    "a command that nobody starts": ("import typer\napp = typer.Typer()\n@app.command()\ndef main():\n    pass\n", True),
    "classes": ("class Net:\n    def train(self):\n        pass\n", True),
    "a call at the end": ("def main():\n    pass\nmain()\n", False),
    "a call of the program": ("def main():\n    pass\nif __name__ == '__main__':\n    raise SystemExit(main())\n", False),
    "a function of another module": ("from tool import main\ndef unused():\n    pass\nmain()\n", False),
    "a method": ("import lib\ndef unused():\n    pass\nmodel = lib.Model()\nhistory = model.fit()\n", False),
    "a method of a new object": ("import lib\ndef unused():\n    pass\nhistory = lib.Trainer().fit()\n", False),
    "a function that is passed on": ("import lib\ndef loss(x):\n    return x\nresult = lib.train(loss)\n", False),
    "a loop": ("def unused():\n    pass\nfor step in range(3):\n    pass\n", False),
    "an import": ("import train\n", False),
    "nothing": ("", False),
}  # fmt: skip


@pytest.mark.parametrize(("text", "warned"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_that_only_defines_functions_is_warned_of(tmp_path: Path, text: str, warned: bool) -> None:
    (tmp_path / "mine.py").write_text(text)
    project = project_code.Project(tmp_path, read_tree(tmp_path, (), ()))
    shipped = entry_source.from_script(tmp_path / "mine.py")
    for told in (shipped.warnings, project_code.uncalled_file("script", project, "mine.py")):
        found = [str(each) for each in told if "calls nothing" in str(each)]
        assert len(found) == warned
        assert all("but calls nothing: the job would succeed without training" in each for each in found)


def test_a_function_that_only_defines_functions_is_warned_of(load: Load) -> None:
    work = load("def work():\n    def train():\n        return 1\n")
    (warning,) = entry_source.from_function(work).warnings
    assert "func: work defines train, but calls nothing" in str(warning)
