"""User code as files: a ConfigMap with a function or a script, started by a small bootstrap without a shell.

Parts that cannot travel with a function (a global, a closure, a decorator) are problems with name and line.
"""

from __future__ import annotations
import __future__

import ast
import base64
import builtins
import inspect
import io
import json
import re
import reprlib
import symtable
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, repeat
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import to_document
from pulumi_trainer.args.builtin import BuiltinTrainer
from pulumi_trainer.args.fine_tuning import ToolTrainer, table
from pulumi_trainer.args.json_values import json_value
from pulumi_trainer.args.project import Source
from pulumi_trainer.args.signatures import unknown_fields
from pulumi_trainer.args.trainers import CustomTrainer, Trainer
from pulumi_trainer.code import imports
from pulumi_trainer.code.compiled import Code, Compiled
from pulumi_trainer.code.project_code import (
    Project,
    imported_function,
    invalid_requirement,
    read_project,
    read_requirements,
    required_path,
    script_problems,
    source_warnings,
    syntax_problems,
    uncalled_file,
)
from pulumi_trainer.code.python_source import TOO_DEEP, parse, syntax_problem
from pulumi_trainer.code.uncalled_code import uncalled_code
from pulumi_trainer.program.targets import project_folder
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import listed, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.trainer.labels import FRAMEWORK
from pulumi_trainer.provider.trainer.pipeline import registry

LIMIT = 900_000
"""Bytes: a ConfigMap can contain 1 MiB, of which names and other files need some."""

PYTHON = "python3"

LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torchrun",),
    "paddle": (PYTHON, "-m", "paddle.distributed.launch"),
}
"""Framework (label `trainer.kubeflow.org/framework` of the runtime) -> command that starts the script; default: Python. A plugin
sets its own in `launcher`.
"""

MPIRUN = ("mpirun", "--allow-run-as-root", "--hostfile", "/etc/mpi/hostfile")
"""mpirun refuses to run as root without the flag, and an image may use root. The Kubeflow SDK uses the same hostfile."""

ACROSS: Mapping[str, tuple[str, ...]] = {"mpi": MPIRUN, "deepspeed": MPIRUN, "mlx": MPIRUN}
"""Framework -> command that starts the script's launcher in each slot of each node; it runs in the trainer step alone."""

_FOOTER = """

if __name__ == "__main__":
    import json as {json}, pathlib as {path}{more}
    {name}(**{json}.loads({path}.Path(__file__).with_name("{args}").read_text(encoding="utf-8")))
"""

_WAITING = ", wait_for_gloo as _gloo"
"""What the footer imports too, so that a rank does not die in native code after its work (`code.GLOO_FILE`)."""
_DISTRIBUTED = re.compile(r"\btorch\.distributed\b|\bfrom torch import [^\n]*\bdistributed\b")

_OF_MODULE = frozenset({"__name__", "__builtins__"})
"""Names of every module that a function may use: the job has them too, and loggers are named by `__name__`."""

_OF_FILE = frozenset({"__file__", "__doc__", "__spec__", "__loader__", "__package__", "__cached__"})
"""Names of every module whose value in the job is another one, since the function is in a file of its own there."""


@dataclass(frozen=True)
class Shipped:
    """User code as a script.

    Attributes:
        problems: Reasons not to submit the code.
        warnings: Imports that fail in the job, and code that calls nothing.
        exact: Bytes of the script file.
        entry: File of the project that the launcher starts instead of the script.
        path: Folders of the project that modules are imported from.
        line: Line of the program's file in which the function begins.
        file: Name of the file of the function or script, as `file_name` returns it.
        training: Whether the code imports `pulumi_trainer.training`.
    """

    script: str
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    exact: bytes | None = None
    entry: tuple[str, ...] | None = None
    path: tuple[str, ...] = (".",)
    line: int = 1
    file: str = ""
    training: bool = False


def compile_trainer(trainer: Trainer | BuiltinTrainer, runtime: Mapping[str, Any], dataset: Any) -> Compiled:
    """Return the document of a trainer, and the code that travels with the job.

    Args:
        runtime: Document of the runtime, whose framework selects the launcher.
        dataset: Document of the dataset's initializer, if any.

    Raises:
        TrainerError: A plugin names an invalid launcher.
    """
    if isinstance(trainer, BuiltinTrainer):
        return Compiled(trainer.train_job_field(dataset), problems=tuple(trainer.runtime_problems(runtime)))
    compiled = Compiled(trainer.document())
    if isinstance(trainer, ToolTrainer):
        return _compile_tool(trainer, compiled, runtime)
    if not isinstance(trainer, CustomTrainer) or not trainer.ships_code:
        return compiled
    func_args, wrong = json_value(trainer.func_args, "func_args")
    if trainer.func is not None and func_args is None:
        func_args = {}
    problems: list[Problem] = [*wrong]
    project, requirements = _read_files(trainer, problems)
    doubts: tuple[Problem, ...] = ()
    if trainer.requirements and requirements is not None:
        doubts = source_warnings(trainer.requirements, project)
    shipped = Shipped("")
    source_is_refused = project is None and trainer.source is not None
    if not source_is_refused:
        shipped = _shipped(trainer, project)
    packages, urls = to_document(trainer.packages_to_install), to_document(trainer.pip_index_urls)
    document = {**compiled.document, "command": command()}
    if trainer.command is not None:  # in args, where Kubernetes replaces $(VARIABLE)
        document["args"] = [*to_document(trainer.command), *(to_document(trainer.args) or [])]
    compiled = Compiled(
        document,
        Code(
            shipped.script, func_args, packages, urls, framework(runtime), entry=shipped.entry, requirements=requirements
        ),
        (*shipped.problems, *problems),
        (*shipped.warnings, *doubts),
        exact=shipped.exact,
        line=shipped.line,
        file=shipped.file,
        training=shipped.training,
    )  # fmt: skip
    if not shipped.problems:
        compiled = replace(compiled, func=trainer.func)
    if project is not None:
        compiled = _with_project(compiled, project, shipped.path)
    return compiled


