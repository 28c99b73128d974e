"""Blocks that cannot run by themselves: parts of programs, commands that change a machine or a cluster, and settings.

Python compiles, its names exist and its calls fit the signatures. Commands exist, with their options and files. Nothing runs.
The comment before a block may say after this test's path:

NAME=MODULE.CLASS   the class of a variable that the fragment does not make itself
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pulumi_trainer
import pulumi_trainer.client
import pulumi_trainer.training
import pytest
import yaml
from pulumi_trainer.provider.cli import commands
from pulumi_trainer.provider.cli.parsers import parser_of
from pulumi_trainer.provider.trainer.pipeline.registry import GROUP

from tests.documented import ROOT, Block, all_blocks, blocks, pages_run_by

ALL = [block for page in pages_run_by(__file__) for block in blocks(page, __file__)]
PYTHON = [block for block in ALL if block.kind == "python"]
COMMANDS = [block for block in ALL if block.kind in ("", "bash", "console")]
MODULES = {"trainer": pulumi_trainer, "client": pulumi_trainer.client, "training": pulumi_trainer.training}
PROJECT = (ROOT / "pyproject.toml").read_text()


def ids(found: list[Block]) -> list[str]:
    return [block.where for block in found]


def test_each_block_is_checked() -> None:
    assert {block.kind for block in ALL} == {"python", "", "bash", "yaml", "toml"}


@dataclass(frozen=True)
class Instance:
    """A value of a class."""

    of: type


@dataclass
class Fragment:
    """Follows the names of a fragment to what they are in this package.

    Attributes:
        known: Name -> module, class, function or instance.
        bound: How many calls fit their signatures.
    """

    known: dict[str, Any] = field(default_factory=lambda: dict[str, Any](MODULES))
    bound: int = 0

    def run(self, text: str) -> None:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.known[node.targets[0].id] = self.value(node.value)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Attribute, ast.Call)):
                self.value(node)

    def value(self, node: ast.expr) -> Any:
        """Return what an expression is; None if it is not of this package."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if isinstance(owner, Instance):
                made = re.search(rf"self\.{node.attr}\b", inspect.getsource(owner.of))
                assert made or hasattr(owner.of, node.attr) or node.attr in owner.of.__annotations__, node.attr
                return MethodOf(getattr(owner.of, node.attr, None))
            return getattr(owner, node.attr) if isinstance(owner, (ModuleType, type)) else None
        if isinstance(node, ast.Call):
            return self.called(self.value(node.func), node)
        return None

    def called(self, what: Any, node: ast.Call) -> Any:
        """Return what a call returns, after a check of its arguments; `...` stands for others."""
        function, first = (what.function, [None]) if isinstance(what, MethodOf) else (what, [])
        if not callable(function) or isinstance(what, Instance):
            return None
        given = [each for each in node.args if ast.unparse(each) != "..."]
        signature = inspect.signature(function)
        bind = signature.bind if given == node.args else signature.bind_partial
        bind(*first, *given, **{str(each.arg): each.value for each in node.keywords})
        self.bound += 1
        if inspect.isclass(function):
            return Instance(function)
        result = vars(inspect.getmodule(function)).get(str(function.__annotations__.get("return")))
        return Instance(result) if isinstance(result, type) else None


@dataclass(frozen=True)
class MethodOf:
    """An attribute of a class, for an instance of it."""

    function: Any


@pytest.mark.parametrize("block", PYTHON, ids=ids(PYTHON))
def test_python_fits_the_package(block: Block) -> None:
    compile(block.text, block.where, "exec", dont_inherit=True)
    fragment = Fragment()
    for option in block.options:
        name, _, path = option.partition("=")
        module, _, attribute = path.partition(".")
        fragment.known[name] = Instance(getattr(MODULES[module], attribute))
    for node in ast.walk(ast.parse(block.text)):
        for alias in node.names if isinstance(node, ast.Import) else ():
            importlib.import_module(alias.name)
    fragment.run(block.text)
    assert fragment.bound


@pytest.mark.parametrize(
    "text",
    ["points.savee({}, step=1)", "points.save({})", "training.check()", "trainer.TrainJob('a', runtime='b', nodes=2)"],
)
def test_a_wrong_fragment_is_found(text: str) -> None:
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        Fragment().run(f"points = training.checkpoints()\n{text}")


PULUMI = MappingProxyType({
    "up": "", "destroy": "", "login": "--local", "stack init": "", "stack rm": "", "config set": "",
    "preview": "--json --show-sames --policy-pack",
})  # fmt: skip
"""Commands of Pulumi in these blocks, with their options."""
KUBECTL = ("apply", "annotate", "create", "delete")


