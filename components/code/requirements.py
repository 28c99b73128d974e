"""Reads the requirements of a project (files of requirements, pyproject.toml, uv.lock), and warns of what a project lacks."""

from __future__ import annotations

import codecs
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.arguments import as_sequence
from pulumi_trainer.args.trainers import CustomTrainer
from pulumi_trainer.code.project_code import Project, read_project
from pulumi_trainer.code.source_tree import SourceTree
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text, texts
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.machine.uv_program import find_uv

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

_OTHER_FILE = re.compile(r"(-r|--requirem[a-z]*|-c|--cons[a-z]*)(?:\s+|=)?(\S.*)")
"""An option that names a file; pip takes the beginning of its name as well."""


_FURTHER_FILE = re.compile(r"-.*\s(-[rc]|--requirem[a-z]*|--cons[a-z]*)(\s|=)")
"""Such an option after another one."""


_MOST_REQUIREMENTS = 500_000
"""Bytes of all files of requirements."""


_MOST_LINES = 20_000
"""Lines of all files of requirements."""


_MOST_LEVELS = 20
"""Files of requirements that include one another."""


def read_requirements(given: str | Path, project: Project | None) -> str:
    """Return the text of a file of requirements.

    Args:
        project: The project that the path is relative to; None: it is relative to the program's current folder.
    """
    file = _requirements_file(given, project)
    if file.name in ("uv.lock", "pyproject.toml"):
        if file.name == "uv.lock":
            found = _in_project(_exported(file), file, project)
        else:
            found = _read_dependencies(file)
        for line in found.split("\n"):
            _check_line(line.removesuffix("\\"), file.name, project)
        return found
    if file.suffix in (".yml", ".yaml"):
        why = f"{given} is an environment of conda, which pip does not read"
        raise Invalid(Problem("requirements", why, "give requirements.txt, pyproject.toml or uv.lock"))
    lines = []
    size = 0
    for line in _lines(file, (), project):
        written = ""
        if line.strip():
            written = f"{line}\n"
        lines.append(written)
        size += len(line) + 1
        if size > _MOST_REQUIREMENTS or len(lines) > _MOST_LINES:
            why = f"{given} has more than {_MOST_REQUIREMENTS:,} bytes or {_MOST_LINES:,} lines"
            raise Invalid(Problem("requirements", why))
    return "".join(lines)


def _requirements_file(given: str | Path, project: Project | None) -> Path:
    """Return the path of a file of requirements: relative to the project, else to the program's current folder."""
    if project is None:
        return Path(given)
    file = Path(os.path.normpath(project.root / given))
    is_in_project = file.is_file() and project.root in file.parents
    if is_in_project and project.root not in file.resolve().parents:
        raise Invalid(Problem("requirements", f"{given} is a link that leads out of the project", "copy the file"))
    return file


def _lines(file: Path, above: tuple[Path, ...], project: Project | None) -> Iterator[str]:
    """Yield the lines of a file of requirements, with those of the files that it includes."""
    if file in above:
        raise Invalid(Problem("requirements", f"{file} includes itself"))
    if len(above) > _MOST_LEVELS:
        raise Invalid(Problem("requirements", f"{file} is included through more than {_MOST_LEVELS} files"))
    continued = False
    for number, line in enumerate(_text(file).splitlines(), 1):
        goes_on = line.endswith("\\")
        for secret in plaintext_secrets.problems([line], "requirements"):
            raise Invalid(replace(secret, where="requirements", why=f"{file.name}:{number} {secret.why}"))
        is_single_line = not continued and not goes_on
        if is_single_line:
            _check_line(line, f"{file.name}:{number}", project, quoted=not above)
        continued = goes_on
        other = _OTHER_FILE.match(line.strip())
        further = _FURTHER_FILE.match(line.partition(" #")[0].strip())
        if further is not None:
            why = f"{file.name}:{number}: {further[1]} needs a line of its own"
            raise Invalid(Problem("requirements", why, "one option a line"))
        if other is None:
            yield line
        elif other[1].startswith(("-r", "--r")) and "://" not in other[2]:
            yield ""  # counts: files that include one another many times end at the limit, too
            included = _included(file, other[2].split(" #")[0].strip(), f"{file.name}:{number}", project)
            yield from _lines(included, (*above, file), project)
        else:
            why = f"{file.name}:{number}: {other[1]} is not supported, since that file does not travel with the job"
            raise Invalid(Problem("requirements", why, "write the versions into the requirements: `uv pip compile`"))