def _with_project(compiled: Compiled, project: Project, path: tuple[str, ...]) -> Compiled:
    """Return a trainer whose code travels with the files of a project.

    Args:
        path: Folders of the project that modules are imported from.
    """
    assert compiled.code is not None
    code_of_project = replace(compiled.code, source=project.tree.digest, path=path)
    training = project.ships_training(compiled.training)
    return replace(compiled, code=code_of_project, tree=project.tree, training=training)


def _compile_tool(trainer: ToolTrainer, compiled: Compiled, runtime: Mapping[str, Any]) -> Compiled:
    """Return a trainer whose program is that of a tool, with the functions that it calls."""
    started, problems = framework(runtime), list[Problem]()
    if runtime and started != "torch":
        why = f"{trainer.title} is started by torchrun, and the framework of this runtime is {started or 'unknown'}"
        problems.append(Problem("", why, f'runtime="{table(trainer.tool)["runtime"]}"'))
    arguments, wrong = json_value(trainer.arguments(), "")
    for found in wrong:
        problems.append(replace(found, where=_field_of_tool(found.where)))
    modules, rewards, warnings = dict[str, str](), list[dict[str, Any]](), list[Problem]()
    for at, function in enumerate(trainer.functions()):
        reward = from_function(function)
        problems += _of_reward(reward.problems)
        warnings += _of_reward(reward.warnings)
        modules[f"reward_{at}.py"] = reward.script
        rewards.append(_place(reward.script, reward.file, reward.line))
    prints = ""
    if trainer.prints_fields:
        prints = trainer.title
    packages, urls = to_document(trainer.packages_to_install), to_document(trainer.pip_index_urls)
    problems += _other_releases(trainer, packages)
    return Compiled(
        {**compiled.document, "command": command()},
        Code(
            "", arguments, packages, urls, started, tool=trainer.tool, modules=modules or None,
            server=trainer.backend() or None,
        ),
        tuple(problems),
        tuple(warnings),
        check=trainer.argument_problems,
        training=True,
        server=trainer.server(),
        prints=prints,
        rewards=tuple(rewards),
    )  # fmt: skip


def _field_of_tool(path: str) -> str:
    """Return the path of a value in the arguments of a tool, by the fields of its trainer."""
    for start, field in {'["generation"]["config"]': "generation.config", '["config"]': "config"}.items():
        if path.startswith(start):
            return field + path.removeprefix(start)
    return path