@dataclass
class Shell:
    """Where a block's commands would run. made: Folders that earlier commands make."""

    folder: Path = ROOT
    made: set[str] = field(default_factory=set)

    def check(self, words: list[str]) -> None:
        """Check a command by its program."""
        programs: dict[str, Callable[[list[str]], None]] = {
            "pulumi-trainer": self.pulumi_trainer, "pulumi": self.pulumi, "pip": self.pip, "python": self.python,
            "cd": self.cd, "make": self.make, "kubectl": self.kubectl, "export": self.export,
        }  # fmt: skip
        programs[words[0].rpartition("/")[2]](words[1:])

    def pulumi_trainer(self, words: list[str]) -> None:
        length = 2 if words[0] in commands.GROUPS else 1
        name = " ".join(words[:length])
        given = parser_of(name).parse_args(words[length:])
        written = {"init": "directory", "convert": "output", "import": "output"}.get(name)
        if written:
            self.made.add(str(getattr(given, written)))

    def pulumi(self, words: list[str]) -> None:
        name = next(name for name in PULUMI if words[: name.count(" ") + 1] == name.split())
        options = [word for word in words if word.startswith("-")]
        assert {*options} <= {*PULUMI[name].split()}, words
        for option, value in itertools.pairwise(words):
            if option == "--policy-pack":
                assert (self.folder / value / "PulumiPolicy.yaml").is_file() and (self.folder / "Pulumi.yaml").is_file()
            if name == "config set" and option.startswith("trainer:"):
                assert option.partition(":")[2] in pulumi_trainer.program.targets.KEYS

    def pip(self, words: list[str]) -> None:
        assert words[0] == "install"
        for word in words[1:]:
            wheel = re.fullmatch(r"dist/pulumi_trainer-(.*)-py3-none-any\.whl(?:\[(\w+)\])?", word)
            if wheel:
                assert f'version = "{wheel[1]}"' in PROJECT and (
                    not wheel[2] or re.search(rf"^{wheel[2]} = \[", PROJECT, re.M)
                )
            else:
                assert word == "-r" or (self.folder / word).is_file(), word

    def python(self, words: list[str]) -> None:
        assert words[0] == "-m" and importlib.util.find_spec(words[1])

    def cd(self, words: list[str]) -> None:
        assert words[0] in self.made or (self.folder / words[0]).is_dir(), words
        self.folder /= words[0]

    def make(self, words: list[str]) -> None:
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M), words

    def kubectl(self, words: list[str]) -> None:
        assert words[0] in KUBECTL

    def export(self, words: list[str]) -> None:
        assert re.fullmatch(r"[A-Z]+=.*", words[0])


def simple_commands(block: Block) -> Iterator[list[str]]:
    """Yield the words of each command, without pipes and files."""
    for line in block.text.splitlines():
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&>")
        lexer.whitespace_split = True
        words = [*lexer]
        while words:
            end = next((i for i, word in enumerate(words) if word in ("&&", "|", ">")), len(words))
            yield words[:end]
            words = [] if words[end : end + 1] == [">"] else words[end + 1 :]


@pytest.mark.parametrize("block", COMMANDS, ids=ids(COMMANDS))
def test_commands_exist_with_their_options_and_files(block: Block) -> None:
    shell = Shell()
    for words in simple_commands(block):
        shell.check(words)


@pytest.mark.parametrize(
    "line",
    [
        "pulumi-trainer doctr", "pulumi-trainer import --everything", "pip install -r missing.txt", "cd missing", "make uup",
        "pip install dist/pulumi_trainer-9.9-py3-none-any.whl", "pulumi upp", "pulumi up --fast", "python -m no_module",
    ],
)  # fmt: skip
def test_a_wrong_command_is_found(line: str) -> None:
    with pytest.raises((AssertionError, SystemExit, KeyError, StopIteration)):
        Shell().check(shlex.split(line))


def test_the_plugin_host_is_where_the_settings_say() -> None:
    (block,) = (block for block in ALL if block.kind == "yaml")
    (provider,) = yaml.safe_load(block.text)["plugins"]["providers"]
    _, _, path = provider["path"].partition("/site-packages/pulumi_trainer/")
    assert (Path(str(pulumi_trainer.__file__)).parent / path / f"pulumi-resource-{provider['name']}").is_file()


def test_the_entry_point_is_that_of_the_plugin_above_it() -> None:
    (block,) = (block for block in ALL if block.kind == "toml")
    found = re.fullmatch(r'\[project\.entry-points\."(.*)"\]\n\w+ = "(\w+):(\w+)"\n', block.text)
    assert found and found[1] == GROUP
    assert any(f"class {found[3]}" in other.text for other in all_blocks(block.page))
