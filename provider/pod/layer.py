"""Caches Python environments by Python version and requirements, on top of the interpreter that runs this file; uv installs.

Started by the bootstrap of a container (`python layer.py PACKAGE... [--index-url URL ...]`): installs on the first use,
prints the environment variables that activate the environment as JSON, and logs to stderr. Standard library only.

The interpreter stands for the image of a container: its packages are below the environment, an installation uses those that
fit and installs the others, as pip does in an image. A complete environment of its own would shadow them with other versions
(numpy 2 below a torch built for numpy 1), and install a torch again that is there. During an installation the interpreter's
packages are represented by their metadata alone (`_add_stand_ins`), because uv sees no packages outside the environment that it
changes. Their names and versions are part of the key: what environments have in common, uv links from its cache. A half-built
environment has no record and is removed by the next installation.
"""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's builds without CUDA: a tenth of the size. Used if reachable and the machine has no NVIDIA GPU."""
BELOW_ENV = "PULUMI_TRAINER_BELOW"
"""Variable of a container: the folders with packages of the interpreter below its environment. An environment is shared by
interpreters, so it cannot contain their paths."""
UV_ENV = "PULUMI_TRAINER_UV"
"""Variable of a container: the path of uv. Default: that of the package `uv`, else the one on PATH."""
RECORD = "complete"
"""File of a complete environment: what it was made for. Its time is that of the last use."""
MOST_FILES = 20_000
MOST_BYTES = 1 << 28
"""Limits on the content of a job's local packages that is compared."""