def _included(file: Path, name: str, place: str, project: Project | None) -> Path:
    """Return the path of a file that a file of requirements includes. A file of a project includes only files of it that travel:
    whoever has written the project must not read others of this machine.
    """
    path = Path(os.path.normpath(file.parent / name))
    if project is None or project.root not in file.parents:
        return path
    in_project = os.path.relpath(path, project.root)
    if in_project not in project.tree.files:
        why = f"the project has no {in_project}"
        if not in_project.startswith(".."):
            why = project.why_left_out(in_project) or why
        hint = "-r includes files of source= alone, and .gitignore, include and exclude must not leave them out"
        raise Invalid(Problem("requirements", f"{place}: {why}", hint))
    return path


def _check_line(line: str, place: str, project: Project | None, *, quoted: bool = True) -> None:
    """Raise Invalid if a line of a file of requirements is not valid."""
    wrong = _unreadable(line)
    if wrong:
        why = f"{place} is not a valid requirement"
        if quoted:
            why = f"{place}: {line.strip()!r} is not a valid requirement: {wrong}"
        raise Invalid(Problem("requirements", why, 'one requirement a line, such as "torch>=2.6,<3"'))
    path = required_path(line)
    if project is not None and path and not _is_in(project.tree, path):
        hint = "a path is relative to the folder of source=, and .gitignore, include and exclude must not leave it out"
        raise Invalid(Problem("requirements", f"{place}: the project has no {path}", hint))


def required_path(line: str) -> str:
    """Return the relative path that a line of a file of requirements names; empty if it names none, or if a marker decides."""
    written = _EDITABLE.sub("", re.split(r"(?:^|\s)#|\s--", line)[0].strip())
    if re.search(r"^[/~-]|[@;$:]", written) or not _FILE_OR_URL.search(written):
        return ""
    return written.partition("[")[0].strip()


_EDITABLE = re.compile(r"^(-e|--editable)[\s=]\s*")


def _is_in(tree: SourceTree, path: str) -> bool:
    """Return whether a path is a file or a folder of a project."""
    normal = posixpath.normpath(path)
    return normal == "." or normal in tree.files or any(file.startswith(f"{normal}/") for file in tree.files)


def _unreadable(line: str) -> str:
    """Return why a line of a file of requirements is none; empty for a comment, an option, a path, a URL and a requirement."""
    text = re.split(r"(?:^|\s)(?:#|--)", line)[0].strip()
    if not text or text.startswith("-") or "${" in text:
        return ""
    return invalid_requirement(text)


def invalid_requirement(text: str) -> str:
    """Return why a text is not a requirement; empty if it is one, a path, a URL, or a secret, which no message quotes."""
    if plaintext_secrets.problems(text, "") or _FILE_OR_URL.search(text.partition(";")[0]):  # a marker follows
        return ""
    try:
        Requirement(text)
    except InvalidRequirement as error:
        return str(error).partition("\n")[0]
    return ""


_FILE_OR_URL = re.compile(r"^\.|/|\.(whl|zip|tar|tgz|tbz|tar\.\w+)(\[|$)", re.IGNORECASE)
"""Requirements that pip reads from a disk or an address."""


