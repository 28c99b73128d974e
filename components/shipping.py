"""How user code travels: the bytes of a function or a script in a ConfigMap, started by a small bootstrap without a shell.

Called by `trainers.CustomTrainer`. What would be lost on the way (a global, a closure, a decorator) is a problem here, with
the name and the line.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import symtable
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.api.labels import FRAMEWORK
from pulumi_trainer.provider.api.unknown import first_unknown
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
    import json as _json, pathlib as _pathlib
    {name}(**_json.loads(_pathlib.Path(__file__).with_name("{args}").read_text(encoding="utf-8")))
"""

_IMPLICIT = frozenset({"__name__", "__file__", "__doc__", "__builtins__", *dir(builtins)})


def from_function(func: Callable[..., Any]) -> tuple[str, list[Problem]]:
    """The source of `func` as a script that calls it with the JSON of func_args, and what is wrong with it."""
    if not inspect.isfunction(func):
        return "", [Problem("func", f"must be a plain function, not {type(func).__name__}", "pass the function itself")]
    if func.__name__ == "<lambda>":
        return "", [Problem("func", "a lambda has no source of its own to ship", "write it as a def")]
    try:
        lines, first = inspect.getsourcelines(func)
    except (OSError, TypeError):
        why = f"the source of {func.__name__} cannot be read"
        return "", [Problem("func", why, "define it in a file, or use script=")]
    source = textwrap.dedent("".join(lines))
    file = Path(inspect.getsourcefile(func) or "?").name
    found = [
        Problem("func", f"{func.__name__} {what} ({file}:{first + line - 1})", mend)
        for line, what, mend in _lost(source, func.__name__)
    ]
    if not found:
        found = _callable_problems(func)
    footer = _FOOTER.format(name=func.__name__, args=code.ARGS_FILE)
    return source + ("" if source.endswith("\n") else "\n") + footer, found


def _lost(source: str, name: str) -> Iterator[tuple[int, str, str]]:
    tree = ast.parse(source)
    function = tree.body[0]
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield 1, "is not a def", "write it as a def"
        return
    if isinstance(function, ast.AsyncFunctionDef):
        yield function.lineno, "is a coroutine; nobody would await it", "call asyncio.run(...) inside a plain def"
    for decorator in function.decorator_list:
        what = f"has a decorator, @{ast.unparse(decorator)}, that would not travel"
        yield decorator.lineno, what, "apply it inside the body, or use script="
    table = symtable.symtable(source, "<func>", "exec")
    for lost in sorted(_globals(table.get_children()[0]) | _outside(table), key=str):
        if lost in _IMPLICIT or lost == name:
            continue
        line = next((n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == lost), function.lineno)
        what = f"uses {lost}, which is defined outside of it and would be lost"
        yield line, what, "define or import it inside the body, pass it in func_args, or use script="


def _globals(table: symtable.SymbolTable) -> set[str]:
    """Names that a function and all inside it look up outside."""
    found = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    for child in table.get_children():
        found |= _globals(child)
    return found


def _outside(table: symtable.SymbolTable) -> set[str]:
    """Names that the def statement itself needs: defaults, annotations, decorators."""
    return {s.get_name() for s in table.get_symbols() if s.is_referenced() and not s.is_assigned()}


def _callable_problems(func: Callable[..., Any]) -> list[Problem]:
    """A closure shows as a free variable of the compiled function even where its source looks whole."""
    names = func.__code__.co_freevars
    mend = "pass it in func_args, or define it inside the body"
    return [Problem("func", f"{func.__name__} closes over {n}, which would be lost", mend) for n in names]


def argument_problems(func: Callable[..., Any], func_args: Mapping[str, Any]) -> list[Problem]:
    """Arguments that the function does not take, or lacks."""
    try:
        inspect.signature(func).bind(**func_args)
    except TypeError as error:
        return [Problem("func_args", f"{func.__name__}{inspect.signature(func)}: {error}")]
    return []


def from_script(path: str | Path) -> tuple[str, list[Problem]]:
    """The bytes of a script file, as they are."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "", [Problem("script", f"no such file: {file}", f"paths are relative to {Path.cwd()}")]
    except UnicodeDecodeError as error:
        return "", [Problem("script", f"{file} is not UTF-8 text: {error.reason}")]
    except OSError as error:
        return "", [Problem("script", f"cannot read {file}: {error.strerror}")]
    try:
        ast.parse(text, filename=str(file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        return "", [Problem("script", f"{file.name}:{line}: {getattr(error, 'msg', error)}")]
    return text, []


def framework(runtime: Mapping[str, Any]) -> Any:
    """What decides how code is started: the runtime's label; where nothing is known by it, the runtime's policy."""
    label = runtime.get("metadata", {}).get("labels", {}).get(FRAMEWORK, "")
    policy = runtime.get("spec", {}).get("mlPolicy")
    names = [label, *policy] if isinstance(policy, Mapping) and isinstance(label, str) else []
    return next((name for name in names if name in ACROSS or _launcher(name)), label)


def _launcher(name: str) -> tuple[str, ...] | None:
    return registry.launcher(name) or LAUNCHERS.get(name)


def files(
    script: str, func_args: Any, packages: Any, index_urls: Any, framework: str, env: Sequence[str] = ()
) -> dict[str, Any]:
    """The data of the code ConfigMap. env: variables of the trainer; mpirun takes to other nodes only what it is told."""
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
        data[code.ARGS_FILE] = _json(func_args)
    return data


def _json(value: Any) -> Any:
    """The text of a file; as unknown as what stands in it."""
    return unknown if (unknown := first_unknown(value)) else json.dumps(value, sort_keys=True)


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
