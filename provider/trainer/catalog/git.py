"""Fetches catalogues and projects from git repositories: the files of one commit, in a folder of the cache.

`git` is called without a shell and never creates a work tree: hooks, filters and submodules of the repository do not run, and its
paths and links are not followed. Only plain files are taken from a commit, each read as a blob; a link of a project becomes
a copy of the file of the same commit that it names. Other links of a project become links that stay in the folder: to the folder
of the commit that they name, or to `NOWHERE`, so that only what a project takes is refused. A commit's folder never changes, so
the network is only needed to resolve a tag or a branch; offline, the commit in `runtimes.lock` is used.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath

from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.machine.user_cache import cache_folder

LOCK = "runtimes.lock"
"""In the program's folder: a commit, two blanks, URL@REF a line."""
SECONDS = 60.0
MAX_REPOSITORY = 256 * 2**20
"""Bytes that a fetch may write, and that the files of a catalogue may have in all."""
MAX_FILES = 10_000
_LINK = "120000"
"""Mode of a link in git."""
_SUBMODULE = "160000"
"""Mode of a submodule in git."""
_MOST_LINKS = 10
"""Links that lead to one another."""
_OF_A_CLONE = "give path= of a clone instead"
NOWHERE = ".leads-to-no-file-of-the-commit"
"""Where a link of a project leads that names neither a file nor a folder of the commit."""
MAX_OUTPUT = MAX_REPOSITORY // 4
"""Bytes that one command of git may print: the files of a catalogue, or a listing of a commit."""


_URL = re.compile(
    r"(https://|ssh://|file:///|/|\./|\.\./)[^\s\x00-\x1f]+|[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:[^\s:-][^\s:]*"
)
_REF = re.compile(r"(?!.*(\.\.|//|@\{))[A-Za-z0-9][\w./+-]{0,200}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_WITHOUT_NAME = re.compile(r"HEAD|[0-9a-f]{4,39}")
"""Commits for git in a clone, which a server knows by their full hashes alone."""
_KEPT = re.compile(r"catalogue\.lock|about\.yaml|[a-z0-9][-.a-z0-9]{0,62}/\d[\d.-]*\.yaml")
"""The files of a catalogue."""
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE",
              "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_TEMPLATE_DIR", "GIT_EXTERNAL_DIFF", "GIT_PREFIX")  # fmt: skip


class InvalidRef(Invalid):
    """A tag, branch or commit that is not valid, that the repository does not have, or that has moved."""


def without_user(url: str) -> str:
    """Return the address of a repository without its user, for `runtimes.lock` and messages."""
    return re.sub(r"://[^/\s]*@", "://", str(url))


@dataclass(frozen=True)
class _Wanted:
    """Which files of a commit are extracted.

    Attributes:
        what: Name of the content in messages: catalogue or project.
        lock: File in the program's folder with the commits of tags and branches.
    """

    what: str
    folder: str
    lock: str


_CATALOGUE = _Wanted("catalogue", "catalogues", LOCK)
_PROJECT = _Wanted("project", "projects", "sources.lock")

LOCKS = (_CATALOGUE.lock, _PROJECT.lock)
"""Lock files in the program's folder."""


CACHED = (_CATALOGUE.folder, _PROJECT.folder)


def cached(folder: str) -> Path:
    """Return one of the folders `CACHED`: a folder for each repository, with a folder for each commit."""
    return cache_folder() / folder


def catalogue_folder(url: str, ref: str) -> Path:
    """Return the folder with the files of a catalogue at a commit."""
    return _folder(url, ref, _CATALOGUE)


def project_folder(url: str, ref: str) -> Path:
    """Return the folder with all files of a project at a commit.

    Raises:
        InvalidRef: The ref is not valid, or not one of the repository.
        Invalid: The address is not valid, or the repository cannot be fetched.
    """
    return _folder(url, ref, _PROJECT)


@cache
def _folder(url: str, ref: str, wanted: _Wanted) -> Path:
    _check(url, ref)
    where = f"{without_user(url)}@{ref}"
    if re.match(r"\.{0,2}/", url):
        url = str(Path(url).absolute())
    if _COMMIT.fullmatch(ref):
        locked: str | None = ref
    else:
        locked = _locks(wanted.lock).get(where)
    with tempfile.TemporaryDirectory(prefix="pulumi-trainer-git-") as temporary:
        repository = Path(temporary) / "repository"
        _git(repository, where, "init", "-q", "--bare", "--template=", str(repository))
        if locked == ref:
            commit = ref
        else:
            commit = _current(repository, where, url, ref, locked, wanted.lock)
        of_repository = hashlib.sha256(url.encode()).hexdigest()[:16]
        kept = cached(wanted.folder) / of_repository / commit
        with suppress(OSError):
            os.utime(kept)  # its time is that of the last use, for `cache prune`
        if not kept.is_dir():
            _fetch(repository, where, url, commit)
            _extract(repository, where, commit, kept, wanted)
    if locked is None:
        _lock(where, commit, wanted.lock)
    return kept