def _text(file: Path) -> str:
    """Return the text of a file without its byte order mark, which is no part of the first requirement."""
    try:
        if not file.is_file():
            raise Invalid(Problem("requirements", f"no such file: {file}"))
        if file.stat().st_size > _MOST_REQUIREMENTS:
            raise Invalid(Problem("requirements", f"{file} has more than {_MOST_REQUIREMENTS:,} bytes"))
        if _begins_with(file, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            hint = "save it as UTF-8; in PowerShell: pip freeze | Out-File -Encoding utf8 requirements.txt"
            raise Invalid(Problem("requirements", f"{file} is UTF-16 text, not UTF-8", hint))
        found = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"{file} is not UTF-8 text: {error.reason}, at byte {error.start}"
        raise Invalid(Problem("requirements", why, "save it as UTF-8")) from None
    except OSError as error:
        raise Invalid(Problem("requirements", f"cannot read {file}: {error}")) from None
    if "\0" in found:
        raise Invalid(Problem("requirements", f"{file} has a NUL character, so it is not a file of requirements"))
    return found


def _begins_with(file: Path, *marks: bytes) -> bool:
    """Return whether a file begins with one of the byte order marks."""
    with file.open("rb") as opened:
        return opened.read(4).startswith(marks)


def source_warnings(given: str | Path, project: Project | None) -> tuple[Problem, ...]:
    """Return a warning if a `pyproject.toml` has dependencies that only uv takes from where the file says, or if a `uv.lock` was
    made from another `pyproject.toml`.
    """
    file = _requirements_file(given, project)
    if file.name == "uv.lock":
        return tuple(_stale_lock(file))
    if file.name != "pyproject.toml":
        return ()
    sources = {*map(canonicalize_name, section(_read_toml(file), "tool", "uv", "sources"))}
    found = [name for name in _LOCKED.findall(_read_dependencies(file)) if canonicalize_name(name) in sources]
    if not found:
        return ()
    why = f"{file.name} names the sources of {join_names(found)} for uv ([tool.uv.sources]); pip would take them from PyPI"
    return (Problem("requirements", why, 'give requirements="uv.lock", or pip_index_urls'),)


def project_warnings(trainer: CustomTrainer, python: str) -> Iterator[Problem]:
    """Yield warnings about what a trainer's project lacks."""
    project = None
    if trainer.source is not None:
        project = read_project(trainer.source)
        yield from _missing_script(project, trainer.command)
    if trainer.requirements is not None and python:
        yield from _other_python(_requirements_file(trainer.requirements, project), python)


def _missing_script(project: Project, command: Any) -> Iterator[Problem]:
    """Yield a warning if a command starts Python with a file that the project does not have."""
    words = texts([*as_sequence(command)][:2])
    if len(words) < 2 or not _STARTS_FILE.fullmatch(words[0]):
        return
    path = PurePosixPath(words[1])
    if path.suffix != ".py" or path.is_absolute() or "$" in words[1] or _is_in(project.tree, words[1]):
        return
    others = [file for file in project.tree.files if PurePosixPath(file).name == path.name]
    hint = "it is relative to the folder of source=, and .gitignore, include and exclude must not leave it out"
    if others:
        hint = f"did you mean {join_names(others)}?"
    why = f"{path} is not in the project"
    if ".." not in path.parts:
        why = project.why_left_out(str(path)) or why
    yield Problem("command", why, hint)


_STARTS_FILE = re.compile(r"(?:.*/)?(?:python[\d.]*|torchrun)")


def _other_python(file: Path, python: str) -> Iterator[Problem]:
    """Yield a warning if a `pyproject.toml` requires another Python."""
    if file.name not in ("pyproject.toml", "uv.lock"):
        return
    try:
        required = text(section(_read_toml(file.with_name("pyproject.toml")), "project").get("requires-python"))
        fits = SpecifierSet(required).contains(python, prereleases=True)
    except (Invalid, InvalidSpecifier):
        return
    if not fits:
        why = f"pyproject.toml requires Python {required}, and the job runs with {python}, the Python of this program"
        yield Problem("requirements", why, "give Local(python=) such an interpreter, or run the program with it")


def _stale_lock(file: Path) -> Iterator[Problem]:
    """Yield a warning if a `uv.lock` was made from other dependencies than `pyproject.toml` has now.

    The lock has the dependencies that it was made from, so neither uv nor a network is needed. If a file has them in another
    form, nothing is known.
    """
    try:
        project, lock = _read_toml(file.with_name("pyproject.toml")), _read_toml(file)
        declared, locked = _declared(project), _locked_from(lock, project)
    except (Invalid, InvalidRequirement, InvalidSpecifier):
        return
    if declared is None or locked is None or declared == locked:
        return
    names = sorted({name for name, _ in declared ^ locked})
    why = f"{file.name} does not fit pyproject.toml, which has other requirements now: {join_names(names)}"
    yield Problem("requirements", f"{why}; the locked versions are installed", "uv lock")


_Wanted = frozenset[tuple[str, SpecifierSet]]
"""Canonical names of packages, with their versions; without these for a package with a source in `[tool.uv.sources]`."""


def _declared(project: Mapping[str, Any]) -> _Wanted | None:
    """Return the dependencies of a `pyproject.toml`; None if another tool makes them, or if they name the project itself.

    A lock has, in the place of the project, what its extras name.
    """
    table = section(project, "project")
    if "dependencies" in texts(table.get("dynamic")):
        return None
    found = set()
    for requirement in map(Requirement, texts(table.get("dependencies"))):
        if canonicalize_name(requirement.name) == canonicalize_name(text(table.get("name"))):
            return None
        found.add(_wanted(requirement.name, requirement.specifier, project))
    return frozenset(found)


def _locked_from(lock: Mapping[str, Any], project: Mapping[str, Any]) -> _Wanted | None:
    """Return the dependencies from which a `uv.lock` was made; None if it does not have them."""
    own = [package for package in mappings(lock.get("package")) if "." in section(package, "source").values()]
    if len(own) != 1:
        return None
    required = section(own[0], "metadata").get("requires-dist")
    if required is None and own[0].get("dependencies"):
        return None
    found = set()
    for each in mappings(required):
        if "extra ==" not in text(each.get("marker")):
            found.add(_wanted(text(each.get("name")), SpecifierSet(text(each.get("specifier"))), project))
    return frozenset(found)


def _wanted(name: str, versions: SpecifierSet, project: Mapping[str, Any]) -> tuple[str, SpecifierSet]:
    canonical = canonicalize_name(name)
    if canonical in map(canonicalize_name, section(project, "tool", "uv", "sources")):
        versions = SpecifierSet()
    return canonical, versions


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise Invalid(Problem("requirements", f"{file} is not valid TOML: {error}")) from None
    return found


def _read_dependencies(file: Path) -> str:
    found = section(_read_toml(file), "project").get("dependencies")
    if not isinstance(found, list) or not all(isinstance(each, str) and "\n" not in each for each in found):
        raise Invalid(Problem("requirements", f"{file} has no list project.dependencies"))
    return "".join(f"{each}\n" for each in found)


def _exported(file: Path) -> str:
    """Return the locked versions of a project of uv, without the project itself and its groups for development; with the indexes
    and hashes if a package is of another index than uv's default, since pip would take one of the same name from any index.

    The indexes are those that the lock names, so that the text is the same for every user of the lock.
    """
    found = _export(file, "--no-hashes")
    names = _LOCKED.findall(found)
    packages = [each for each in mappings(_read_toml(file).get("package")) if each.get("name") in names]
    indexes = dict.fromkeys(filter(None, (text(section(each, "source").get("registry")) for each in packages)))
    default = _default_index(file)
    others = [each for each in indexes if each.rstrip("/") != default]
    if not others:
        return found
    if len(others) < len(indexes):
        others.insert(0, default)
    found = _export(file)
    unhashed = _UNHASHED.findall(found)
    if unhashed:
        why = f"{file} has no hashes of {join_names(unhashed)}: with several indexes, pip could install another package"
        hint = "take them from an index that has hashes, or give a file of requirements"
        raise Invalid(Problem("requirements", why, hint))
    lines = "\n--extra-index-url ".join(others)
    return f"--index-url {lines}\n\n{found}"


@cache
def _default_index(file: Path) -> str:
    """Return the index that uv takes packages from if neither the project nor the user has set one."""
    found = _INDEX.search(_export(file, "--no-hashes", "--emit-index-url"))
    if found is None:
        return ""
    return found[1].rstrip("/")


_INDEX = re.compile(r"^--index-url (\S+)", re.MULTILINE)


_LOCKED = re.compile(r"^([A-Za-z0-9][\w.-]*)", re.MULTILINE)


_UNHASHED = re.compile(r"^((?:-e )?[^\s#-]\S*)(?:.*[^\\\n])?$", re.MULTILINE)
"""Lines of a requirement that end with it; its hashes are in the lines below."""


def _in_project(exported: str, file: Path, project: Project | None) -> str:
    """Return what uv exports with paths relative to the project, where pip runs; uv gives them relative to the lock."""
    if project is None or file.parent == project.root:
        return exported
    folder = os.path.relpath(file.parent, project.root)

    def moved(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        if not path.startswith("../"):
            path = f"./{path}"
        return f"{found[1]}{path}"

    return _RELATIVE.sub(moved, exported)


_RELATIVE = re.compile(r"^((?:-e )?)(\.[^;\n]*?)(?= ;| \\|$)", re.MULTILINE)
"""Relative paths of an export, which have a dot in front."""


def _export(file: Path, *options: str) -> str:
    """Return what uv exports from a lock."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    argv = [
        find_uv(),
        "export",
        "--frozen",
        "--no-dev",
        "--no-emit-project",
        "--no-header",
        "--no-annotate",
        "--quiet",
        "--no-config",
        *options,
    ]
    try:
        done = subprocess.run(argv, cwd=file.parent, env=env, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        raise Invalid(Problem("requirements", f"uv did not export {file} in 60 s")) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise Invalid(Problem("requirements", f"uv cannot export {file}: {lines[0]}"))
    return done.stdout
