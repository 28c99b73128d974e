"""The check for imports of user code from files of the program, which do not travel with the job."""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import packages_distributions
from pathlib import Path

from pulumi_trainer.provider.kube.errors import Problem

_TRAINING = "pulumi_trainer.training"
"""The module that travels with code that imports it."""
_HINT = "move it into the same file, or install it: in the image, or as a package of packages_to_install"


def missing_imports(
    where: str, source: str, file: Path, line: int = 1, travelling: frozenset[str] = frozenset()
) -> tuple[Problem, ...]:
    """Return a warning for each import of `source` that fails in a job.

    Args:
        where: The argument that sets the code, such as `script`.
        source: The code.
        file: File of the code; a script finds the modules beside it.
        line: The line of `file` that `source` begins with.
        travelling: Top-level modules that travel with the job.
    """
    return tuple(
        Problem(where, f"{file.name}:{line + at - 1} {what}, which does not travel with the job", _HINT)
        for at, what in _found(source, file.parent.absolute() if where == "script" else None, travelling)
    )


@lru_cache(maxsize=256)
def _found(source: str, beside: Path | None, travelling: frozenset[str]) -> tuple[tuple[int, str], ...]:
    """Return line and description of each such import."""
    found = []
    for node in _evaluated(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            name = "." * node.level + (node.module or "")
            found.append((node.lineno, f"imports {name}, relative to a package"))
            continue
        for module in _modules(node):
            top = module.partition(".")[0]
            if top not in travelling and module != _TRAINING and (path := _file_of_program(top, beside)):
                found.append((node.lineno, f"imports {module} from {path}"))
    return tuple(found)


def imports_training(source: str | bytes) -> bool:
    """Return whether code imports `pulumi_trainer.training`, which then travels with it."""
    package, module = _TRAINING.split(".")
    text = source if isinstance(source, bytes) else source.encode(errors="replace")
    if package.encode() not in text or module.encode() not in text:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    imported = (node for node in _evaluated(tree) if isinstance(node, ast.Import) or not node.level)
    return any(_TRAINING in _modules(node) for node in imported)


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package, module = _TRAINING.split(".")
    if node.module == package:
        others = [package] if any(alias.name != module for alias in node.names) else []
        return [*(_TRAINING for alias in node.names if alias.name == module), *others]
    return [str(node.module)]


def _evaluated(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a module, without those for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from _evaluated(ast.Module([other], []))
        else:
            yield from _evaluated(node)


@lru_cache(maxsize=1024)
def _file_of_program(name: str, beside: Path | None) -> str:
    """Return the file or folder that a top-level module is imported from; empty: it is installed, built in or unknown."""
    path = _beside(name, beside) if beside else None
    if path is None:
        path = _imported_from(name)
        if path is None or _is_installed(path) or name in packages_distributions():
            return ""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


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
    origin = spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), None)
    return Path(origin) if origin else None


def _is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or to a package that was installed."""
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return any(path.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
