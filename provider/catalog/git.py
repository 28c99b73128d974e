"""A catalogue out of a git repository: its files at one commit, in a folder of the cache.

`git` is called with arguments, never by a shell, and never makes a work tree: no hook, filter or submodule of the repository
runs, no path or link of it is followed. What is taken of a commit are plain files that a catalogue has, each read as a blob. A
commit's folder never changes, so the network is needed for nothing but a look at where a tag or a branch is now, and without
it the commit that `runtimes.lock` has is used.
"""

from __future__ import annotations

import hashlib
import os
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from pulumi_trainer.provider.kube.client.masking import hide_credentials
from pulumi_trainer.provider.kube.errors import Invalid, Problem

LOCK = "runtimes.lock"
"""In the program's folder: a commit, two blanks, URL@REF a line."""
SECONDS = 60.0
MAX_REPOSITORY = 256 * 2**20
"""Bytes that a fetch may write, and that the files of a catalogue may have in all."""
MAX_FILES = 10_000
MAX_FOLDERS = 1_000
MAX_OUTPUT = MAX_REPOSITORY // 4
"""Bytes that one command of git may print: the files of a catalogue, or a listing of one folder."""

_URL = re.compile(
    r"(https://|ssh://|file:///|/|\./|\.\./)[^\s\x00-\x1f]+|[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:[^\s:-][^\s:]*"
)
_REF = re.compile(r"(?!.*(\.\.|//|@\{))[A-Za-z0-9][\w./+-]{0,200}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FOLDER = re.compile(r"[a-z0-9][-.a-z0-9]{0,62}")
_KEPT = re.compile(r"catalogue\.lock|about\.yaml|[a-z0-9][-.a-z0-9]*/\d[\d.-]*\.yaml")
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE",
              "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_TEMPLATE_DIR", "GIT_EXTERNAL_DIFF", "GIT_PREFIX")  # fmt: skip


def shown(url: str) -> str:
    """Return an address for `runtimes.lock` and messages: without the user."""
    return re.sub(r"://[^/\s]*@", "://", str(url))


@cache
def folder(url: str, ref: str) -> Path:
    """Where the files of that commit lie. Raises Invalid."""
    _check(url, ref)
    where = f"{shown(url)}@{ref}"
    if re.match(r"\.{0,2}/", url):
        url = str(Path(url).absolute())
    locked = ref if _COMMIT.fullmatch(ref) else _locks().get(where)
    with tempfile.TemporaryDirectory(prefix="pulumi-trainer-git-") as temporary:
        repository = Path(temporary) / "repository"
        _git(repository, where, "init", "-q", "--bare", "--template=", str(repository))
        commit = locked if locked == ref else _current(repository, where, url, ref, locked)
        assert commit is not None
        kept = Path.home() / ".cache/pulumi-trainer/catalogues" / hashlib.sha256(url.encode()).hexdigest()[:16] / commit
        if not kept.is_dir():
            _fetch(repository, where, url, commit)
            _extract(repository, where, commit, kept)
    if locked is None:
        _lock(where, commit)
    return kept


def _check(url: str, ref: str) -> None:
    safe = hide_credentials(str(url))
    if not isinstance(url, str) or not _URL.fullmatch(url) or "::" in url:
        mend = "it is https://..., ssh://..., user@host:path, file:///... or a folder"
        raise Invalid(Problem(safe, "is no address of a git repository that is taken here", mend))
    if re.match(r"https://.*[@?]|\w+://[^/]*:[^/]*@|ssh://(?:[^@]*:[^@]*@|.*\?)", url):
        mend = "leave user, password and token out; git asks its credential helper, or ssh its agent"
        raise Invalid(Problem(safe, "has credentials in it, which every user of the machine could read", mend))
    if not isinstance(ref, str) or not _REF.fullmatch(ref) or ref.endswith((".lock", "/", ".")):
        raise Invalid(Problem(f"{shown(url)}@{ref}", "is no tag, branch or commit", "a commit is given whole"))


def _current(repository: Path, where: str, url: str, ref: str, locked: str | None) -> str:
    """The commit of a tag or a branch, which must be the locked one; that, where the repository cannot be asked."""
    wanted = [f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}"]
    try:
        said = _git(repository, where, "ls-remote", "-q", "--", url, *wanted).decode(errors="replace")
    except Invalid as error:
        if locked is None:
            raise
        print(f"warning: {error}; its commit {locked[:12]} of {LOCK} is used", file=sys.stderr)  # Pulumi shows it
        return locked
    found = {line.partition("\t")[2]: line.partition("\t")[0] for line in said.splitlines()}
    commit = next((found[name] for name in wanted if name in found), "")
    if not _COMMIT.fullmatch(commit):
        raise Invalid(Problem(where, "the repository has no such tag or branch"))
    if locked not in (None, commit):
        why = f"has moved: {LOCK} has {str(locked)[:12]}, and it is {commit[:12]} now"
        raise Invalid(Problem(where, why, f"if that is meant, remove its line from {LOCK}"))
    return commit