def _of_reward(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of a function that a tool calls, by the path of the argument."""
    return [replace(problem, where="reward") for problem in problems]


def _read_files(trainer: CustomTrainer, problems: list[Problem]) -> tuple[Project | None, str | None]:
    """Return the project of a trainer and the text of its requirements; None for a missing or rejected one, whose problems are
    added to `problems`.
    """
    project = None
    refused = {problem.where for problem in trainer.check()}
    if "source" in refused or (isinstance(trainer.source, Source) and trainer.source.check()):
        return None, None
    try:
        if trainer.source is not None:
            project = read_project(trainer.source)
    except Invalid as error:
        problems += problems_below("source", error.problems)
        return None, None
    try:
        if trainer.requirements is not None and "requirements" not in refused:
            return project, read_requirements(trainer.requirements, project)
    except Invalid as error:
        problems += error.problems
    return project, None


def _other_releases(trainer: ToolTrainer, packages: Any) -> Iterator[Problem]:
    """Yield the requirements that pip could not install together with the packages of the tool."""
    pinned: dict[str, list[str]] = {}
    for each in map(Requirement, tool_packages(trainer.tool, [], trainer.backend() or None)):
        versions = pinned.setdefault(canonicalize_name(each.name), [])
        for specifier in each.specifier:
            if specifier.operator == "==":
                versions.append(specifier.version)
    for i, word in enumerate(listed(packages)):
        try:
            given = Requirement(word)
        except (InvalidRequirement, TypeError):  # an Output, an option, a path, or reported elsewhere
            continue
        releases = pinned.get(canonicalize_name(given.name))
        if releases and not _allows_one_of(given, releases):
            why = (
                f"{word!r} is another release than {given.name} {releases[-1]}, with which {trainer.title} is installed"
            )
            hint = "leave it out; the plan knows the fields of this release alone"
            yield Problem(f"packages_to_install[{i}]", why, hint)


def _allows_one_of(requirement: Requirement, releases: Sequence[str]) -> bool:
    """Return whether one of the releases of a package index meets a requirement."""
    if requirement.url:
        return False
    return any(requirement.specifier.contains(release, prereleases=True) for release in releases)


def _shipped(trainer: CustomTrainer, project: Project | None) -> Shipped:
    """Return the code that starts on the nodes: a file of its own, or one of the project."""
    if project is None:
        if trainer.func is None:
            return from_script(str(trainer.script))
        return from_function(trainer.func)
    if trainer.command is not None:
        return Shipped("", entry=())
    if trainer.script is not None:
        script = str(trainer.script)
        refused = tuple(script_problems(project, trainer.script))
        if refused:
            return Shipped("", refused, entry=(script,))
        idle = uncalled_file("script", project, str(PurePosixPath(trainer.script)))
        return Shipped("", warnings=idle, entry=(script,))
    if trainer.module is not None:
        try:
            folder, path = project.module_file(trainer.module)
        except Invalid as error:
            return Shipped("", error.problems)
        shipped = Shipped("", entry=("-m", trainer.module), path=(folder,))
        refused = tuple(syntax_problems("module", project, path))
        if refused:
            return replace(shipped, problems=refused)
        return replace(shipped, warnings=uncalled_file("module", project, path))
    assert trainer.func is not None
    imported = None
    if inspect.isfunction(trainer.func):
        imported = imported_function(trainer.func, project)
    if imported is None:
        return from_function(trainer.func, project.modules)
    content = project.tree.files[imported.path].content
    try:
        if not _has_def(content, trainer.func):
            return _changed(trainer.func, PurePosixPath(imported.path).name)
        refused = tuple(_never_runs_as_imported(trainer.func))
    except (MemoryError, RecursionError):
        return _refused("func", f"{imported.path} {TOO_DEEP}", "use script=")
    return Shipped(imported.script, refused, path=tuple(dict.fromkeys((imported.folder, "."))))


def _never_runs_as_imported(func: Callable[..., Any]) -> Iterator[Problem]:
    """Yield why a call of an imported function would return immediately without running its body."""
    module = ast.parse(textwrap.dedent(inspect.getsource(func))).body[0]
    for _, what, hint in _never_runs(func, module):
        yield Problem("func", f"{func.__name__} {what}", hint)


def from_function(func: Callable[..., Any], travelling: frozenset[str] = frozenset()) -> Shipped:
    """Return the source of `func` as a script that calls it with the JSON of func_args."""
    try:
        return _from_source(func, travelling)
    except (MemoryError, RecursionError):
        return _refused("func", f"{func.__name__} {TOO_DEEP}: its source cannot be read", "use script=")


def _from_source(func: Callable[..., Any], travelling: frozenset[str]) -> Shipped:
    if not inspect.isfunction(func):
        why = f"must be a plain function, not {type(func).__name__}"
        return _refused("func", why, "pass the function itself")
    if func.__code__.co_name == "<lambda>":
        return _refused("func", "a lambda has no source of its own to ship", "write it as a def")
    file = Path(inspect.getsourcefile(func) or "?")
    try:
        whole, _ = inspect.findsource(inspect.unwrap(func))
        lines, first = inspect.getsourcelines(func)
    except (OSError, TypeError):
        if file.is_file():
            return _changed(func, file.name)
        why = f"the source of {func.__name__} cannot be read"
        return _refused("func", why, "define it in a file, or use script=")
    if not _has_def("".join(whole), func):
        return _changed(func, file.name)
    source = _as_module("".join(lines))
    first -= source.startswith(_INDENTED)
    try:
        function = _statement(ast.parse(source))
    except SyntaxError as error:
        where = f"{file.name}:{first + (error.lineno or 1) - 1}"
        return _refused("func", f"the source of {func.__name__} is not a def: {error.msg} ({where})", _AS_DEF)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _refused("func", f"{func.__name__} is not a def ({file.name}:{first})", _AS_DEF)
    postponed = bool(func.__code__.co_flags & __future__.annotations.compiler_flag)
    lost = _lost(source, function, _implicit(func) | _made(source, func), postponed=postponed)
    found: list[Problem] = []
    for line, what, hint in chain(_never_runs(func, function), _decorators(function), lost):
        found.append(Problem("func", f"{func.__name__} {what} ({file.name}:{first + line - 1})", hint))
    if inspect.unwrap(func) is not func and not found:
        what = "is wrapped (functools.wraps or update_wrapper), and the wrapper would be lost"
        found.append(Problem("func", f"{func.__name__} {what}", _AS_WRITTEN))
    return Shipped(
        _with_call(source, function.name, postponed=postponed),
        tuple(found or _callable_problems(func)),
        (
            *imports.missing_imports("func", source, file, first, travelling),
            *uncalled_code("func", func.__name__, function.body),
        ),
        line=first,
        file=file_name(file),
        training=imports.imports_training(source),
    )


def _with_call(source: str, function: str, *, postponed: bool) -> str:
    """Return the source of a function as a script that calls it."""
    script = source
    if postponed:
        script = _POSTPONED + script
    if not source.endswith("\n"):
        script += "\n"
    json_, path = _footer_alias("_json", function), _footer_alias("_pathlib", function)
    more = _WAITING if _DISTRIBUTED.search(source) else ""
    return script + _FOOTER.format(name=function, args=code.ARGS_FILE, json=json_, path=path, more=more)


def _footer_alias(name: str, function: str) -> str:
    """Return the name of an import of the footer, which must not take the function's own name."""
    if name == function:
        return f"{name}_"
    return name


def file_name(file: Path) -> str:
    """Return the name of a file in tracebacks of a job: its path in the project, else its name without any folder."""
    path, project = file.resolve(), project_folder()
    if project in path.parents:
        return path.relative_to(project).as_posix()
    return path.name


_AS_WRITTEN = "what is shipped is its def: write there what the job is to do"


def _changed(func: Callable[..., Any], file: str) -> Shipped:
    """Return the problem of a function whose file says something else than what was imported."""
    why = f"{file} has changed since it was imported: its text is not that of {func.__name__} any more"
    return _refused("func", why, "run the program again; if a tool rewrites functions on import, use script=")


def _has_def(text: str | bytes, func: Callable[..., Any]) -> bool:
    """Return whether the text of a file still has the def of a function where it was when the file was imported: what ships is
    read from the file by line.
    """
    compiled = inspect.unwrap(func).__code__
    return (compiled.co_name, compiled.co_firstlineno) in _defs(text)


@lru_cache(maxsize=64)
def _defs(text: str | bytes) -> frozenset[tuple[str, int]]:
    """Return name and first line of each def in a file; empty for one that is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return frozenset()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add((node.name, min(each.lineno for each in (node, *node.decorator_list))))
    return frozenset(found)


def _refused(where: str, why: str, hint: str = "") -> Shipped:
    return Shipped("", (Problem(where, why, hint),))


_AS_DEF = "write it as a def, or use script="
_POSTPONED = "from __future__ import annotations\n"
_INDENTED = "if True:\n"
"""Statement above a function that keeps its indentation."""


@lru_cache(maxsize=256)
def _as_module(source: str) -> str:
    """Return the source of a function as a statement of a module, without its indentation unless that changes a string."""
    dedented = textwrap.dedent(source)
    exact = source
    if source[:1].isspace():
        exact = _INDENTED + source
    if dedented == source:
        return exact
    try:
        if _meaning(dedented) == _meaning(exact):
            return dedented
    except SyntaxError:  # text or a comment further to the left than the def
        return exact
    return exact


def _meaning(source: str) -> str:
    """Return the syntax tree of a function as text; whitespace in docstrings counts if code may read them."""
    function = _statement(ast.parse(source))
    if "__doc__" in source:
        return ast.dump(function)
    for node in ast.walk(function):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                constant.value = inspect.cleandoc(text)
    return ast.dump(function)


def _statement(tree: ast.Module) -> ast.stmt:
    """Return the def, which may be below `_INDENTED`."""
    top = tree.body[0]
    if isinstance(top, ast.If):
        return top.body[0]
    return top


def _never_runs(func: Callable[..., Any], function: ast.stmt) -> Iterator[tuple[int, str, str]]:
    """Yield why a call of the function would return immediately without running its body."""
    if inspect.iscoroutinefunction(func):
        yield function.lineno, "is a coroutine; nobody would await it", "call asyncio.run(...) inside a plain def"
    elif inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        lines = [n.lineno for n in _own_nodes(function) if isinstance(n, (ast.Yield, ast.YieldFrom))]
        what = "is a generator, because of this yield: nobody would iterate over it"
        yield min(lines, default=function.lineno), what, "do the work in a plain def"


def _own_nodes(function: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions and classes inside it."""
    pending: list[ast.AST] = [function]
    while pending:
        node = pending.pop()
        yield node
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
        pending += [each for each in ast.iter_child_nodes(node) if not isinstance(each, inner)]


def _decorators(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str, str]]:
    for decorator in function.decorator_list:
        what = f"has a decorator, @{ast.unparse(decorator)}, that would not travel"
        yield decorator.lineno, what, "apply it inside the body, or use script="


