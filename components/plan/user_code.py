"""How user code travels: the bytes of a function or a script in a ConfigMap, started by a small bootstrap without a shell.

What would be lost on the way (a global, a closure, a decorator) is a problem here, with
the name and the line.
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
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import to_document
from pulumi_trainer.args.builtin import BuiltinTrainer
from pulumi_trainer.args.json_values import json_value
from pulumi_trainer.args.signatures import unknown_fields
from pulumi_trainer.args.trainers import (
    Code,
    Compiled,
    CustomTrainer,
    Trainer,
)
from pulumi_trainer.plan import imports
from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.api.labels import FRAMEWORK
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.pipeline import registry

LIMIT = 900_000
"""Bytes: a ConfigMap holds at most 1 MiB, and names and other files need some of it."""

PYTHON = "python3"

LAUNCHERS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torchrun",),
    "paddle": (PYTHON, "-m", "paddle.distributed.launch"),
}
"""Framework (label `trainer.kubeflow.org/framework` of the runtime) -> what starts the script; default: Python. A plugin
names its own in `launcher`."""

MPIRUN = ("mpirun", "--allow-run-as-root", "--hostfile", "/etc/mpi/hostfile")
"""A container is root where its image says so, and mpirun would refuse. The hostfile is what the Kubeflow SDK names too."""

ACROSS: Mapping[str, tuple[str, ...]] = {"mpi": MPIRUN, "deepspeed": MPIRUN, "mlx": MPIRUN}
"""Framework -> what starts the script's launcher in each slot of each node; it runs in the trainer step alone."""

_FOOTER = """

if __name__ == "__main__":
    import json as {json}, pathlib as {path}
    {name}(**{json}.loads({path}.Path(__file__).with_name("{args}").read_text(encoding="utf-8")))
"""

_IMPLICIT = frozenset({"__name__", "__file__", "__doc__", "__builtins__", *dir(builtins)})


@dataclass(frozen=True)
class Shipped:
    """User code as a script. exact: the bytes of its file. problems: it is not shipped while there are any. warnings: what it
    will not find."""

    script: str
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    exact: bytes | None = None


def compile_trainer(trainer: Trainer | BuiltinTrainer, runtime: Mapping[str, Any], dataset: Any) -> Compiled:
    """Return the document of a trainer, and the code that travels with the job.

    Args:
        trainer: Of the job.
        runtime: The document of its runtime, whose framework decides what starts the code.
        dataset: That of the initializer, if any.

    Raises:
        TrainerError: A plugin names a launcher that is none.
    """
    compiled = trainer.compiled(runtime, dataset)
    if not isinstance(trainer, CustomTrainer) or not trainer.ships_code:
        return compiled
    func_args, wrong = json_value(trainer.func_args, "func_args")
    if trainer.func is not None:
        shipped = from_function(trainer.func)
        func_args = func_args if func_args is not None else {}
    else:
        shipped = from_script(str(trainer.script))
    packages, urls = to_document(trainer.packages_to_install), to_document(trainer.pip_index_urls)
    return Compiled(
        {**compiled.document, "command": command()},
        Code(shipped.script, func_args, packages, urls, framework(runtime)),
        (*shipped.problems, *wrong),
        shipped.warnings,
        None if shipped.problems else trainer.func,
        shipped.exact,
    )


