"""The code of a project that travels with a job: the file that starts, and the required packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import getsourcefile
from pathlib import Path, PurePosixPath
from typing import Any

from pulumi_trainer.args.project import Source
from pulumi_trainer.code import imports
from pulumi_trainer.code.python_source import parse, syntax_problem
from pulumi_trainer.code.source_tree import SourceTree, read_tree
from pulumi_trainer.code.uncalled_code import uncalled_code
from pulumi_trainer.program import session
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.trainer.catalog import git

_IMPORTED = """import importlib, json, pathlib

if __name__ == "__main__":
    arguments = pathlib.Path(__file__).with_name("func_args.json").read_text(encoding="utf-8")
    getattr(importlib.import_module({module!r}), {name!r})(**json.loads(arguments))
"""


@dataclass(frozen=True)
class Project:
    """The files of a project."""

    root: Path
    tree: SourceTree

    @property
    def modules(self) -> frozenset[str]:
        """Return the top-level modules that code in its folder can import."""
        top = frozenset(PurePosixPath(path).parts[0].removesuffix(".py") for path in self.tree.files)
        return top | self.tree.src_packages

    def ships_training(self, function: bool) -> bool:
        """Return whether `pulumi_trainer.training` travels with the job; a project with a package of that name has it itself."""
        return "pulumi_trainer" not in self.modules and (function or self._imports_training)

    @cached_property
    def _imports_training(self) -> bool:
        texts = (file.content for path, file in self.tree.files.items() if path.endswith(".py"))
        return any(map(imports.imports_training, texts))

    def why_left_out(self, path: str) -> str:
        """Return that a file of the folder does not travel, and why; empty if the folder has no such file."""
        if path in self.tree.files or not (self.root / path).is_file():
            return ""
        names = {path, *(f"{folder}/" for folder in PurePosixPath(path).parents)}
        reason = "include, exclude or a built-in pattern leaves it out"
        if names & {*self.tree.ignored}:
            reason = "a .gitignore names it"
        elif path in self.tree.links:
            reason = "it is a link to a file that stays behind"
        return f"{path} does not travel with the job: {reason}"

    def module_file(self, module: str) -> tuple[str, str]:
        """Return the folder that a module is imported from, and its file, both relative to the project."""
        parts, left_out = module.replace(".", "/"), ""
        for folder in (".", "src"):
            for name in (f"{parts}.py", f"{parts}/__main__.py"):
                path = str(PurePosixPath(folder, name))
                if path in self.tree.files:
                    return folder, path
                left_out = left_out or self.why_left_out(path)
        why = f"the project has no module {module}: neither {parts}.py nor {parts}/__main__.py, below {self.root} or its src"
        hint = "module= is the dotted name of a file of source="
        if left_out:
            why, hint = left_out, f"{hint}, and .gitignore, include and exclude must not leave it out"
        if "__init__.py" in self.tree.files and module.partition(".")[0] == self.root.name:
            hint = f"source= is the package itself: give the folder that contains it, {self.root.parent}"
        if "/" in module or module.endswith(".py"):
            why = f"{module} is a path, not the name of a module"
            hint = self._instead_of_path(module, hint)
        raise Invalid(Problem("module", why, hint))

    def _instead_of_path(self, path: str, hint: str) -> str:
        """Return what to give instead of the path of a module."""
        file = f"{str(PurePosixPath(path)).removesuffix('.py')}.py"
        if file not in self.tree.files:
            return hint
        name = file.removeprefix("src/").removesuffix(".py").replace("/", ".")
        return f'give module="{name}", or script="{file}"'


def read_project(source: Source | str | Path) -> Project:
    """Return the files of a project; each is read once in a program."""
    given = source
    if not isinstance(given, Source):
        given = Source(given)
    include, exclude = tuple(given.include or ()), tuple(given.exclude or ())
    key = (str(Path(given.path).absolute()), given.git, given.revision, given.storage, include, exclude)
    known = session.current().projects
    if key not in known:
        try:
            root = _find_root(given)
            tree = read_tree(root, include, exclude, committed=given.git is not None)
            folder = root.resolve() if given.git is None else None
            tree = replace(tree, storage=given.storage or "", revision=_revision(given), folder=folder)
            known[key] = Project(root.resolve(), tree)
        except Invalid as error:
            known[key] = error
    found = known[key]
    if isinstance(found, Invalid):
        raise found
    project: Project = found
    return project


def _find_root(source: Source) -> Path:
    if source.git is None or source.revision is None:
        return Path(source.path)
    path = PurePosixPath(source.path)
    if path.is_absolute() or ".." in path.parts:
        raise Invalid(Problem("path", f"must be a folder of the repository, not {source.path!r}"))
    try:
        commit = git.project_folder(source.git, source.revision)
    except Invalid as error:
        field = "git"
        if isinstance(error, git.InvalidRef):
            field = "revision"
        raise Invalid(*(Problem(field, f"{p.where}: {p.why}", p.hint) for p in error.problems)) from None
    if not (commit / path).is_dir():
        raise Invalid(_no_folder(commit, path))
    return commit / path


def _revision(source: Source) -> str:
    """Return the revision of a source and its commit; the commit alone if that is the revision; empty without git."""
    if source.git is None or source.revision is None:
        return ""
    commit = git.project_folder(source.git, source.revision).name
    if source.revision == commit:
        return commit[:12]
    return f"{source.revision} {commit[:12]}"


def _no_folder(commit: Path, path: PurePosixPath) -> Problem:
    """Return the problem of a path that is not a folder of a commit."""
    folders = sorted(each.name for each in commit.iterdir() if each.is_dir())
    hint = 'path="." is the whole repository, which has no folders'
    if folders:
        hint = f"its folders: {join_names(folders)}"
    return Problem("path", f"commit {commit.name[:12]} of the repository has no folder {path}", hint)


@dataclass(frozen=True)
class ImportedFunction:
    """A function of a module of a project."""

    script: str
    folder: str
    path: str


def imported_function(func: Callable[..., Any], project: Project) -> ImportedFunction | None:
    """Return how a job imports a function from the project; None if it does not belong to a module of the project."""
    file = getsourcefile(func)
    if file is None or func.__module__ == "__main__" or not _is_attribute_of_module(func):
        return None
    path = Path(file).resolve()
    if project.root not in path.parents or path.relative_to(project.root).as_posix() not in project.tree.files:
        return None
    in_project = path.relative_to(project.root)
    relative = in_project.with_suffix("")
    parts = relative.parts
    if relative.name == "__init__":
        parts = relative.parent.parts
    module = func.__module__.split(".")
    if list(parts[-len(module) :]) != module:
        return None
    folder = str(PurePosixPath(*parts[: -len(module)]))
    script = _IMPORTED.format(module=func.__module__, name=func.__name__)
    return ImportedFunction(script, folder, in_project.as_posix())


def _is_attribute_of_module(func: Callable[..., Any]) -> bool:
    """Return whether its module has the function under its own name, which is how the job gets it."""
    return getattr(sys.modules.get(func.__module__), func.__name__, None) is func


def script_problems(project: Project, script: str | Path) -> list[Problem]:
    """Return the problems of a script of a project."""
    path = PurePosixPath(script)
    outside = path.is_absolute() or ".." in path.parts
    if outside or str(path) not in project.tree.files:
        why = f"the project has no file {script}"
        if not outside:
            why = project.why_left_out(str(path)) or why
        hint = "script= is relative to the folder of source=, and .gitignore, include and exclude must not leave it out"
        return [Problem("script", why, hint)]
    return syntax_problems("script", project, str(path))


def syntax_problems(where: str, project: Project, path: str) -> list[Problem]:
    """Return a problem if Python cannot parse a file of a project."""
    try:
        parse(project.tree.files[path].content, path)
    except (SyntaxError, ValueError) as error:
        return [syntax_problem(where, path, error)]
    return []


def uncalled_file(where: str, project: Project, path: str) -> tuple[Problem, ...]:
    """Return a warning if a file of a project only defines functions."""
    return uncalled_code(where, path, parse(project.tree.files[path].content).body)