def _fetch(repository: Path, where: str, url: str, commit: str) -> None:
    _git(repository, where, "fetch", "-q", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", url, commit)


def _extract(repository: Path, where: str, commit: str, kept: Path) -> None:
    """The files of a catalogue, and no others. They appear all at once."""
    blobs: list[tuple[str, str]] = []
    total = 0
    for name, mode, blob, size in _listed(repository, where, commit):
        if mode not in ("100644", "100755"):
            raise Invalid(Problem(f"{where}/{name}", "is a link or a submodule, and must be a file"))
        total += int(size)
        blobs.append((blob, name))
        if total > MAX_REPOSITORY // 4 or len(blobs) > MAX_FILES:
            raise Invalid(Problem(where, "is too large for a catalogue"))
    data = _git(repository, where, "cat-file", "--batch", stdin="".join(f"{blob}\n" for blob, _ in blobs).encode())
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=kept.parent))
    try:
        at = 0
        for _, name in blobs:
            head, _, _ = data[at : at + 200].partition(b"\n")
            begin, size_ = at + len(head) + 1, int(head.split()[2])
            file = fresh / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data[begin : begin + size_])
            at = begin + size_ + 1
        fresh.rename(kept)
    except OSError as error:
        if not kept.is_dir():
            raise Invalid(Problem(str(kept), f"cannot be written: {error.strerror or error}")) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _listed(repository: Path, where: str, commit: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, mode, blob and size of what a catalogue has: of the root, and of the folders in it that are called like runtimes.

    Never of all that is below them: folders that hold the same folder many times over make a repository of 24 KiB a listing of
    700 MiB."""
    root = _git(repository, where, "ls-tree", "-z", "--full-tree", commit)
    names = [entry.decode(errors="replace").partition("\t") for entry in root.split(b"\0") if entry]
    folders = [name for about, _, name in names if about.split()[1:2] == ["tree"] and _FOLDER.fullmatch(name)]
    if len(folders) > MAX_FOLDERS:
        raise Invalid(Problem(where, f"is too large for a catalogue: it has more than {MAX_FOLDERS} folders"))
    wanted = ("catalogue.lock", "about.yaml", *(f"{folder}/" for folder in folders))
    listed = _git(repository, where, "ls-tree", "-l", "-z", "--full-tree", commit, "--", *wanted)
    for entry in filter(None, listed.split(b"\0")):
        about, _, name = entry.decode(errors="replace").partition("\t")
        if _KEPT.fullmatch(name):
            mode, _, blob, size = about.split()
            yield name, mode, blob, size


def _git(repository: Path, where: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """What git says. It is ended after `SECONDS`, or when it has written more than a catalogue can have."""
    settings = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "fetch.fsckObjects=true", "gc.auto=0",
                "fetch.unpackLimit=1", "core.bigFileThreshold=1m",
                "protocol.allow=never", "protocol.https.allow=always", "protocol.ssh.allow=always",
                "protocol.file.allow=always")  # fmt: skip
    env = {k: v for k, v in os.environ.items() if k not in _ELSEWHERE and not k.startswith("GIT_CONFIG_")}
    env |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
        "LC_ALL": "C",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }
    env.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    argv = ["git", *(part for s in settings for part in ("-c", s)), f"--git-dir={repository}", *arguments]
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                argv, stdin=given, stdout=pipe, stderr=pipe, env=env, cwd=repository.parent, start_new_session=True
            )
        except FileNotFoundError:
            raise Invalid(Problem(where, "git is not on PATH", "install git")) from None
        with process:
            try:
                out, told, why = _watched(process, repository)
            finally:
                if process.poll() is None:  # it has a session of its own, which Ctrl-C does not reach
                    os.killpg(process.pid, 9)
        if why or process.returncode:
            lines = [line for line in told.decode(errors="replace").splitlines() if line.strip()]
            said = re.sub(r"://\S*@", "://", lines[0][:300] if lines else "git failed")
            raise Invalid(Problem(where, why or f"cannot be fetched: {said}"))
        return out


def _watched(process: subprocess.Popen[bytes], repository: Path) -> tuple[bytes, bytes, str]:
    """What git prints, the beginning of what it complains of, and why it must be ended, if it must."""
    out, told = bytearray(), bytearray()
    deadline = time.monotonic() + SECONDS
    with selectors.DefaultSelector() as outputs:
        for stream, kept in ((process.stdout, out), (process.stderr, told)):
            assert stream is not None
            outputs.register(stream, selectors.EVENT_READ, kept)
        while outputs.get_map():
            for ready, _ in outputs.select(0.2):
                data = os.read(ready.fd, 2**16)
                if not data:
                    outputs.unregister(ready.fileobj)
                elif ready.data is out or len(told) < 2**16:
                    ready.data.extend(data)
            if time.monotonic() > deadline:
                return b"", b"", f"did not come in {SECONDS:.0f} s"
            if len(out) > MAX_OUTPUT:
                return b"", b"", "is too large for a catalogue"
            if _size(repository) > MAX_REPOSITORY:
                return b"", b"", f"is larger than {MAX_REPOSITORY // 2**20} MiB"
    process.wait(max(1.0, deadline - time.monotonic()))
    return bytes(out), bytes(told), ""


def _size(repository: Path) -> int:
    """Bytes of what a fetch has written so far."""
    found = 0
    for pattern in ("*.pack", "tmp_*"):
        for file in repository.rglob(pattern):
            with suppress(FileNotFoundError):
                found += file.stat().st_size
    return found


def _locks() -> dict[str, str]:
    """URL@REF -> commit."""
    try:
        text = Path(LOCK).read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(Problem(LOCK, f"cannot be read: {error}")) from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        commit, _, what = line.partition("  ")
        if not _COMMIT.fullmatch(commit) or not what or what in found:
            raise Invalid(Problem(f"{LOCK}, line {number}", "is no commit, two blanks, URL@REF of its own"))
        found[what] = commit
    return found


def _lock(where: str, commit: str) -> None:
    lines = sorted({**_locks(), where: commit}.items())
    fresh = Path(f".{LOCK}.{os.getpid()}")
    try:
        fresh.write_text("".join(f"{commit}  {what}\n" for what, commit in lines), "utf-8")
        fresh.replace(LOCK)
    except OSError as error:
        raise Invalid(Problem(LOCK, f"cannot be written: {error.strerror or error}")) from None