def from_function(func: Callable[..., Any]) -> Shipped:
    """Return the source of `func` as a script that calls it with the JSON of func_args."""
    if not inspect.isfunction(func):
        why = f"must be a plain function, not {type(func).__name__}"
        return _refused("func", why, "pass the function itself")
    if func.__name__ == "<lambda>":
        return _refused("func", "a lambda has no source of its own to ship", "write it as a def")
    try:
        lines, first = inspect.getsourcelines(func)
    except (OSError, TypeError):
        why = f"the source of {func.__name__} cannot be read"
        return _refused("func", why, "define it in a file, or use script=")
    source = _as_module("".join(lines))
    file = Path(inspect.getsourcefile(func) or "?")
    first -= source.startswith(_INDENTED)
    try:
        function = _statement(ast.parse(source))
    except SyntaxError as error:
        where = f"{file.name}:{first + (error.lineno or 1) - 1}"
        return _refused("func", f"the source of {func.__name__} is not a def: {error.msg} ({where})", _AS_DEF)
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _refused("func", f"{func.__name__} is not a def ({file.name}:{first})", _AS_DEF)
    postponed = bool(func.__code__.co_flags & __future__.annotations.compiler_flag)
    needs_future, lost = _lost(source, function, postponed)
    found = [
        Problem("func", f"{func.__name__} {what} ({file.name}:{first + line - 1})", mend)
        for line, what, mend in [*_never_runs(func, function), *_decorators(function), *lost]
    ]
    found = found or [Problem("func", f"{func.__name__} {what}", _AS_WRITTEN) for what in _changes(func, function)]
    # The imports of the footer must not take the function's own name.
    json_, path = (f"{alias}_" if alias == function.name else alias for alias in ("_json", "_pathlib"))
    footer = _FOOTER.format(name=function.name, args=code.ARGS_FILE, json=json_, path=path)
    script = (_POSTPONED if needs_future else "") + source + ("" if source.endswith("\n") else "\n") + footer
    return Shipped(script, tuple(found or _callable_problems(func)), imports.left_behind("func", source, file, first))


_AS_WRITTEN = "what is shipped is its def: write there what the job is to do"


