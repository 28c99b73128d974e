"""Reads the code that starts on the nodes: the source of a function, a script file, or a file of a project."""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import io
import re
import reprlib
import symtable
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

from pulumi_trainer.args.signatures import unknown_fields
from pulumi_trainer.args.trainers import CustomTrainer
from pulumi_trainer.code import imports
from pulumi_trainer.code.project_code import Project, imported_function, script_problems, syntax_problems, uncalled_file
from pulumi_trainer.code.python_source import TOO_DEEP, parse, syntax_problem
from pulumi_trainer.code.uncalled_code import uncalled_code
from pulumi_trainer.program.targets import project_folder, resolve_once
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod import code

LIMIT = 900_000
"""Bytes: a ConfigMap can contain 1 MiB, of which names and other files need some."""


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
        entry: File of the project that the launcher starts instead of the script.
        path: Folders of the project that modules are imported from.
        line: Line of the program's file in which the function begins.
        file: Name of the file of the function or script, as `file_name` returns it.
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


def read_entry(trainer: CustomTrainer, project: Project | None) -> Shipped:
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
        return _refused("func", why, "give a function that the program defines with def")
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
        function = _parsed(source)
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
    path, project = resolve_once(str(file.absolute())), project_folder()
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


@lru_cache(maxsize=256)
def _parsed(source: str) -> ast.stmt:
    """Return the def in a source, which jobs of one function share; nobody changes it."""
    return _statement(ast.parse(source))


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
