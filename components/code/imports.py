"""The check for imports of user code from files of the program, which do not travel with the job."""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import packages_distributions
from pathlib import Path

from pulumi_trainer.code.python_source import is_type_checking, parse
from pulumi_trainer.provider.kubernetes.errors import Problem

_TRAINING = "pulumi_trainer.training"
"""The module that travels with code that imports it."""
_HINT = "move it into the same file, or install it: in the image, or as a package of packages_to_install"


def missing_imports(
    where: str, source: str, file: Path, line: int = 1, travelling: frozenset[str] = frozenset()
) -> tuple[Problem, ...]:
    """Return a warning for each import of `source` that fails in a job.

    Args:
        line: The line of `file` that `source` begins with.
    """
    beside = None
    if where == "script":
        beside = file.parent.absolute()
    found = []
    for at, what in _found(source, beside, travelling):
        why = f"{file.name}:{line + at - 1} {what}, which does not travel with the job"
        found.append(Problem(where, why, _HINT))
    return tuple(found)


@lru_cache(maxsize=256)
def _found(source: str, beside: Path | None, travelling: frozenset[str]) -> tuple[tuple[int, str], ...]:
    """Return line and description of each such import."""
    found = []
    for node in _evaluated(parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            name = "." * node.level + (node.module or "")
            found.append((node.lineno, f"imports {name}, relative to a package"))
            continue
        for module in _modules(node):
            top = module.partition(".")[0]
            if top in travelling or module == _TRAINING:
                continue
            path = _file_of_program(top, beside)
            if path:
                found.append((node.lineno, f"imports {module} from {path}"))
    return tuple(found)


def imports_training(source: str | bytes) -> bool:
    """Return whether code imports `pulumi_trainer.training`, which then travels with it."""
    package, module = _TRAINING.split(".")
    content = source
    if not isinstance(content, bytes):
        content = content.encode(errors="replace")
    if package.encode() not in content or module.encode() not in content:
        return False
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return False
    for node in _evaluated(tree):
        is_absolute = isinstance(node, ast.Import) or not node.level
        if is_absolute and _TRAINING in _modules(node):
            return True
    return False


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package, module = _TRAINING.split(".")
    if node.module != package:
        return [str(node.module)]
    found = [_TRAINING for alias in node.names if alias.name == module]
    if any(alias.name != module for alias in node.names):
        found.append(package)
    return found


def _evaluated(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a module, without those for type checkers alone."""
    pending = [tree]
    while pending:  # no recursion: code may be nested more deeply than functions
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            pending += reversed(node.orelse)
        else:
            pending += reversed([*ast.iter_child_nodes(node)])


@lru_cache(maxsize=1024)
def _file_of_program(name: str, beside: Path | None) -> str:
    """Return the file or folder that a top-level module is imported from; empty: it is installed, built in or unknown."""
    path = None
    if beside is not None:
        path = _beside(name, beside)
    if path is None:
        path = _imported_from(name)
        if path is None or _is_installed(path) or name in packages_distributions():
            return ""
    here = Path.cwd()
    if path.is_relative_to(here):
        path = path.relative_to(here)
    return str(path)


def _beside(name: str, folder: Path) -> Path | None:
    """Return the module or package of that name in a folder; one without `__init__.py` comes after all others."""
    for path in (folder / f"{name}.py", folder / name / "__init__.py"):
        if path.is_file():
            return path
    if _imported_from(name) is None and any((folder / name).glob("*.py")):
        return folder / name
    return None


def _imported_from(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):  # of a module that is being run or was made by hand
        return None
    if spec is None:
        return None
    origin = spec.origin
    if not spec.has_location:
        origin = next(iter(spec.submodule_search_locations or ()), None)
    if not origin:
        return None
    return Path(origin)


def _is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or to a package that was installed."""
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return any(path.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