def _changes(func: Callable[..., Any], function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield what the program has made of a function after its def."""
    if inspect.unwrap(func) is not func:
        yield "is wrapped (functools.wraps or update_wrapper), and the wrapper would be lost"
        return
    arguments = function.args
    given: list[Any] = [*(func.__defaults__ or ())]
    written: list[ast.expr | None] = [*arguments.defaults]
    given += [(func.__kwdefaults__ or {}).get(each.arg) for each in arguments.kwonlyargs]
    written += arguments.kw_defaults
    constants = [each.value for each in written if isinstance(each, ast.Constant)]
    now = [value for value, each in zip(given, written, strict=False) if isinstance(each, ast.Constant)]
    if len(given) != len(written) or [*map(repr, constants)] != [*map(repr, now)]:
        yield "has other defaults by now than in its def"


def _refused(where: str, why: str, mend: str = "") -> Shipped:
    return Shipped("", (Problem(where, why, mend),))


_AS_DEF = "write it as a def, or use script="
_POSTPONED = "from __future__ import annotations\n"
_INDENTED = "if True:\n"
"""Stands above a function that keeps its indentation."""


@lru_cache(maxsize=256)
def _as_module(source: str) -> str:
    """Return the source of a function as a statement of a module. Its indentation goes where that changes no string in it."""
    dedented = textwrap.dedent(source)
    exact = _INDENTED + source if source[:1].isspace() else source
    if dedented == source:
        return exact
    try:
        return dedented if _meaning(dedented) == _meaning(exact) else exact
    except SyntaxError:  # text or a comment further to the left than the def
        return exact


def _meaning(source: str) -> str:
    """Return the syntax tree of a function as text; blanks in docstrings count where something may read them."""
    function = _statement(ast.parse(source))
    for node in ast.walk(function) if "__doc__" not in source else ():
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                constant.value = inspect.cleandoc(text)
    return ast.dump(function)


def _statement(tree: ast.Module) -> ast.stmt:
    """Return the def, which may stand below `_INDENTED`."""
    top = tree.body[0]
    return top.body[0] if isinstance(top, ast.If) else top


def _never_runs(func: Callable[..., Any], function: ast.stmt) -> Iterator[tuple[int, str, str]]:
    """Yield why a call of the function would return at once, with nothing done."""
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


def _lost(
    source: str, function: ast.FunctionDef | ast.AsyncFunctionDef, postponed: bool
) -> tuple[bool, list[tuple[int, str, str]]]:
    """Return the names that the function would not find where it runs, each with a line. First: whether annotations have to
    stay unevaluated there, as they are here."""
    evaluated = _names(source) - _IMPLICIT - {function.name}
    unevaluated = _names(_POSTPONED + source) - _IMPLICIT - {function.name}
    needs_future = postponed and evaluated != unevaluated
    found = []
    for lost in sorted(unevaluated if needs_future else evaluated):
        uses = [n.lineno for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == lost]
        what = f"uses {lost}, which is defined outside of it and would be lost"
        mend = "define or import it inside the body, pass it in func_args, or use script="
        if lost not in unevaluated:
            what = f"names {lost} in an annotation, which is defined outside of it and would be lost"
            mend = 'begin the file with "from __future__ import annotations", or leave the annotation out'
        found.append((min(uses, default=function.lineno), what, mend))
    return needs_future, found


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


def _outside(table: symtable.SymbolTable) -> set[str]:
    """Return the names that the def statement itself needs: defaults, annotations, decorators."""
    return {s.get_name() for s in table.get_symbols() if s.is_referenced() and not s.is_assigned()}


def _callable_problems(func: Callable[..., Any]) -> list[Problem]:
    """A closure shows as a free variable of the compiled function even where its source looks whole."""
    names = func.__code__.co_freevars
    mend = "pass it in func_args, or define it inside the body"
    return [Problem("func", f"{func.__name__} closes over {n}, which would be lost", mend) for n in names]


def argument_problems(func: Callable[..., Any], func_args: Any) -> list[Problem]:
    """Return what is wrong with the arguments of a function: those that it does not take, or lacks."""
    if isinstance(func_args, Unknown):
        return []
    if not isinstance(func_args, Mapping):
        return [Problem("func_args", f"must be a mapping, not {type(func_args).__name__}")]
    signature = inspect.signature(func)
    parameters = signature.parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    known = tuple(p.name for p in named)
    found = [] if any(p.kind is p.VAR_KEYWORD for p in parameters) else unknown_fields(func_args, known)
    told = [
        Problem(f'func_args["{p.where}"]', f"{func.__name__}{signature} has no such argument", p.mend) for p in found
    ]
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if missing := [name for name in required if name not in known or name not in func_args]:
        why = f"{func.__name__}{signature} requires {', '.join(missing)}"
        positional = [name for name in missing if name not in known]
        mend = (
            f"arguments are passed by name: {', '.join(positional)} must not be positional-only" if positional else ""
        )
        told.append(Problem("func_args", why, mend))
    return told


def argument_warnings(func: Callable[..., Any], func_args: Any) -> list[Problem]:
    """Return the arguments that are not what the function's annotations say; Python would pass them on as they are."""
    parameters = inspect.signature(func).parameters
    found = []
    for name, value in func_args.items() if isinstance(func_args, Mapping) else ():
        annotation = parameters[name].annotation if name in parameters else None
        wanted = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        types = _ANNOTATED.get(wanted)
        whole = wanted == "int" and isinstance(value, float) and value.is_integer()
        if types is None or value is None or isinstance(value, (Unknown, *types)) or whole:
            continue
        why = f"{func.__name__} takes {wanted} here, not {reprlib.repr(value)}"
        found.append(Problem(f'func_args["{name}"]', why, f"pass {wanted}, or change the annotation"))
    return found


_ANNOTATED: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}
"""Annotation -> the values that JSON has for it."""


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
        ast.parse(exact, filename=str(file))
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8, or name its encoding in the first line, such as # coding: latin-1"
        return _refused("script", f"{file} is not UTF-8 text: {error.reason}", hint)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        return _refused("script", f"{file.name}:{line}: {getattr(error, 'msg', error)}")
    return Shipped(text, warnings=imports.left_behind("script", text, file), exact=exact)


def _text(source: bytes) -> str:
    """Return the text of a script; its line endings do not matter to Python, so a checkout with others is no other script."""
    try:
        return io.TextIOWrapper(io.BytesIO(source), "utf-8-sig").read()
    except UnicodeDecodeError as error:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        except SyntaxError:
            raise error from None
        return io.TextIOWrapper(io.BytesIO(source), encoding).read()


def framework(runtime: Mapping[str, Any]) -> Any:
    """What decides how code is started: the runtime's label; where nothing is known by it, the runtime's policy."""
    label = runtime.get("metadata", {}).get("labels", {}).get(FRAMEWORK, "")
    policy = runtime.get("spec", {}).get("mlPolicy")
    names = [label, *policy] if isinstance(policy, Mapping) and isinstance(label, str) else []
    return next((name for name in names if name in ACROSS or _launcher(name)), label)