def _implicit(func: Callable[..., Any]) -> frozenset[str]:
    """Return the names with the same meaning in the job: builtins that the function's module does not replace."""
    given = func.__globals__
    names = set(_OF_MODULE)
    for name, value in vars(builtins).items():
        if given.get(name, value) is value:
            names.add(name)
    return frozenset(names - _OF_FILE)


def _made(source: str, func: Callable[..., Any]) -> frozenset[str]:
    """Return the globals that the function assigns itself, and that its module does not define."""
    return _assigned_globals(source) - func.__globals__.keys()


def _lost(
    source: str, function: ast.FunctionDef | ast.AsyncFunctionDef, implicit: frozenset[str], *, postponed: bool
) -> Iterator[tuple[int, str, str]]:
    """Yield the names that the function does not find in the job, with lines. postponed: Whether annotations stay unevaluated."""
    names = unevaluated = _names(_POSTPONED + source) - implicit - {function.name}
    if not postponed:
        names = _names(source) - implicit - {function.name}
    for lost in sorted(names):
        uses = [n.lineno for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == lost]
        what = f"uses {lost}, which is defined outside of it and would be lost"
        hint = (
            "define or import it inside the body, pass it in func_args, or move both to a module that the program imports, "
            'and give source="."'
        )
        if lost in _OF_FILE:
            what = f"uses {lost}, which has another value in the job: the function is in a file of its own there"
            hint = "pass the value in func_args, or use source="
        if lost not in unevaluated:
            what = f"names {lost} in an annotation, which is defined outside of it and would be lost"
            hint = 'begin the file with "from __future__ import annotations", or leave the annotation out'
        yield min(uses, default=function.lineno), what, hint