def _check(url: str, ref: str) -> None:
    safe = hide_credentials(str(url))
    if not isinstance(url, str) or not _URL.fullmatch(url) or "::" in url:
        hint = "expected: https://..., ssh://..., user@host:path, file:///..., or a folder as /PATH, ./PATH or ../PATH"
        raise Invalid(Problem(safe, "not a valid address of a git repository", hint))
    if re.match(r"https://.*[@?]|\w+://[^/]*:[^/]*@|ssh://(?:[^@]*:[^@]*@|.*\?)", url):
        hint = "leave user, password and token out; git asks its credential helper, or ssh its agent"
        raise Invalid(Problem(safe, "has credentials in it, which every user of the machine could read", hint))
    if not isinstance(ref, str) or not _REF.fullmatch(ref) or ref.endswith((".lock", "/", ".")):
        hint = "expected for example v1.2, main, or 40 hexadecimal digits"
        raise InvalidRef(Problem(f"{without_user(url)}@{ref}", "not a valid tag, branch or full commit hash", hint))


def _current(repository: Path, where: str, url: str, ref: str, locked: str | None, lock: str) -> str:
    """Return the commit of a tag or a branch, which must be the locked one; offline, the locked commit."""
    refs = [f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}"]
    try:
        output = _git(repository, where, "ls-remote", "-q", "--", url, *refs).decode(errors="replace")
    except Invalid as error:
        if locked is None:
            raise
        print_line(f"warning: {error}; commit {locked[:12]} from {lock} is used", error=True)  # Pulumi shows it
        return locked
    found = {line.partition("\t")[2]: line.partition("\t")[0] for line in output.splitlines()}
    commit = next((found[name] for name in refs if name in found), "")
    if not _COMMIT.fullmatch(commit):
        hint = "git ls-remote lists its tags and branches"
        if _WITHOUT_NAME.fullmatch(ref):
            hint = f"give the full commit hash, which git rev-parse {ref} prints"
        raise InvalidRef(Problem(where, "the repository has no such tag or branch", hint))
    if locked not in (None, commit):
        why = f"has moved: {lock} pins commit {str(locked)[:12]}, but the tag or branch is at {commit[:12]} now"
        raise InvalidRef(Problem(where, why, f"to accept the new commit, remove its line from {lock}"))
    return commit


def _fetch(repository: Path, where: str, url: str, commit: str) -> None:
    try:
        _git(repository, where, "fetch", "-q", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", url, commit)
    except Invalid as error:
        if any("not our ref" in problem.why for problem in error.problems):
            raise InvalidRef(Problem(where, f"the repository has no commit {commit}")) from None
        raise


def _extract(repository: Path, where: str, commit: str, kept: Path, wanted: _Wanted) -> None:
    """Write only the wanted files, into a folder that is renamed to its final path at the end."""
    blobs: list[tuple[str, str, str]] = []
    total = 0
    too_large = Problem(where, f"is too large for a {wanted.what}")
    hint = _OF_A_CLONE if wanted is _PROJECT else ""
    for name, mode, blob, size in _listed(repository, where, commit):
        if wanted is _CATALOGUE and not _KEPT.fullmatch(name):
            continue
        if mode not in ("100644", "100755") and not (mode == _LINK and wanted is _PROJECT):
            raise Invalid(Problem(f"{where}/{name}", "must be a file, not a link or a submodule", hint))
        total += int(size)
        blobs.append((blob, name, mode))
        if total > MAX_REPOSITORY // 4 or len(blobs) > MAX_FILES:
            raise Invalid(too_large)
    requests = "".join(f"{blob}\n" for blob, _, _ in blobs)
    data = _git(repository, where, "cat-file", "--batch", stdin=requests.encode())
    files: dict[str, tuple[str, bytes]] = {}
    at = 0
    for _, name, mode in blobs:
        head, _, _ = data[at : at + 200].partition(b"\n")
        begin, size_ = at + len(head) + 1, int(head.split()[2])
        files[name] = mode, data[begin : begin + size_]
        at = begin + size_ + 1
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=kept.parent))
    try:
        total = 0
        links: dict[str, str] = {}
        for name in files:
            path = _end_of_links(name, files)
            if path not in files:
                links[name] = path
                continue
            mode, content = files[path]
            total += len(content)
            if total > MAX_REPOSITORY // 4:  # many links to one file
                raise Invalid(too_large)
            file = fresh / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(int(mode[3:], 8))
        _write_links(fresh, links, files)
        os.sync()  # else a power failure can leave files without content in a folder that is kept
        fresh.rename(kept)
    except OSError as error:
        if not kept.is_dir():
            raise Invalid(Problem(str(kept), f"cannot be written: {error.strerror or error}")) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _end_of_links(name: str, files: Mapping[str, tuple[str, bytes]]) -> str:
    """Return the path of a file of a commit; of a link, the path that it leads to through other links, which need not exist."""
    path = name
    for _ in range(_MOST_LINKS):
        if path not in files:
            return path
        mode, content = files[path]
        if mode != _LINK:
            return path
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(content)))
    return ""