def _launcher(name: str) -> tuple[str, ...] | None:
    return registry.launcher(name) or LAUNCHERS.get(name)


def package_problems(code: Mapping[str, Any]) -> list[Problem]:
    """Return the requirements and the addresses of indexes that are no text, and the requirements that pip could not read."""
    found = []
    for field, name in {"packages_to_install": "packages", "pip_index_urls": "index_urls"}.items():
        given = code.get(name)
        if given is not None and not isinstance(given, (list, Unknown)):
            found.append(Problem(field, f"must be a list of strings, not {type(given).__name__}"))
        for i, each in enumerate(given if isinstance(given, list) else ()):
            if not isinstance(each, (str, Unknown)):
                found.append(Problem(f"{field}[{i}]", f"must be a string, not {type(each).__name__}"))
    return [*found, *_unreadable(code.get("packages"))]


def _unreadable(packages: Any) -> Iterator[Problem]:
    words = packages if isinstance(packages, list) else []
    for i, (before, word) in enumerate(zip(["", *words], words, strict=False)):
        is_option = any(isinstance(each, str) and each.startswith("-") for each in (before, word))
        if not isinstance(word, str) or is_option or _FILE_OR_URL.search(word) or plaintext_secrets.problems(word, ""):
            continue
        try:
            Requirement(word)
        except InvalidRequirement as error:
            why = f"{word!r} is not a valid requirement: {str(error).partition(chr(10))[0]}"
            hint = 'one requirement each, such as "torch>=2.6,<3", a path, a URL or an option of pip'
            yield Problem(f"packages_to_install[{i}]", why, hint)


_FILE_OR_URL = re.compile(r"^\.|/|\.(whl|zip|tar|tgz|tbz|tar\.\w+)(\[|$)", re.IGNORECASE)
"""What pip looks for on a disk or behind an address."""


def files(
    script: str, func_args: Any, packages: Any, index_urls: Any, framework: str, env: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the data of the code ConfigMap. env: variables of the trainer; mpirun takes to other nodes only what it is told."""
    urls = index_urls or []
    if unknown := first_unknown([packages, urls]):
        install: Any = unknown
    else:
        index = [w for i, url in enumerate(urls) for w in ("--extra-index-url" if i else "--index-url", url)]
        install = [*packages, *index] if packages else []
    launch = {"install": install, "launcher": list(_launcher(framework) or (PYTHON,))}
    if framework in ACROSS:
        launch["across"] = [*ACROSS[framework], *(word for name in env for word in ("-x", name)), PYTHON]
    data = {code.MAIN_FILE: script, code.LAUNCH_FILE: _json(launch), code.BOOTSTRAP_FILE: bootstrap()}
    if func_args is not None:
        data[code.ARGS_FILE] = _json(func_args, sort_keys=False)
    return data


def exactly(data: dict[str, Any], script: bytes) -> dict[str, Any]:
    """Return the `data` and `binaryData` of the code ConfigMap with the bytes of a script file: as text where it is UTF-8."""
    try:
        return {"data": {**data, code.MAIN_FILE: script.decode()}}
    except UnicodeDecodeError:
        encoded = {code.MAIN_FILE: base64.b64encode(script).decode()}
        return {"data": {name: text for name, text in data.items() if name != code.MAIN_FILE}, "binaryData": encoded}


def _json(value: Any, *, sort_keys: bool = True) -> Any:
    """The text of a file; as unknown as what stands in it."""
    return unknown if (unknown := first_unknown(value)) else json.dumps(value, sort_keys=sort_keys)


@lru_cache(maxsize=1)
def bootstrap() -> str:
    """The text of bootstrap.py, which installs packages and becomes the launcher. It is part of every job's state, so it
    has no comments; standard library only. On the Local target, `layer` answers with a cached environment instead of pip.
    `across` starts it again in each slot of each node: packages are then installed where they are used, by one at a time.
    """
    return Path(__file__).with_name("bootstrap.py").read_text(encoding="utf-8")


def command() -> list[str]:
    """The container's command: Python and the bootstrap, no shell."""
    return [PYTHON, f"{code.CODE_PATH}/{code.BOOTSTRAP_FILE}"]