@lru_cache(maxsize=256)
def _names(source: str) -> frozenset[str]:
    """Return the names that a function of a module looks up outside of it."""
    table = symtable.symtable(source, "<func>", "exec")
    return frozenset(_outside(table).union(*map(_globals, table.get_children())))


def _globals(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a function and all inside it look up outside."""
    found = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    for child in table.get_children():
        found |= _globals(child)
    return found


@lru_cache(maxsize=256)
def _assigned_globals(source: str) -> frozenset[str]:
    """Return the names that a function of a module, or one inside it, declares global and assigns."""
    pending = [*symtable.symtable(source, "<func>", "exec").get_children()]
    found = set()
    while pending:
        table = pending.pop()
        found |= {s.get_name() for s in table.get_symbols() if s.is_declared_global() and s.is_assigned()}
        pending += table.get_children()
    return frozenset(found)


def _outside(table: symtable.SymbolTable) -> set[str]:
    """Return the names that the def statement itself needs: defaults, annotations, decorators."""
    return {s.get_name() for s in table.get_symbols() if s.is_referenced() and not s.is_assigned()}


def _callable_problems(func: Callable[..., Any]) -> list[Problem]:
    """Return the problems of a closure, which shows as a free variable of the compiled function even if its source looks
    complete.
    """
    names = func.__code__.co_freevars
    hint = "pass it in func_args, or define it inside the body"
    return [Problem("func", f"{func.__name__} closes over {n}, which would be lost", hint) for n in names]


def argument_problems(func: Callable[..., Any], func_args: Any) -> list[Problem]:
    """Return the problems of the arguments of a function: unknown and missing ones."""
    if isinstance(func_args, Unknown):
        return []
    if not isinstance(func_args, Mapping):
        return [Problem("func_args", f"must be a mapping, not {type(func_args).__name__}")]
    signature = inspect.signature(func)
    parameters = signature.parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    problems: list[Problem] = []
    takes_any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if not takes_any_name:
        for unknown in unknown_fields(func_args, tuple(named)):
            why = f"{func.__name__}{signature} has no such argument"
            problems.append(Problem(f'func_args["{unknown.where}"]', why, unknown.hint))
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    positional = [name for name in required if name not in named]
    missing = [name for name in required if name in positional or name not in func_args]
    if missing:
        why, hint = f"{func.__name__}{signature} requires {', '.join(missing)}", ""
        if positional:
            hint = f"arguments are passed by name: {', '.join(positional)} must not be positional-only"
        problems.append(Problem("func_args", why, hint))
    return problems


def argument_warnings(func: Callable[..., Any], func_args: Any) -> list[Problem]:
    """Return the arguments that do not match the function's annotations, which Python does not check."""
    parameters = inspect.signature(func).parameters
    if not isinstance(func_args, Mapping):
        return []
    found = []
    for name, value in func_args.items():
        if name not in parameters:
            continue
        wanted = parameters[name].annotation
        if not isinstance(wanted, str):
            wanted = getattr(wanted, "__name__", "")
        types = _ANNOTATED.get(wanted)
        whole = wanted == "int" and isinstance(value, float) and value.is_integer()
        if types is None or value is None or isinstance(value, (Unknown, *types)) or whole:
            continue
        why = f"{func.__name__} takes {wanted} here, not {reprlib.repr(value)}"
        found.append(Problem(f'func_args["{name}"]', why, f"pass {wanted}, or change the annotation"))
    return found


_ANNOTATED: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
"""Annotation -> its types in JSON."""


def from_script(path: str | Path) -> Shipped:
    """Return a script file: its bytes, and its text as Python reads it."""
    file = Path(path)
    try:
        found = file.stat()
        if not S_ISREG(found.st_mode):
            return _refused("script", f"{file} is not a regular file")
        if found.st_size > LIMIT:
            return _refused("script", f"{file} has {found.st_size} bytes, and a ConfigMap holds {LIMIT}")
        exact = file.read_bytes()
    except FileNotFoundError:
        return _refused("script", f"no such file: {file}", f"paths are relative to {Path.cwd()}")
    except ValueError:
        return _refused("script", f"not a valid path: {str(path)!r}")
    except OSError as error:
        return _refused("script", f"cannot read {file}: {error.strerror}")
    try:
        text = _text(exact)
        tree = parse(exact, str(file))
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8, or name its encoding in the first line, such as # coding: latin-1"
        return _refused("script", f"{file} is not UTF-8 text: {error.reason}", hint)
    except (SyntaxError, ValueError) as error:
        return Shipped("", (syntax_problem("script", file.name, error),))
    doubts = (*imports.missing_imports("script", text, file), *uncalled_code("script", file.name, tree.body))
    return Shipped(text, warnings=doubts, exact=exact, file=file_name(file), training=imports.imports_training(text))


def _text(source: bytes) -> str:
    """Return the text of a script with line endings as Python reads them, so that checkouts with other line endings are the same
    script.
    """
    try:
        return io.TextIOWrapper(io.BytesIO(source), "utf-8-sig").read()
    except UnicodeDecodeError as error:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        except SyntaxError:
            raise error from None
        return io.TextIOWrapper(io.BytesIO(source), encoding).read()


def framework(runtime: Mapping[str, Any]) -> Any:
    """Return the framework that selects the launcher: the runtime's label, or the runtime's policy if the label is unknown."""
    label = runtime.get("metadata", {}).get("labels", {}).get(FRAMEWORK, "")
    policy = runtime.get("spec", {}).get("mlPolicy")
    if not isinstance(policy, Mapping) or not isinstance(label, str):
        return label
    for name in (label, *policy):
        if name in ACROSS or _launcher(name):
            return name
    return label


def _launcher(name: str) -> tuple[str, ...] | None:
    return registry.launcher(name) or LAUNCHERS.get(name)


def package_problems(code: Mapping[str, Any]) -> list[Problem]:
    """Return the requirements and index addresses that are not text, and the requirements that pip cannot read."""
    found = []
    for field, name in {"packages_to_install": "packages", "pip_index_urls": "index_urls"}.items():
        given = code.get(name)
        if given is not None and not isinstance(given, (list, Unknown)):
            found.append(Problem(field, f"must be a list of strings, not {type(given).__name__}"))
        for i, each in enumerate(listed(given)):
            if not isinstance(each, (str, Unknown)):
                found.append(Problem(f"{field}[{i}]", f"must be a string, not {type(each).__name__}"))
    return [*found, *_unreadable(code), *_unhashed(code)]


def _unhashed(code: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem if pip would refuse all of `packages_to_install`, since the requirements of a file have hashes."""
    named = any(not _is_option(before) and not _is_option(word) for _, before, word in _words(code))
    if named and "--hash=" in (code.get("requirements") or ""):
        why = "the requirements have hashes, and pip then installs nothing without one"
        yield Problem("packages_to_install", why, "add them to the lock or the file of requirements instead")


def _unreadable(code: Mapping[str, Any]) -> Iterator[Problem]:
    for where, before, word in _words(code):
        if not isinstance(word, str) or plaintext_secrets.problems(word, ""):
            continue
        option = _OPTION_WITH_VALUE.match(word)
        if option is not None:
            why = f"{option[1]} and its value are one word, which pip does not read"
            yield Problem(where, why, f'write them as two items: "{option[1]}", "{option[2]}"')
            continue
        if _is_option(before) or _is_option(word):
            continue
        wrong = invalid_requirement(word)
        if wrong:
            hint = 'one requirement each, such as "torch>=2.6,<3", a path, a URL or an option of pip'
            yield Problem(where, f"{word!r} is not a valid requirement: {wrong}", hint)


def _words(code: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each item of `packages_to_install` with its path and the item before it, of which it may be the value."""
    words = listed(code.get("packages"))
    for i, (before, word) in enumerate(zip(["", *words], words, strict=False)):
        yield f"packages_to_install[{i}]", before, word


def _is_option(word: Any) -> bool:
    return isinstance(word, str) and word.startswith("-")


def unshipped_packages(code: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the requirements that are files of this machine: without a project, none of them travels to a cluster."""
    if code.get("source") is not None:
        return
    for path in map(required_path, (code.get("requirements") or "").split("\n")):
        if path and Path(path).exists():
            why = f"{path} is a path of this machine, and no file travels with requirements"
            yield Problem("requirements", why, "give the address of a package, or source=")
    for where, before, word in _words(code):
        if not isinstance(word, str):
            continue
        path = word.partition(";")[0].partition("[")[0].strip()
        is_file = before in _FILE_OPTIONS or path.startswith(".") or "/" in path
        if is_file and path and "://" not in path and not path.startswith(("/", "-")) and Path(path).exists():
            why = f"{word} is a path of this machine, and no file travels with packages_to_install"
            hint = "give the address of a package, or source="
            if before in _FILE_OPTIONS[:4]:
                hint = "use requirements="
            yield Problem(where, why, hint)


_FILE_OPTIONS = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable")
_OPTION_WITH_VALUE = re.compile(r"(--?[A-Za-z][\w-]*)\s+(\S.*)")


def files(
    script: str, func_args: Any, packages: Any, index_urls: Any, framework: str, source: str | None = None,
    entry: Sequence[str] | None = None, path: Sequence[str] | None = None, requirements: str | None = None,
    env: Sequence[str] = (), stored: Mapping[str, Any] | None = None, line: int = 1, file: str = "",
    checkpoints: bool = False, s3: bool = False, reports: bool = False, logs: bool = False, training: bool = False,
    tool: str | None = None, modules: Mapping[str, str] | None = None, server: str | None = None,
    secrets: Sequence[Sequence[str | int]] = (), rewards: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return the data of the code ConfigMap.

    Args:
        func_args: Arguments of the function, as JSON.
        entry: File of the project that the launcher starts.
        path: Folders of the project that modules are imported from.
        env: Names of the trainer's variables, which mpirun passes to other nodes.
        stored: Address of the project's archive and the limit of its bytes, if it is not in the ConfigMap.
        line: Line of the program's file in which the function begins.
        checkpoints: Whether the job has a checkpoint policy.
        reports: Whether its nodes report data and packages (`REPORT_FILE`).
        logs: Whether the output of its containers is kept in the output volume.
        training: Whether the code imports `pulumi_trainer.training`.
        tool: Name of the tool whose program is started instead of the script.
        modules: Name of a file beside the script -> its text.
        server: What generates in the generation server of the tool.
        secrets: Paths of what is secret in `func_args`, if these are in a Secret.
        rewards: For each function that the tool calls, what `_place` returns of it.
    """
    if tool is not None:
        script, packages = _script_text(f"run_{tool}.py"), tool_packages(tool, packages, server)
    install = _install_arguments(requirements, packages, index_urls or [])
    launch: dict[str, Any] = {"install": install, "launcher": list(_launcher(framework) or (PYTHON,))}
    if framework in ACROSS:
        launch["across"] = [*_command_across(framework, env), PYTHON]
    data: dict[str, Any] = dict(modules or {})
    if tool is not None:
        data |= _script_texts(*code.TOOL_FILES)
    if server is not None:
        data[code.SERVER_FILE] = _script_text(code.SERVER_FILE)
        started = {"launcher": [PYTHON], "entry": [f"{code.CODE_PATH}/{code.SERVER_FILE}"]}
        launch["roles"] = {code.SERVER_ROLE: started}
    if source is not None:
        launch |= {"source": source, "folder": code.SOURCE_PATH, "path": list(path or ())}
        data[code.UNPACK_FILE] = _script_text(code.UNPACK_FILE)
    if stored:
        launch |= stored
        data |= _script_texts(code.FETCH_FILE, code.S3_FILE)
    if entry is None:
        data[code.MAIN_FILE] = script
        launch |= _place(script, file, line)
    else:
        launch["entry"] = list(entry)
        if not entry:
            launch["launcher"] = []
    if requirements:
        data[code.REQUIREMENTS_FILE] = requirements
    needed = {
        code.RUN_WITH_CHECKPOINTS_FILE: checkpoints, code.SYNC_FILE: s3, code.S3_FILE: s3, code.REPORT_FILE: reports,
        code.KEEP_LOG_FILE: logs,
    }  # fmt: skip
    data |= _script_texts(*(file for file, is_needed in needed.items() if is_needed))
    features = {"checkpoints": checkpoints, "report": reports, "logs": logs and code.LOGS_PATH}
    launch |= {name: given for name, given in features.items() if given}
    if _WAITING in script:
        launch["modules"] = {code.GLOO_FILE: code.GLOO_FILE}
        data[code.GLOO_FILE] = _script_text(code.GLOO_FILE)
    if training:
        launch["modules"] = {**launch.get("modules", {}), **code.MODULES}
        if tool is not None:
            launch["modules"] = code.TOOL_MODULES
        data |= _script_texts(code.PACKAGE_FILE, code.TRAINING_NAMES_FILE, code.TRAINING_FILE, code.GLOO_FILE)
    if checkpoints or training:
        data[code.CHECKPOINT_FILE] = _script_text(code.CHECKPOINT_FILE)
    launch |= {name: given for name, given in (("secrets", secrets), ("rewards", rewards)) if given}
    data |= {
        code.LAUNCH_FILE: _json(launch),
        code.BOOTSTRAP_FILE: bootstrap(),
        code.RUN_FILE: _script_text(code.RUN_FILE),
    }
    if func_args is not None:
        data[code.ARGS_FILE] = _json(func_args, sort_keys=False)
    return data


def _command_across(framework: str, env: Sequence[str]) -> list[str]:
    """Return the command that starts a launcher in each slot of each node, with the trainer's variables."""
    command_line = [*ACROSS[framework]]
    for name in env:
        command_line += ["-x", name]
    return command_line


def _install_arguments(requirements: str | None, packages: Any, urls: Any) -> Any:
    """Return the arguments of `pip install`; empty if nothing is to be installed, unknown if any part is unknown."""
    unknown = first_unknown([packages, urls])
    if unknown:
        return unknown
    flags = chain(["--index-url"], repeat("--extra-index-url"))
    index = chain.from_iterable(zip(flags, urls, strict=False))
    if not requirements and not packages:
        return []
    file: list[str] = []
    if requirements:
        file = ["-r", f"{code.CODE_PATH}/{code.REQUIREMENTS_FILE}"]
    return [*file, *(packages or []), *index]


def tool_packages(tool: str, packages: Any, server: str | None) -> Any:
    """Return the packages of a tool, and those of the user; an image that has them installs nothing. With vLLM, its packages
    replace those of the same name.
    """
    if isinstance(packages, Unknown):
        return packages
    own, others = table(tool)["packages"], []
    if server == "vllm":
        others = table(tool)["vllm"]
        names = tuple(each.partition("==")[0] + "==" for each in others)
        own = [each for each in own if not each.startswith(names)]
    return [*own, *others, *(packages or [])]


def _place(script: str, file: str, line: int) -> dict[str, Any]:
    """Return the entries of the launch file with which tracebacks name the user's file and its lines.

    Args:
        file: Name of the file in tracebacks; empty for none.
        line: Line of the file in which the function begins.
    """
    place = int(script.startswith(_POSTPONED))
    missing = line - 1 - place
    if missing > 0:
        return {"file": file or code.MAIN_FILE, "lines": [place, missing]}
    if file:
        return {"file": file}
    return {}


def with_exact_script(data: dict[str, Any], script: bytes) -> dict[str, Any]:
    """Return the `data` and `binaryData` of the code ConfigMap with the bytes of a script file, as text if they are UTF-8."""
    try:
        return {"data": {**data, code.MAIN_FILE: script.decode()}}
    except UnicodeDecodeError:
        encoded = {code.MAIN_FILE: base64.b64encode(script).decode()}
        return {"data": without(data, code.MAIN_FILE), "binaryData": encoded}


def _json(value: Any, *, sort_keys: bool = True) -> Any:
    """Return a value as JSON text; unknown if any part is unknown."""
    unknown = first_unknown(value)
    if unknown:
        return unknown
    return json.dumps(value, sort_keys=sort_keys)


@lru_cache(maxsize=16)
def _script_text(name: str) -> str:
    return code.source_of(name).read_text(encoding="utf-8")


def _script_texts(*names: str) -> dict[str, str]:
    return {name: _script_text(name) for name in names}


def bootstrap() -> str:
    """Return the text of bootstrap.py, which installs packages and runs the launcher as its child (`code.RUN_FILE`).

    It stays the first process of the container, and passes SIGTERM once to the program, and not to the processes that a program
    has started, since a DataLoader whose workers end takes the training with it. What a shell has started gets SIGTERM as well,
    since a shell passes no signal on. If a program got SIGTERM and ends with 0, the container ends with 143: Kubernetes would
    otherwise count an interrupted rank as complete. With a checkpoint policy (`code.RUN_WITH_CHECKPOINTS_FILE`), ranks get
    SIGTERM instead of torchrun, which would kill them after 30 seconds.

    Of a program that should report steps, since it has a checkpoint policy or imports `pulumi_trainer.training`, it prints an
    empty report first: a log with that one alone shows that the program has reported none (`api.progress.success_note`).

    The text is part of every job's state, so it has no comments; it only needs the standard library. On the Local target, `layer`
    returns a cached environment instead of pip's. `across` starts the bootstrap again in each slot of each node, so that packages
    are installed on each node, by one process at a time. PET_TEE makes torchrun begin each line of several processes of a node
    with the process that has printed it; torchrun would keep these lines until it has 8 KiB, so its own output is unbuffered. The
    bootstrap names its own folder in sys.path, which Python leaves out with PYTHONSAFEPATH. pip
    may change the packages of the image, also if its distribution has closed them (PEP 668), as in PyTorch's images.

    What installs packages runs in the project, to which their paths are relative, but imports nothing from it: a `json.py` of the
    project would break it. `python -m pip` would put the current folder first in sys.path, in Pythons before 3.11 always.

    A function or a script is started in a folder without modules, since Python puts that folder first in sys.path: the files of
    this one would hide the user's modules of the same name, such as `main` and `training`.
    """
    return _script_text("bootstrap.py")


def command() -> list[str]:
    """Return the container's command: Python and the bootstrap, no shell."""
    return [PYTHON, f"{code.CODE_PATH}/{code.BOOTSTRAP_FILE}"]