def layer(requirements: list[str], folder: Path, run: str = "") -> dict[str, str]:
    """Return the variables that make packages importable and their programs runnable.

    A set of requirements is installed once for all interpreters with the same packages; an interrupted installation is removed.

    Args:
        run: UID of the job's run, whose Pods have the same environment also after a local package has changed.
    """
    content = Content(requirements)
    packages, settings = _installed(sys.path), _settings()
    folder.mkdir(parents=True, exist_ok=True)
    _check_owner(folder)
    name = _name(content, packages, settings, folder, run)
    home = folder / name
    with _locked(folder / f"{name}.lock"):
        _check_owner(home)
        if not (home / RECORD).exists():
            _build(home, requirements, content, packages, settings)
        (home / RECORD).touch()
    python_path = [_packages(home)]
    path = os.environ.get("PYTHONPATH")
    if path:
        python_path.append(path)
    return {
        "PATH": os.pathsep.join([str(home / "bin"), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(python_path),
        BELOW_ENV: os.pathsep.join(_site_folders()),
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
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), package)
    return found


def read_record(home: Path) -> dict[str, Any] | None:
    """Return the record of an environment; None if it is incomplete."""
    try:
        record = json.loads((home / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict):
        return None
    return record


def _write(file: Path, text: str) -> None:
    """Replace a file atomically."""
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(file)


def _check_owner(place: Path) -> None:
    if place.exists() and place.stat().st_uid != os.getuid():
        sys.exit(f"pulumi-trainer: {place} belongs to another user, whose programs are not run; remove it")


def _name(content: Content, packages: Packages, settings: Mapping[str, str], folder: Path, run: str) -> str:
    """Return the name of the environment. For a run whose packages may change, it is recorded when the run starts."""
    python = [sys.base_prefix, sys.version, sysconfig.get_platform(), _takes_cpu_builds(content.words)]
    below = [[name, package.version] for name, package in sorted(packages.items())]
    decisive = [[name, value] for name, value in sorted(settings.items()) if value and not _WITHOUT_EFFECT.match(name)]
    values = [value for _, value in decisive]
    file = _configuration()
    if file is not None and file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
        decisive.append(["", text])
        values += _QUOTED.findall(text)
    named = _named_content(values)
    key = [*python, below, [[name, _without_user(value)] for name, value in decisive], content.words]
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


_QUOTED = re.compile(r"""["']([^"'\n]+)["']""")


def _digest(key: list[object]) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]


class Content:
    """The content that requirements name besides releases of an index.

    Attributes:
        words: The arguments, with the lines of a file in its place, so that the same requirements are the same words.
        fixed: Whether all content at addresses is immutable, and the local files are few enough to compare.
    """

    def __init__(self, requirements: Iterable[str]) -> None:
        self.words: list[str] = []
        self.listed: list[str] = []
        self.fixed = True
        self._hash = hashlib.sha256()
        self._added: set[Path] = set()
        self._read: set[Path] = set()
        self._files = self._bytes = 0
        self._take_all(requirements, Path())

    @property
    def digest(self) -> str:
        """Return the digest of the packages and folders of this machine that are named; empty without any."""
        if not self._added:
            return ""
        return self._hash.hexdigest()

    @property
    def fingerprint(self) -> str:
        """Return the digest of all that is named on this machine, files of requirements too; empty without any."""
        if not self._added and not self._read:
            return ""
        return _digest([self.words, self.digest])

    def _take_all(self, words: Iterable[str], beside: Path) -> None:
        """Add arguments. beside: folder of their file; most paths are relative to it, others to the current folder."""
        for option, value in _arguments(words):
            if option not in _FILES:
                self.words += filter(None, (option, value))
                self._take(option, value, beside)
            elif _REMOTE.match(value):
                self.words += option, value
                self.fixed = False
            else:
                self._take_file(option, beside / _path(value))

    def _take(self, option: str, value: str, beside: Path) -> None:
        address = _NAMED.sub("", value)
        if option in _INDEXES:
            return
        if option in ("", *_EDITABLE):
            self.listed.append(value)
        if _VCS.match(address):
            self.fixed = self.fixed and bool(_COMMIT.search(address))
        elif _REMOTE.match(address):
            is_archive = _ARCHIVE.search(urlsplit(address).path)
            self.fixed = self.fixed and (not is_archive or bool(_HASH.search(address)))
        elif option in _PATHS or os.sep in address or address.startswith(".") or _LOCAL_ARCHIVE.search(address):
            for base in dict.fromkeys((Path(), beside)):
                place = base / _path(address)
                if self._add(place) and option in _EDITABLE:  # the environment has a link to it
                    self._hash.update(os.path.realpath(place).encode())

    def _take_file(self, option: str, file: Path) -> None:
        """Add the lines of a file of requirements or constraints, once."""
        file = Path(os.path.realpath(file))
        if file in self._read or not file.is_file():
            return
        self._read.add(file)
        text = file.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
        lines = [os.path.expandvars(_COMMENT.sub("", line)).strip() for line in text.splitlines()]
        is_constraint = option[:2] == "-c" or option[:3] == "--c"
        if is_constraint:
            self.words.append("-c")
        for line in filter(None, lines):
            if line.startswith("-"):
                with suppress(ValueError):  # quotes that uv rejects
                    self._take_all(shlex.split(line), file.parent)
            else:
                self.words.append(line)
                self._take("", re.split(r"\s--?\w", line)[0], file.parent)
        if is_constraint:
            self.words.append("-c")

    def _add(self, path: Path) -> bool:
        """Add an existing path and return whether it was new."""
        path = Path(os.path.realpath(path))
        if path in self._added or not path.exists():
            return False
        self._added.add(path)
        for name, file in _files_of(path):
            self._hash.update(repr(name).encode())
            if not file.is_file():
                continue
            self._files += 1
            self._bytes += file.stat().st_size
            if self._files > MOST_FILES or self._bytes > MOST_BYTES:
                self.fixed = False
                break
            self._hash.update(hashlib.sha256(file.read_bytes()).digest())
        return True


def _files_of(top: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of a file, or of all in a folder but what tools create; a folder behind links once."""
    if not top.is_dir():
        yield top.name, top
    seen: set[str] = set()
    for at, folders, names in os.walk(top, followlinks=True):
        below = os.path.relpath(at, top)
        if os.path.realpath(at) in seen:  # a link to a folder
            yield below, Path(at)
            folders[:] = []
            continue
        seen.add(os.path.realpath(at))
        folders[:] = [name for name in sorted(folders) if not _BUILT.match(os.path.normpath(f"{below}/{name}"))]
        for name in sorted(names):
            yield f"{below}/{name}", Path(at, name)


_FILES = ("-r", "--requirement", "-c", "--constraint")
_EDITABLE = ("-e", "--editable")
_PATHS = (*_EDITABLE, "-f", "--find-links")
_NAMED = re.compile(r"^[\w.-]+\s*(\[[^]]*\])?\s*@\s*(?=\S)")
"""The part before the address in `name[extra] @ address`."""
_VCS = re.compile(r"(git|hg|svn|bzr)\+")
_COMMIT = re.compile(r"@[0-9a-f]{40}(?![0-9a-f])")
_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_HASH = re.compile(r"#(.*&)?(sha256|sha384|sha512)=")
_ARCHIVE = re.compile(r"\.(zip|tgz|tbz|tar|tar\.\w+)$", re.IGNORECASE)
"""Archives whose content may change; a wheel has its version in its name."""
_LOCAL_ARCHIVE = re.compile(r"\.(whl|zip|tgz|tbz|tar|tar\.\w+)(\[|$)", re.IGNORECASE)
_COMMENT = re.compile(r"(^|\s)#.*")
_BUILT = re.compile(
    r"(.*/)?(\.git|\.hg|\.svn|\.tox|\.venv|__pycache__|\.\w+_cache|[^/]+\.egg-info)$|build/(lib|bdist)[^/]*$"
)
"""Folders that tools create beside a package's files, such as setuptools' builds."""


def _arguments(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield option and value; the option of a requirement is empty."""
    option = ""
    for word in words:
        if option:
            yield option, word
            option = ""
        elif word in (*_FILES, *_PATHS, *_INDEXES):
            option = word
        elif word.startswith("--"):
            name, _, value = word.partition("=")
            yield name, value
        elif word[:2] in (*_FILES, *_PATHS):
            yield word[:2], word[2:]
        else:
            yield "", word


def _path(address: str) -> Path:
    """Return the path of a local requirement, without its extras and markers."""
    if address.lower().startswith("file:"):
        return Path(unquote(urlsplit(address.partition(";")[0].strip()).path))
    given = address.strip()
    if not os.path.lexists(given):
        given = re.sub(r"(\[[^]]*\])?\s*(;.*)?$", "", given)
    return Path(given)


def _build(
    home: Path, requirements: list[str], content: Content, packages: Packages, settings: Mapping[str, str]
) -> None:
    """Install requirements into a new environment."""
    print("installing", *map(_without_user, requirements), "into", home, file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    words, variables = _with_indexes_in_order(requirements)
    variables = {**settings, **os.environ, **variables}
    variables.pop(BELOW_ENV, None)
    uv, options = _find_uv(), ["--index-strategy", "first-index", "--no-config"]
    file = _configuration()
    if file is not None:
        options[-1:] = ["--config-file", str(file)]
    code = _run([uv, "venv", "--quiet", "--no-project", *options, "--python", sys.executable, str(home)], variables)
    if code:
        sys.exit(code)
    Path(_packages(home), "interpreter-in-use.pth").write_text(_LINK)
    stand_ins = _add_stand_ins(Path(_packages(home)), packages)
    # Without --refresh, uv takes its last build of a folder, unless pyproject.toml has changed since.
    if content.digest or not content.fixed:
        options.append("--refresh")
    if settings.get(_NO_INDEX, "") not in ("", "0", "false"):
        options.append("--no-index")
    argv = [uv, "pip", "install", "--python", str(home / "bin" / "python3"), "--strict", *options, *words]
    code = 1
    if _takes_cpu_builds(content.words) and _is_reachable(f"{CPU_INDEX}/torch/"):
        code = _run([*argv, "--torch-backend", "cpu"], variables)
        if code:
            print("pulumi-trainer: this has failed; now without PyTorch's index", file=sys.stderr, flush=True)
    if code:
        code = _run(argv, variables)
    if code:
        sys.exit(code)
    for each in stand_ins:
        with suppress(OSError):  # uv has replaced it with another version
            if (each / "INSTALLER").read_text(encoding="utf-8") == _STAND_IN:
                shutil.rmtree(each)
    record = {"python": ".".join(map(str, sys.version_info[:3])), "requirements": [*map(_without_user, content.listed)]}
    _write(home / RECORD, json.dumps(record))


def _find_uv() -> str:
    """Return the path of uv."""
    given = os.environ.get(UV_ENV)
    if given:
        return given
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        return str(find_uv_bin())
    return "uv"


def _without_user(word: str) -> str:
    return re.sub(r"://[^/\s]*@", "://", word)


def _with_indexes_in_order(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words without the options of indexes, and variables with which uv tries the indexes in their order.

    Each package comes from the first index that has it, so that no other index can replace it with a higher version of the same
    name. In variables, credentials in addresses are not in the arguments that every user of the machine may read.
    """
    others, named, has_default = list[str](), list[str](), False
    for option, value in _arguments(words):
        if option in _INDEXES[:3]:
            named.append(value)
            has_default = has_default or option != "--extra-index-url"
        else:
            others += filter(None, (option, value))
    found = {}
    if has_default:
        found["UV_DEFAULT_INDEX"] = named.pop()
    if named:
        found["UV_INDEX"] = " ".join(named)
    return others, found


_LINK = f"import os, site; [*map(site.addsitedir, filter(None, os.environ.get('{BELOW_ENV}', '').split(os.pathsep)))]\n"


def _add_stand_ins(folder: Path, packages: Packages) -> list[Path]:
    """Write the metadata of the interpreter's packages into an environment, and return the folders.

    uv takes them for installed. It may remove one in favour of another version: its list of files names nothing else.
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


def _packages(home: Path) -> str:
    return sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)})


def _takes_cpu_builds(words: list[str]) -> bool:
    """Return whether PyTorch's CPU builds are wanted: no NVIDIA GPU, and no index among the requirements."""
    named = any(word.partition("=")[0] in (*_INDEXES, "--no-index", "--torch-backend") for word in words)
    return sys.platform == "linux" and not named and shutil.which("nvidia-smi") is None


_INDEXES = ("-i", "--index-url", "--extra-index-url", "--index", "--default-index")


def _is_reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _settings() -> dict[str, str]:
    """Return the variables of uv, with the settings of pip of the same meaning, which uv does not read."""
    found = {_UV_SETTINGS[name]: value for name, value in _pip_settings().items() if name in _UV_SETTINGS}
    if "UV_FIND_LINKS" in found:
        found["UV_FIND_LINKS"] = ",".join(found["UV_FIND_LINKS"].split())
    return {**found, **{name: value for name, value in os.environ.items() if name.startswith("UV_")}}


def _pip_settings() -> dict[str, str]:
    """Return the settings of pip's files and variables."""
    parser = configparser.RawConfigParser(strict=False)
    found: dict[str, str] = {}
    with suppress(configparser.Error, OSError, UnicodeDecodeError):
        parser.read(_configurations_of_pip(), encoding="utf-8")
    for section in ("global", "install"):
        if parser.has_section(section):
            found.update((name, " ".join(value.split())) for name, value in parser.items(section))
    for name, value in os.environ.items():
        if name.startswith("PIP_") and value:
            found[name[4:].lower().replace("_", "-")] = value
    return found


_NO_INDEX = "UV_NO_INDEX"
_UV_SETTINGS = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": _NO_INDEX,
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "retries": "UV_HTTP_RETRIES",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
"""Setting of pip -> variable of uv with this meaning; options of the requirements precede it."""
_WITHOUT_EFFECT = re.compile(
    r"UV_(CACHE_DIR|CONFIG_FILE|HTTP_.*|INDEX_.*_(USERNAME|PASSWORD)|INSECURE_HOST|LINK_MODE|NATIVE_TLS|NO_CACHE|NO_PROGRESS|OFFLINE)$"
    r"|SSL_CERT_FILE$"
)
"""Variables that say where packages are cached, how they are fetched and what is shown, or where a file is whose text counts."""


def _named_content(texts: Iterable[str]) -> list[str]:
    """Return digests of the files and folders of this machine that settings name; of a folder, the list of its files counts."""
    found = []
    for word in filter(None, re.split(r"[\s,]+", " ".join(texts))):
        path = os.path.realpath(_path(word))
        if os.path.isfile(path):  # noqa: PTH113 - a value that is not a path is none
            found.append(Content(["--constraint", path]).fingerprint)
        elif os.path.isdir(path):  # noqa: PTH112
            listed: list[object] = [path]
            with suppress(OSError):
                for each in sorted(Path(path).iterdir()):
                    about = each.lstat()
                    listed.append([each.name, about.st_size, about.st_mtime_ns])
            found.append(_digest(listed))
    return found


def _configurations_of_pip() -> list[Path]:
    """Return the paths of the configuration files that pip reads, the last one first in rank."""
    named = os.environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:  # pip reads none then
        return []
    machine, user = _folders("XDG_CONFIG_DIRS", "/etc/xdg"), _folders("XDG_CONFIG_HOME", "~/.config")
    home = Path("~").expanduser()
    folders = [*(folder / "pip" for folder in machine), Path("/etc"), home / ".pip"]
    folders += [home / "Library" / "Application Support" / "pip"]  # macOS
    folders += [*(folder / "pip" for folder in user), Path(sys.prefix)]
    return [*(folder / "pip.conf" for folder in folders), Path(named or os.devnull)]


def _configuration() -> Path | None:
    """Return the configuration file that uv reads: the named one, the user's, the machine's; None without one.

    uv reads none of the current folder, the project: environments are shared.
    """
    named = os.environ.get("UV_CONFIG_FILE")
    if named:
        return Path(named)
    if os.environ.get("UV_NO_CONFIG", "").lower() not in ("", "0", "false"):
        return None
    user, machine = _folders("XDG_CONFIG_HOME", "~/.config"), _folders("XDG_CONFIG_DIRS", "/etc/xdg")
    files = [folder / "uv" / "uv.toml" for folder in (*user, *machine, Path("/etc"))]
    return next((file for file in files if file.is_file()), None)


def _folders(variable: str, default: str) -> list[Path]:
    return [Path(each).expanduser() for each in (os.environ.get(variable) or default).split(os.pathsep) if each]


def _run(argv: list[str], variables: Mapping[str, str]) -> int:
    """Run a command, log what it prints and report its downloads; return its exit code."""
    downloads, reported = Downloads(), ""
    try:
        with subprocess.Popen(
            argv, env=variables, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as run:
            assert run.stdout
            for line in run.stdout:
                sys.stderr.write(line)
                sys.stderr.flush()
                downloads.read(line)
                if downloads.text != reported:
                    reported = downloads.text
                    _report(reported)
    except OSError as error:
        print(f"{argv[0]}: {error}", file=sys.stderr, flush=True)
        return 127
    if reported:
        _report("")
    return run.returncode


class Downloads:
    """The downloads of uv, as far as it announces them: those of large packages, several at a time.

    uv unpacks an archive while it downloads it, so only the finished ones count.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, float] = {}
        self._done: set[str] = set()

    def read(self, line: str) -> None:
        """Note a download that a line of uv's log begins or ends."""
        begun = _BEGUN.match(line)
        if begun:
            name, size, unit = begun.groups()
            self._sizes[name] = float(size) * _UNITS[unit]
        ended = _ENDED.match(line)
        if ended:
            self._done.add(ended[1])

    @property
    def text(self) -> str:
        """Return what is downloaded now, and how much of what was announced is there; empty without a download."""
        now = [name for name in self._sizes if name not in self._done]
        if not now:
            return ""
        done = sum(size for name, size in self._sizes.items() if name in self._done)
        largest = max(now, key=self._sizes.__getitem__)
        total = _shown_size(sum(self._sizes.values()))
        return f"downloading {largest}, {_shown_size(done).removesuffix(total[-3:])} of {total}"


_BEGUN = re.compile(r"\s*Downloading (\S+) \(([\d.]+)([KMG])iB\)")
_ENDED = re.compile(r"\s*Downloaded (\S+)")
_UNITS = {"K": 1e3, "M": 1e6, "G": 1e9}


def _shown_size(size: float) -> str:
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB"


def _report(text: str) -> None:
    """Write what the installation does at the moment beside the file that reports its end."""
    installed = os.environ.get(INSTALLED_ENV)
    if installed:
        with suppress(OSError):  # the installation goes on without
            _write(Path(installed).with_suffix(PROGRESS), text)


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