def _write_links(fresh: Path, links: Mapping[str, str], files: Iterable[str]) -> None:
    """Write links to folders of a commit, and links to `NOWHERE` in place of all others.

    They are written after all files, so that no file is written through one.
    """
    folders = {"."}
    for file in {*files} - {*links}:
        folders.update(map(str, PurePosixPath(file).parents))
    for name, path in links.items():
        target = NOWHERE
        if path in folders:
            target = posixpath.relpath(path, posixpath.dirname(name) or ".")
        link = fresh / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _listed(repository: Path, where: str, commit: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, mode, blob and size of all files of a commit. git's output is limited, for a hostile commit."""
    listed = _git(repository, where, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
    for entry in filter(None, listed.split(b"\0")):
        about, _, name = os.fsdecode(entry).partition("\t")  # names are bytes, and need not be UTF-8
        mode, _, blob, size = about.split()
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or ".git" in path.parts:
            raise Invalid(Problem(where, f"has a file {name!r}, which leads out of it"))
        yield name, mode, blob, size


def _git(repository: Path, where: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """Return what git prints. git is killed after `SECONDS`, or if it writes more than a catalogue can have."""
    argv = [*_command(), f"--git-dir={repository}", *arguments]
    protocols = "none"
    if arguments[0] in ("ls-remote", "fetch"):
        protocols = "https:ssh:file"
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                argv,
                stdin=given,
                stdout=pipe,
                stderr=pipe,
                env=_environment(protocols),
                cwd=repository.parent,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Invalid(Problem(where, "git is not on PATH", "install git")) from None
        with process:
            try:
                out, errors, why = _read_output(process, repository)
            finally:
                if process.poll() is None:  # Ctrl-C does not reach its session
                    os.killpg(process.pid, 9)
        if why or process.returncode:
            lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
            message = "git failed"
            if lines:
                message = re.sub(r"://\S*@", "://", lines[0][:300])
            raise Invalid(Problem(where, why or f"cannot be fetched: {message}"))
        return out


def tracked_files(folder: Path) -> frozenset[str]:
    """Return the files below a folder that git tracks, relative to it; none if the folder is not in a repository."""
    return frozenset(_listed_files(folder))


def submodules(folder: Path) -> frozenset[str]:
    """Return the submodules below a folder, relative to it; none if git cannot be asked or there is no repository."""
    try:
        entries = [entry.partition("\t") for entry in _listed_files(folder, "--stage")]
    except Invalid:
        return frozenset()
    return frozenset(name for about, _, name in entries if about.startswith(_SUBMODULE))


def _listed_files(folder: Path, *options: str) -> list[str]:
    return _answer(folder, "ls-files", "-z", *options)


def _answer(folder: Path, *words: str) -> list[str]:
    """Return what git prints about the repository that a folder is in, as texts between null characters; empty without one."""
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return []
    argv = [*_command(), "-C", str(folder), *words]
    try:
        done = subprocess.run(argv, env=_environment("none"), capture_output=True, timeout=SECONDS, check=False)
    except OSError:
        raise _not_listed("git is not on PATH, or cannot be started", "install git") from None
    except subprocess.TimeoutExpired:
        raise _not_listed(f"git did not answer within {SECONDS:.0f} s") from None
    lines = done.stderr.decode(errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("error: ")]  # a folder that git cannot read does not fail it
    if done.returncode or errors:
        of_git = [line.strip() for line in lines if "git config" in line]  # for a repository of another user
        raise _not_listed([*errors, *lines, f"exit code {done.returncode}"][0], *of_git)
    return [*map(os.fsdecode, filter(None, done.stdout.split(b"\0")))]


@cache
def describe_commit(folder: Path) -> str:
    """Return the commit that a folder of a repository is at, followed by `(with changes)` if files below it differ from that
    commit, or by `(changes unknown)`; empty if there is no commit or git cannot be asked.

    No command of git reads the files, since filters that the repository configures would run.
    """
    try:
        commit = "".join(_answer(folder, "rev-parse", "--verify", "HEAD")).strip()
        entries = (
            _answer(folder, "ls-tree", "-r", "-z", "--long", "HEAD", "--", ".") if _COMMIT.fullmatch(commit) else []
        )
        is_changed = bool(_listed_files(folder, "--others", "--exclude-standard")) or _differs(folder, entries)
    except Invalid:
        return ""
    if not _COMMIT.fullmatch(commit):
        return ""
    about = {True: " (with changes)", False: "", None: " (changes unknown)"}[is_changed]
    return f"{commit[:12]}{about}"


def _differs(folder: Path, entries: Iterable[str]) -> bool | None:
    """Return whether files differ from the entries of a commit; None if there are too many to compare."""
    read = 0
    for number, entry in enumerate(entries):
        about, _, name = entry.partition("\t")
        mode, _, digest, size = about.split()
        if mode in (_LINK, _SUBMODULE):
            continue
        file = folder / name
        if not file.is_file() or file.stat().st_size != int(size):
            return True
        read += int(size)
        if number >= MAX_FILES or read > MAX_OUTPUT:
            return None
        content = file.read_bytes()
        made = hashlib.sha1 if len(digest) == 40 else hashlib.sha256
        if made(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() != digest:
            return True
    return False


def _not_listed(why: str, *hints: str) -> Invalid:
    what = "git cannot list the files that it tracks, which travel although a .gitignore names them"
    return Invalid(Problem("", f"{what}: {why}", ", or ".join([*hints, "exclude what each .gitignore names"])))


def _command() -> list[str]:
    """Return git with settings that keep a repository from running commands of its own. A bare repository that is a folder of
    another one, and so arrives with a clone of it, counts only if it is named.
    """
    settings = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "fetch.fsckObjects=true", "gc.auto=0",
                "fetch.unpackLimit=1", "core.bigFileThreshold=1m", "safe.bareRepository=explicit")  # fmt: skip
    return ["git", *chain.from_iterable(("-c", setting) for setting in settings)]


def _environment(protocols: str) -> dict[str, str]:
    """Return the environment of git, without variables that lead to another repository.

    Args:
        protocols: Names of the protocols by which git may fetch, with colons between them; `none` for no protocol. A repository
            names programs for some of them, which git would also start for objects that the repository lacks.
    """
    env = {k: v for k, v in os.environ.items() if k not in _ELSEWHERE and not k.startswith("GIT_CONFIG_")}
    env |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }
    env.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    return env


def _read_output(process: subprocess.Popen[bytes], repository: Path) -> tuple[bytes, bytes, str]:
    """Return git's stdout, the beginning of its stderr, and why it must be killed; empty if it has exited."""
    out, errors = bytearray(), bytearray()
    deadline = time.monotonic() + SECONDS
    with selectors.DefaultSelector() as outputs:
        for stream, kept in ((process.stdout, out), (process.stderr, errors)):
            assert stream is not None
            outputs.register(stream, selectors.EVENT_READ, kept)
        while outputs.get_map():
            for ready, _ in outputs.select(0.2):
                data = os.read(ready.fd, 2**16)
                if not data:
                    outputs.unregister(ready.fileobj)
                elif ready.data is out or len(errors) < 2**16:
                    ready.data.extend(data)
            if time.monotonic() > deadline:
                return b"", b"", f"did not arrive within {SECONDS:.0f} s"
            if len(out) > MAX_OUTPUT:
                return b"", b"", "is too large"
            if _size(repository) > MAX_REPOSITORY:
                return b"", b"", f"is larger than {MAX_REPOSITORY // 2**20} MiB"
    process.wait(max(1.0, deadline - time.monotonic()))
    return bytes(out), bytes(errors), ""


def _size(repository: Path) -> int:
    """Return how many bytes a fetch has written so far."""
    found = 0
    for pattern in ("*.pack", "tmp_*"):
        for file in repository.rglob(pattern):
            with suppress(FileNotFoundError):
                found += file.stat().st_size
    return found


def _locks(lock: str) -> dict[str, str]:
    """Return the locked commits by URL@REF."""
    try:
        text = Path(lock).read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(Problem(lock, f"cannot be read: {error}")) from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        commit, _, what = line.partition("  ")
        if not _COMMIT.fullmatch(commit) or not what or what in found:
            raise Invalid(
                Problem(f"{lock}, line {number}", "must be a commit, two blanks and a URL@REF that no other line has")
            )
        found[what] = commit
    return found


def _lock(where: str, commit: str, lock: str) -> None:
    lines = sorted({**_locks(lock), where: commit}.items())
    try:
        replace_file(Path(lock), "".join(f"{commit}  {what}\n" for what, commit in lines).encode())
    except OSError as error:
        raise Invalid(Problem(lock, f"cannot be written: {error.strerror or error}")) from None
