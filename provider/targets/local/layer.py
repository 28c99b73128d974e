"""Caches Python environments by Python version and requirements, on top of the interpreter that runs this file.

Started by the bootstrap of a container (`python layer.py PACKAGE... [--index-url URL ...]`): installs on the first use,
prints the environment variables that activate the environment as JSON, and logs to stderr. Standard library only, except
`packaging` where the interpreter or its pip has it.

The interpreter stands for the image of a container: its packages are below the environment, an installation uses those that
fit and installs the others, as pip does in an image. A complete environment of its own would shadow them with other versions
(numpy 2 below a torch built for numpy 1), and install a torch again that is there. The interpreter's packages are not part of
the key, because most changes of them have nothing to do with a job. Instead, an environment records what it depends on, and is
used on an interpreter

- that has the same versions of all packages that the requirements resolve to and that are not in the environment itself;
- none of whose own packages requires another version of a package in the environment, unless the requirements forced that.

Any other interpreter gets another environment of the same requirements. During an installation the interpreter's packages are
represented by their metadata alone (`_add_stand_ins`), because uv sees no packages outside the environment that it changes. A
half-built environment has no record and is removed by the next installation.
"""

from __future__ import annotations

import ast
import fcntl
import glob
import hashlib
import importlib
import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def _find_packaging() -> Any:
    """Return the module that parses requirements; None if neither the interpreter nor its pip has it."""
    for name in ("packaging.requirements", "pip._vendor.packaging.requirements"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


_PACKAGING = _find_packaging()

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's builds without CUDA: a tenth of the size. Used if reachable and the machine has no NVIDIA GPU."""
BELOW_ENV = "PULUMI_TRAINER_BELOW"
"""Variable of a container: the folders with packages of the interpreter below its environment. An environment is shared by
interpreters, so it cannot contain their paths."""
RECORD = "complete"
"""File of a complete environment: what it contains and what it depends on. Its time is that of the last use."""
MOST_FILES = 20_000
MOST_BYTES = 1 << 28
"""Limits on the content of a job's local packages that is compared."""
MOST_INTERPRETERS = 100
"""Sets of packages of interpreters that a record remembers, so that they are not compared again."""


def layer(requirements: list[str], folder: Path, run: str = "") -> dict[str, str]:
    """Return the variables that make packages importable and their programs runnable.

    A set of requirements is installed once for all interpreters that it fits; an interrupted installation is removed.

    Args:
        requirements: Arguments of pip: packages and options.
        folder: Folder of the environments.
        run: UID of the job's run, whose Pods have the same environment also after a local package has changed.
    """
    requirements = list(_with_lines_of_files(requirements))
    below = os.pathsep.join(_site_folders())
    interpreter = Interpreter(_installed(sys.path))
    folder.mkdir(parents=True, exist_ok=True)
    _check_owner(folder)
    python = [sys.base_prefix, sys.version, sysconfig.get_platform(), _takes_cpu_builds(requirements), _indexes()]
    if _names_several_indexes(requirements):
        python.append("indexes in order")  # others have been made without an order
    settings, named = _settings()
    if settings:
        python.append(settings)
    key = _name([*python, _without_files(requirements)], requirements, folder, run, named)
    with _locked(folder / f"{key}.lock"):
        home = _find_fitting(folder, key, interpreter) or _build(_unused(folder, key), requirements, interpreter)
        (home / RECORD).touch()
    python_path = [_packages(home)]
    path = os.environ.get("PYTHONPATH")
    if path:
        python_path.append(path)
    return {
        "PATH": os.pathsep.join([str(home / "bin"), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(python_path),
        BELOW_ENV: below,
    }


def _site_folders() -> list[str]:
    """Return the folders of the interpreter's packages."""
    own = [sysconfig.get_path("purelib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        own.append(site.getusersitepackages())
    return [folder for folder in dict.fromkeys(own) if Path(folder).is_dir()]


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock, so that processes that need one environment install it once."""
    with file.open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            run = _run_of_job()
            if not run or lock.read() != run:  # else another rank of this job reports its progress
                _report("another process is installing them")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(_run_of_job())
        lock.flush()
        yield


def _run_of_job() -> str:
    """Return the UID of the job's run whose rank this process is; empty outside of a job."""
    return os.environ.get("PULUMI_TRAINER_JOB", "").partition("/")[0]


Packages = Mapping[str, metadata.Distribution]
"""Canonical name -> package."""


def _installed(folders: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Return the packages in folders; of those with one name the first, as Python imports it."""
    found: dict[str, metadata.Distribution] = {}
    for package in metadata.distributions(path=[*folders]):
        name = package.metadata["Name"]
        if name:
            found.setdefault(_canonical(name), package)
    return found


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _versions(packages: Packages) -> dict[str, str]:
    return {name: package.version for name, package in sorted(packages.items())}


class Interpreter:
    """The packages of the interpreter below an environment.

    Attributes:
        packages: The packages.
        digest: Digest of their names and versions.
    """

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.digest = _digest([_versions(packages)])

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether the environment with a record can be used on this interpreter.

        Without `packaging`, only if it was built or used on the same packages.
        """
        if self.digest in record["interpreters"]:
            return True
        if _PACKAGING is None or record["relies"] is None:
            return False
        own = {name: package.version for name, package in self.packages.items() if name in record["relies"]}
        return own == record["relies"] and set(self.conflicts(record["packages"])) <= set(record["conflicts"])

    def conflicts(self, versions: Mapping[str, str]) -> list[str]:
        """Return which packages of the interpreter require other versions than those of an environment."""
        found = []
        for name, package in sorted(self.packages.items()):
            if name in versions:
                continue
            for needed in _requirements_of(package):
                version = versions.get(_canonical(needed.name))
                if version and not needed.specifier.contains(version, prereleases=True):
                    found.append(f"{name} {package.version} requires {needed.name}{needed.specifier}, not {version}")
        return found

    def relied_on(self, requirements: Iterable[str], environment: Packages) -> dict[str, str] | None:
        """Return the versions of the interpreter's packages that requirements and the packages of an environment need.

        Without `packaging`, None: it is not known.
        """
        if _PACKAGING is None:
            return None
        due = [*_parsed(requirements)]
        for package in environment.values():
            due += _requirements_of(package)
        found: dict[str, str] = {}
        seen: set[str] = set()
        while due:
            needed = due.pop()
            name = _canonical(needed.name)
            if str(needed) in seen or name in environment or name not in self.packages:
                continue
            seen.add(str(needed))
            found[name] = self.packages[name].version
            due += _requirements_of(self.packages[name], needed.extras)
        return found


def _requirements_of(package: metadata.Distribution, extras: Iterable[str] = ()) -> Iterator[Any]:
    """Yield what a package with extras requires on this machine."""
    if _PACKAGING is None:
        return
    for needed in _parsed(package.requires or []):
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield needed


def _parsed(requirements: Iterable[str]) -> Iterator[Any]:
    """Yield the requirements that name a package; a path or an address is installed into the environment itself."""
    for text in requirements:
        try:
            yield _PACKAGING.Requirement(text)
        except _PACKAGING.InvalidRequirement:
            continue


def _find_fitting(folder: Path, key: str, interpreter: Interpreter) -> Path | None:
    """Return the environment of a key that fits an interpreter; None if not found."""
    for home in sorted(folder.glob(f"{key}-*")):
        _check_owner(home)
        record = read_record(home)
        if record is not None and interpreter.fits(record):
            if interpreter.digest not in record["interpreters"]:
                known = [*record["interpreters"], interpreter.digest][-MOST_INTERPRETERS:]
                _write_record(home, {**record, "interpreters": known})
            return home
    return None


def _unused(folder: Path, key: str) -> Path:
    """Return the path of a new environment, or of one whose installation was interrupted."""
    number = 1
    while (folder / f"{key}-{number}" / RECORD).exists():
        number += 1
    return folder / f"{key}-{number}"


def read_record(home: Path) -> dict[str, Any] | None:
    """Return the record of an environment; None if it is incomplete."""
    try:
        record = json.loads((home / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or not record.keys() >= _RECORDED:
        return None
    return record


_RECORDED = frozenset({"python", "requirements", "packages", "relies", "conflicts", "interpreters"})


def _write_record(home: Path, record: Mapping[str, Any]) -> None:
    _write(home / RECORD, json.dumps(record))


def _write(file: Path, text: str) -> None:
    """Replace a file atomically."""
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


def _with_lines_of_files(requirements: list[str]) -> Iterator[str]:
    """Yield requirements with the lines of a file in its place, unless one of them is more than a requirement: so the same
    requirements have the same environment, wherever they are written."""
    words = iter(requirements)
    for word in words:
        file = ""
        if word == "-r":
            file = next(words, "")
        if not file:
            yield word
            continue
        lines = _plain_lines(Path(file))
        if lines is None:
            yield from (word, file)
        else:
            yield from lines


def _plain_lines(file: Path) -> list[str] | None:
    """Return the requirements in a file; None if it cannot be read, or a line is more than a requirement."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    found = []
    for line in text.splitlines():
        requirement = _COMMENT.sub("", line).strip()
        if re.search(r"(^|\s)-|\\$|\$\{", requirement):
            return None
        if requirement:
            found.append(requirement)
    return found


def _without_files(requirements: list[str]) -> list[str]:
    """Return requirements without the paths of their files, which differ from job to job; `Content` covers their content."""
    before = ["", *requirements]
    return [word for word, option in zip(requirements, before, strict=False) if option not in _FILES]


def _check_owner(place: Path) -> None:
    if place.exists() and place.stat().st_uid != os.getuid():
        sys.exit(f"pulumi-trainer: {place} belongs to another user, whose programs are not run; remove it")


def _name(key: list[object], requirements: list[str], folder: Path, run: str, named: Sequence[str] = ()) -> str:
    """Return the name of the environment. For a run whose packages may change, it is recorded when the run starts.

    Args:
        key: What decides about the packages and does not change during a run.
        requirements: Arguments of pip.
        folder: Folder of the environments.
        run: UID of the run.
        named: Digests of the files and folders that settings name.
    """
    content = Content(requirements)
    if not content.digest and content.fixed and not named:
        return _digest(key)
    with (folder / f"{_digest([*key, run])}.run").open("a+", encoding="ascii") as recorded:
        fcntl.flock(recorded, fcntl.LOCK_EX)
        recorded.seek(0)
        name = recorded.read()
        if not name:
            only_run = ""
            if not content.fixed:
                only_run = run
            name = _digest([*key, content.digest, only_run, *named])
            recorded.write(name)
            recorded.flush()
    return name


def _digest(key: list[object]) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


class Content:
    """The content that requirements name besides releases of an index.

    Attributes:
        fixed: Whether all content at addresses is immutable, and the local files are few enough to compare.
        listed: The requirements, also those in files.
    """

    def __init__(self, requirements: list[str]) -> None:
        self.fixed = True
        self.listed: list[str] = []
        self._hash = hashlib.sha256()
        self._added: set[Path] = set()
        self._files = self._bytes = 0
        for option, value in _arguments(requirements):
            self._take(option, value, Path())

    @property
    def digest(self) -> str:
        """Return the digest of the named files and folders of this machine; empty without any."""
        if not self._added:
            return ""
        return self._hash.hexdigest()

    def _take(self, option: str, value: str, beside: Path) -> None:
        """Add one requirement. beside: folder of its file; pip resolves most paths there, others in the current folder."""
        address = _NAMED.sub("", value)
        if option in ("", *_EDITABLE) and not _INDEX.match(value):
            self.listed.append(value)
        if _VCS.match(address):
            self.fixed = self.fixed and bool(_COMMIT.search(address))
        elif _REMOTE.match(address):
            of_index = option not in _FILES and not _ARCHIVE.search(urlsplit(address).path)
            self.fixed = self.fixed and (of_index or bool(_HASH.search(address)))
        elif option in _FILES:
            self._requirements(beside / _path(address))
        elif option in _PATHS or os.sep in address or address.startswith(".") or _LOCAL_ARCHIVE.search(address):
            for base in dict.fromkeys((Path(), beside)):
                place = base / _path(address)
                if self._add(place) and option in _EDITABLE:  # the environment has a link to it
                    self._hash.update(os.path.realpath(place).encode())

    def _requirements(self, file: Path) -> None:
        if not self._add(file) or not file.is_file():
            return
        text = file.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
        for line in text.splitlines():
            words = _words(os.path.expandvars(_COMMENT.sub("", line)).strip())
            for option, value in _arguments(words):
                self._take(option, value, file.parent)

    def _add(self, path: Path) -> bool:
        """Add an existing path and return whether it was new."""
        path = Path(os.path.realpath(path))
        if path in self._added or not path.exists():
            return False
        self._added.add(path)
        if path.is_dir():
            self._add_folder(path)
        else:
            self._add_file(path, path.name)
        return True

    def _add_folder(self, top: Path) -> None:
        for at, folders, names in os.walk(top, followlinks=True):
            below = os.path.relpath(at, top)
            folder = Path(os.path.realpath(at))
            if folder in self._added and Path(at) != Path(top):  # a link to a folder that was added already
                self._hash.update(repr(below).encode())
                folders[:] = []
                continue
            self._added.add(folder)
            folders[:] = [name for name in sorted(folders) if not _BUILT.match(os.path.normpath(f"{below}/{name}"))]
            for name in sorted(names):
                self._add_file(Path(at, name), f"{below}/{name}")
                if self._files > MOST_FILES or self._bytes > MOST_BYTES:
                    self.fixed = False
                    return

    def _add_file(self, file: Path, name: str) -> None:
        self._files += 1
        if file.is_file():
            self._bytes += file.stat().st_size
        self._hash.update(repr(name).encode())
        if not file.is_file() or self._bytes > MOST_BYTES:
            return
        try:
            self._hash.update(hashlib.sha256(file.read_bytes()).digest())
        except OSError as error:
            self._hash.update(repr(error).encode())


_FILES = ("-r", "--requirement", "-c", "--constraint")
_EDITABLE = ("-e", "--editable")
_PATHS = (*_EDITABLE, "-f", "--find-links")
_NAMED = re.compile(r"^[\w.-]+\s*(\[[^]]*\])?\s*@\s*(?=\S)")
"""The part before the address in `name[extra] @ address`."""
_VCS = re.compile(r"(git|hg|svn|bzr)\+")
_COMMIT = re.compile(r"@[0-9a-f]{40}(?![0-9a-f])")
_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_INDEX = re.compile(r"https?://(?!.*\.(whl|zip|tgz|tbz|tar|tar\.\w+)(#|$))", re.IGNORECASE)
"""The address of an index, which is the value of an option in the word before it."""
_HASH = re.compile(r"#(.*&)?(sha256|sha384|sha512)=")
_ARCHIVE = re.compile(r"\.(zip|tgz|tbz|tar|tar\.\w+)$", re.IGNORECASE)
"""Archives whose content may change; a wheel has its version in its name."""
_LOCAL_ARCHIVE = re.compile(r"\.(whl|zip|tgz|tbz|tar|tar\.\w+)(\[|$)", re.IGNORECASE)
_COMMENT = re.compile(r"(^|\s)#.*")
_BUILT = re.compile(
    r"(.*/)?(\.git|\.hg|\.svn|\.tox|\.venv|__pycache__|\.\w+_cache|[^/]+\.egg-info)$|build/(lib|bdist)[^/]*$"
)
"""Folders that tools create beside a package's files, such as pip's builds."""


def _arguments(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield option and value; the option of a requirement is empty."""
    option = ""
    for word in words:
        if option:
            yield option, word
            option = ""
        elif word in (*_FILES, *_PATHS):
            option = word
        elif word.startswith("--"):
            name, _, value = word.partition("=")
            yield name, value
        elif word[:2] in (*_FILES, *_PATHS):
            yield word[:2], word[2:]
        else:
            yield "", word


def _words(line: str) -> list[str]:
    """Return the words of a line of a requirements file: an option with its value, or one requirement."""
    if not line:
        return []
    if not line.startswith("-"):
        return [re.split(r"\s--?\w", line)[0]]
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _path(address: str) -> Path:
    """Return the path of a local requirement, without its extras and markers."""
    if address.lower().startswith("file:"):
        return Path(unquote(urlsplit(address.partition(";")[0].strip()).path))
    given = address.strip()
    if not os.path.lexists(given):
        given = re.sub(r"(\[[^]]*\])?\s*(;.*)?$", "", given)
    return Path(given)


def _build(home: Path, requirements: list[str], interpreter: Interpreter) -> Path:
    """Install requirements into a new environment, and return it."""
    content = Content(requirements)
    listed = content.listed
    print("installing", *map(_without_user, requirements), "into", home, file=sys.stderr, flush=True)
    code = 0
    own: dict[str, metadata.Distribution] = {}
    for argv, variables in _installers(home, requirements, content):
        if code:
            print("pulumi-trainer: this has failed (see above); pip tries it", file=sys.stderr, flush=True)
        code, own = _install(home, argv, variables, interpreter.packages)
        if not code:
            break
    if code:
        sys.exit(code)
    versions = _versions(own)
    conflicts = interpreter.conflicts(versions)
    for conflict in conflicts:
        print(f"pulumi-trainer: warning: {conflict}", file=sys.stderr, flush=True)
    record = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "requirements": [*map(_without_user, listed)],
        "packages": versions,
        "relies": interpreter.relied_on(listed, own),
        "conflicts": conflicts,
        "interpreters": [interpreter.digest],
    }
    _write_record(home, record)
    return home


def _without_user(word: str) -> str:
    return re.sub(r"://[^/\s]*@", "://", word)


def _installers(home: Path, requirements: list[str], content: Content) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the commands that install requirements, with their variables, until one succeeds.

    Each package comes from one index: with uv from the first that has it, so that no other index can replace it with a higher
    version of the same name. pip knows no such order, so it tries what uv has refused only if there is one index.
    The last one is pip with the settings of the machine alone: an installation fails neither because of PyTorch's index nor
    because uv lacks an option.
    """
    uv, python = shutil.which("uv"), str(home / "bin" / "python3")
    pip = [python, *_PIP, "install", "--no-input", "--disable-pip-version-check"]
    cpu = _takes_cpu_builds(requirements) and _is_reachable(f"{CPU_INDEX}/torch/")
    if uv is not None:
        settings = _pip_settings()
        options = ["--python", python, "--index-strategy", "first-index", *_configuration_options()]
        if cpu:
            options += ["--torch-backend", "cpu"]
        # Without it, uv takes its last build of a folder that a file names, unless pyproject.toml has changed since.
        if content.digest or not content.fixed:
            options.append("--refresh")
        if settings.pop("no-index", "") not in ("", "0", "false"):
            options.append("--no-index")
        variables = {_UV_SETTINGS[key]: value for key, value in settings.items() if key in _UV_SETTINGS}
        links = variables.get("UV_FIND_LINKS")
        if links:
            variables["UV_FIND_LINKS"] = ",".join(links.split())
        yield [uv, "pip", "install", *options, *_with_indexes_in_order(requirements)], variables
        if _names_several_indexes(requirements) or "UV_EXTRA_INDEX_URL" in variables:
            return
    elif cpu and any(each.startswith("torch") for each in content.listed):
        yield [*pip, "--extra-index-url", CPU_INDEX, *requirements], {}
    yield [*pip, *requirements], {}


_PIP = (
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module('pip', run_name='__main__', alter_sys=True)",
)
"""Arguments that start pip as `-m pip` does, without the current folder in sys.path: that is the project, whose modules may have
the names of Python's own."""


def _with_indexes_in_order(words: list[str]) -> list[str]:
    """Return the words with `--index-url A --extra-index-url B ...` as options of uv that try the indexes in this order."""
    named, others, option = list[str](), list[str](), ""
    for word in words:
        name, _, value = word.partition("=")
        if option:
            named.append(word)
            option = ""
        elif name in ("--index-url", _EXTRA) and value:
            named.append(value)
        elif word in ("--index-url", _EXTRA):
            option = word
        else:
            others.append(word)
    if not _names_several_indexes(words):
        return words
    *first, last = named
    return [*others, *(f"--index={url}" for url in first), f"--default-index={last}"]


def _names_several_indexes(words: list[str]) -> bool:
    return any(word.partition("=")[0] == _EXTRA for word in words)


_EXTRA = "--extra-index-url"


def _pip_settings() -> dict[str, str]:
    """Return the settings of pip, which uv does not read: those of its files if the interpreter has pip, and of variables."""
    argv = [sys.executable, *_PIP, "config", "list"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found = {}
    if not done.returncode:
        for line in done.stdout.splitlines():
            key, _, value = line.partition("=")
            found[key.rpartition(".")[2]] = " ".join(str(ast.literal_eval(value)).split())
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            found[name[4:].lower().replace("_", "-")] = value
    return found


_UV_SETTINGS = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "retries": "UV_HTTP_RETRIES",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
"""Setting of pip -> variable of uv with this meaning; options of the requirements precede it."""


def _install(
    home: Path, argv: list[str], variables: Mapping[str, str], below: Packages
) -> tuple[int, dict[str, metadata.Distribution]]:
    """Run an installer in a new environment, and return its exit code and the packages that it has installed."""
    shutil.rmtree(home, ignore_errors=True)
    command = [sys.executable, "-I", "-m", "venv"]
    if argv[0] != str(home / "bin" / "python3"):
        command.append("--without-pip")
    code = _run([*command, str(home)], {})
    if code:
        return code, {}
    Path(_packages(home), "interpreter-in-use.pth").write_text(_LINK)
    before = _versions(_installed([_packages(home)]))
    stand_ins = _add_stand_ins(Path(_packages(home)), {n: p for n, p in below.items() if n not in before})
    code = _run(argv, variables)
    for each in stand_ins:
        if _is_stand_in(each):
            shutil.rmtree(each)
    after = _installed([_packages(home)])
    return code, {name: package for name, package in after.items() if before.get(name) != package.version}


_LINK = f"import os, site; [*map(site.addsitedir, filter(None, os.environ.get('{BELOW_ENV}', '').split(os.pathsep)))]\n"


def _add_stand_ins(folder: Path, packages: Packages) -> list[Path]:
    """Write the metadata of the interpreter's packages into an environment, and return the folders.

    The installer takes them for installed. It may remove one in favour of another version: its list of files names nothing else.
    """
    made = []
    for name, package in packages.items():
        text = package.read_text("METADATA") or package.read_text("PKG-INFO")
        if text:
            stand_in = folder / f"{name.replace('-', '_')}-{package.version.replace('-', '_')}.dist-info"
            stand_in.mkdir()
            for file, content in (("METADATA", text), ("INSTALLER", _STAND_IN)):
                (stand_in / file).write_text(content, encoding="utf-8")
            files = (f"{stand_in.name}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD"))
            (stand_in / "RECORD").write_text("".join(files), encoding="utf-8")
            made.append(stand_in)
    return made


_STAND_IN = "pulumi-trainer: the interpreter below has this package"


def _is_stand_in(folder: Path) -> bool:
    try:
        return (folder / "INSTALLER").read_text(encoding="utf-8") == _STAND_IN
    except OSError:
        return False


def _packages(home: Path) -> str:
    return sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)})


def _takes_cpu_builds(requirements: list[str]) -> bool:
    """Return whether PyTorch's CPU builds are wanted: no NVIDIA GPU, and no index among the requirements."""
    named = any(word.partition("=")[0] in _INDEX_OPTIONS for word in requirements)
    return sys.platform == "linux" and not named and shutil.which("nvidia-smi") is None


_INDEX_OPTIONS = (
    "-i",
    "--index-url",
    "--extra-index-url",
    "--no-index",
    "--index",
    "--default-index",
    "--torch-backend",
)


def _is_reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _indexes() -> list[str]:
    """Return the indexes that variables name, without credentials, which change and say nothing about packages."""
    return [_without_user(os.environ.get(name, "")) for name in _INDEX_VARIABLES]


_INDEX_VARIABLES = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_EXTRA_INDEX_URL",
)


def _settings() -> tuple[list[list[str]], list[str]]:
    """Return the settings of pip and uv besides `_indexes` that may decide about packages, and the content that they name.

    The settings are values of variables and texts of configuration files, without credentials.
    """
    settings, named = [], []
    for name, value in sorted(os.environ.items()):
        if value and name.startswith(("PIP_", "UV_")) and not _WITHOUT_EFFECT.fullmatch(name):
            named += _named_content(value)
            if name not in _INDEX_VARIABLES:
                settings.append([name, _without_user(value)])
    for file in (*_configurations_of_pip(), *_configurations_of_uv()[:1]):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        settings.append([file.name, _without_user(text)])
        for value in _PLACES.findall(text):
            named += _named_content(value)
    return settings, named


_WITHOUT_EFFECT = re.compile(
    r"PIP_(NO_)?(CACHE_DIR|COLOR|INPUT)|PIP_(BREAK_SYSTEM_PACKAGES|(CLIENT_)?CERT|CONFIG_FILE|(DEFAULT_)?TIMEOUT|DISABLE_PIP_VERSION_CHECK"
    r"|KEYRING_PROVIDER|LOG|PROGRESS_BAR|PROXY|PYTHON|QUIET|RETRIES|ROOT_USER_ACTION|TRUSTED_HOST|VERBOSE)"
    r"|UV_(CACHE_DIR|COMPILE_BYTECODE|CONCURRENT_.*|CONFIG_FILE|HTTP_.*|INDEX_.*_(USERNAME|PASSWORD)|INSECURE_HOST|KEYRING_PROVIDER|LINK_MODE"
    r"|NATIVE_TLS|NO_CACHE|NO_PROGRESS|OFFLINE|PYTHON(_.*)?|REQUEST_TIMEOUT|RUN_RECURSION_DEPTH|SYSTEM_CERTS|TOOL_.*)"
)
"""Variables that say where packages are cached, how they are fetched and what is shown, or where a file is whose text counts."""
_PLACES = re.compile(
    r"^\s*(?:find-links|(?:build-)?constraints?|overrides?|requirements?|(?:extra-|default-)?index(?:-url)?|url)\s*="
    r"\s*(\[[^\]]*\]|.*(?:\n[ \t]+.*)*)",
    re.MULTILINE,
)
"""Settings of a configuration file that may name files or folders of this machine."""


def _named_content(value: str) -> list[str]:
    """Return digests of the files and folders of this machine that a setting names; of a folder, the list of its files counts."""
    found = []
    for word in filter(None, re.split(r"[\s,\"'\[\]{}]+", value)):
        path = os.path.realpath(_path(word))
        if os.path.isfile(path):  # noqa: PTH113 - a value that is not a path is none
            found.append(Content(["--constraint", path]).digest)
        elif os.path.isdir(path):  # noqa: PTH112
            listed: list[object] = [path]
            for each in sorted(Path(path).iterdir()):
                about = each.lstat()
                listed.append([each.name, about.st_size, about.st_mtime_ns])
            found.append(_digest(listed))
    return found


def _configurations_of_pip() -> list[Path]:
    """Return the paths of the configuration files that pip reads, as far as they exist."""
    named = os.environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:  # pip reads none then
        return []
    user, machine = _folders("XDG_CONFIG_HOME", "~/.config"), _folders("XDG_CONFIG_DIRS", "/etc/xdg")
    home = Path("~").expanduser()
    folders = [*(folder / "pip" for folder in (*machine, *user)), Path("/etc"), home / ".pip", Path(sys.prefix)]
    folders.append(home / "Library" / "Application Support" / "pip")  # macOS
    return [*(folder / "pip.conf" for folder in folders), Path(named or os.devnull)]


def _configurations_of_uv() -> list[Path]:
    """Return the configuration files of which uv reads the first: the named one, the user's, the machine's."""
    named = os.environ.get("UV_CONFIG_FILE")
    if named:
        return [Path(named)]
    if os.environ.get("UV_NO_CONFIG", "").lower() not in ("", "0", "false"):
        return []
    user, machine = _folders("XDG_CONFIG_HOME", "~/.config"), _folders("XDG_CONFIG_DIRS", "/etc/xdg")
    files = [folder / "uv" / "uv.toml" for folder in (*user, *machine, Path("/etc"))]
    return [file for file in files if file.is_file()]


def _folders(variable: str, default: str) -> list[Path]:
    return [Path(each).expanduser() for each in (os.environ.get(variable) or default).split(os.pathsep) if each]


def _configuration_options() -> list[str]:
    """Return the options with which uv reads no configuration of the current folder, the project: environments are shared.

    uv reads one file then: if the user and the machine have one, the user's.
    """
    files = _configurations_of_uv()
    if not files:
        return ["--no-config"]
    return ["--config-file", str(files[0])]


def _run(argv: list[str], variables: Mapping[str, str]) -> int:
    """Run a command, log what it prints and report its downloads; return its exit code."""
    env = {**variables, **os.environ}
    env.pop(BELOW_ENV, None)
    downloads = Downloads()
    try:
        with subprocess.Popen(
            argv, env=env, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as run:
            assert run.stdout
            ended = threading.Event()
            reporter = threading.Thread(target=_report_repeatedly, args=(downloads, ended), daemon=True)
            reporter.start()
            for line in run.stdout:
                sys.stderr.write(line)
                sys.stderr.flush()
                downloads.read(line)
            ended.set()
            reporter.join()
    except OSError as error:
        print(f"{argv[0]}: {error}", file=sys.stderr, flush=True)
        return 127
    return run.returncode


def _report_repeatedly(downloads: Downloads, ended: threading.Event) -> None:
    """Report downloads whenever more of them is there, until the installer has ended."""
    reported = ""
    while not ended.wait(_REPORT_EVERY):
        text = downloads.text
        if text != reported:
            _report(text)
            reported = text
    if reported:
        _report("")


_REPORT_EVERY = 0.5
"""Seconds."""


class Downloads:
    """The downloads of an installer, as far as it announces them. pip makes one at a time, uv several.

    uv unpacks an archive while it downloads it, so what is there of an archive is known of pip's alone.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, float] = {}
        self._done: set[str] = set()
        self._file = ""

    def read(self, line: str) -> None:
        """Read a line of the installer's log."""
        begun = _BEGUN.match(line)
        if begun:
            name, size, unit = begun.groups()
            self._file = ""
            if name.endswith(_ARCHIVES):  # pip
                self._done.update(self._sizes)
                self._file = name.rpartition("/")[2]
                name = self._file.partition("-")[0]
            self._sizes = {**self._sizes, name: float(size) * _UNITS[unit[0].upper()]}
        ended = _ENDED.match(line)
        if ended:
            self._done.add(ended[1])
        if _UNPACKS.match(line):
            self._done.update(self._sizes)

    def _bytes_of_file(self) -> int:
        """Return how much is there of the archive that pip downloads."""
        for file in Path(tempfile.gettempdir()).glob(f"pip-unpack-*/{glob.escape(self._file)}"):
            with suppress(OSError):
                return file.stat().st_size
        return 0

    @property
    def text(self) -> str:
        """Return what is downloaded now, and how much of what was announced is there; empty without a download."""
        sizes, finished = self._sizes, self._done.copy()
        now = [name for name in sizes if name not in finished]
        if not now:
            return ""
        done = sum(size for name, size in sizes.items() if name in finished)
        if self._file:
            done += self._bytes_of_file()
        largest = max(now, key=sizes.__getitem__)
        total = _shown_size(sum(sizes.values()))
        return f"downloading {largest}, {_shown_size(done).removesuffix(total[-3:])} of {total}"


_BEGUN = re.compile(r"\s*Downloading (\S+(?<!\.metadata)) \(([\d.]+) ?([kKMG])i?B\)")
_UNPACKS = re.compile(r"Installing collected packages:")
_ENDED = re.compile(r"\s*Downloaded (\S+)")
_ARCHIVES = (".whl", ".tar.gz", ".zip")
_UNITS = {"K": 1e3, "M": 1e6, "G": 1e9}


def _shown_size(size: float) -> str:
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB"


def _report(text: str) -> None:
    """Write what the installation does at the moment beside the file that reports its end."""
    installed = os.environ.get(INSTALLED_ENV)
    if installed:
        try:
            _write(Path(installed).with_suffix(PROGRESS), text)
        except OSError:
            pass  # the installation goes on without


INSTALLED_ENV = "PULUMI_TRAINER_INSTALLED"
PROGRESS = ".installing"
"""Suffix of the file with the progress of an installation."""


if __name__ == "__main__":
    environments = os.environ.get("PULUMI_TRAINER_ENVIRONMENTS") or "~/.cache/pulumi-trainer/environments"
    variables = layer(sys.argv[1:], Path(environments).expanduser(), _run_of_job())
    installed = os.environ.get(INSTALLED_ENV)
    if installed:
        _write(Path(installed), str(Path(variables["PATH"].split(os.pathsep)[0]).parent))
    print(json.dumps(variables))
