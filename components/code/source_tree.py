"""The files of a project that travel with a job, their digest, and their archive."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import os
import stat
import sys
import tarfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec
from pulumi_trainer.args import plaintext_secrets
from pulumi_trainer.args.project import is_pattern
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.trainer.catalog import git

MOST_FILES = 20_000
MOST_BYTES = 512 * 2**20
"""Bytes of all files before they are compressed."""

NEVER = (
    ".git/", ".hg/", ".svn/", "__pycache__/", "*.py[co]", ".venv/", "node_modules/", ".ipynb_checkpoints/", ".pytest_cache/",
    ".mypy_cache/", ".ruff_cache/", ".pulumi/", ".pulumi-trainer/", "**/.cache/pulumi-trainer/", "Pulumi.*.yaml", ".DS_Store",
    "*~", ".*.sw[a-p]", ".#*", "\\#*#",
)  # fmt: skip
"""Patterns of files that tools create, which no job needs; the configuration of a stack may contain secrets, too. The last four
are those of Vim and Emacs: a file that is only opened would be another run of its jobs."""

SECRETS = (
    "*.env", ".env.*", "!.env.example", "!example.env", "!*.example.env", ".netrc", ".pypirc", ".npmrc", ".git-credentials",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.ppk", "id_rsa", "id_ed25519", "id_ecdsa", ".ssh/", ".aws/",
    ".kube/", ".config/gcloud/", "kubeconfig", "*.kubeconfig", "kaggle.json", ".envrc",
)  # fmt: skip
"""Patterns of files that contain secrets."""

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MOST_LEVELS = 100
"""Folders in one another."""
_LONGEST_TEXT = 2**20
"""Bytes of the longest file that is searched for secrets, and of the longest `.gitignore`."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a project."""

    content: bytes = field(repr=False)
    executable: bool = False

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class SourceTree:
    """The files of a project.

    Attributes:
        withheld: Paths of files and folders that are left out because they may contain secrets.
        ignored: Paths of files and folders that are left out because of a `.gitignore`.
        links: Paths of links that are left out because the file that they lead to is.
        absent: Paths of submodules that are not checked out.
        unmatched: Patterns of `include` that no file matches.
        storage: Place for an archive that is too large for a ConfigMap; empty: none.
        revision: Revision and commit that the files are of; empty if they are not from a git repository.
        folder: Their folder on this machine; None if they are those of a commit.
    """

    files: Mapping[str, SourceFile]
    withheld: Sequence[str] = ()
    ignored: Sequence[str] = ()
    links: Sequence[str] = ()
    absent: Sequence[str] = ()
    unmatched: Sequence[str] = ()
    storage: str = ""
    revision: str = ""
    folder: Path | None = None

    @cached_property
    def src_packages(self) -> frozenset[str]:
        """Return the packages in the folder `src` of a project with that layout; empty for any other one.

        Modules of `src` that Python has as well would hide these from all code.
        """
        beside = {path.split("/")[1].removesuffix(".py") for path in self.files if path.startswith("src/")}
        packages = frozenset(name for name in beside if f"src/{name}/__init__.py" in self.files)
        if "__init__" in beside or beside & sys.stdlib_module_names:
            return frozenset()
        return packages

    @property
    def lfs_pointers(self) -> list[str]:
        """Return the files that Git LFS has not checked out: each has the address of its content."""
        return [path for path, file in self.files.items() if file.content.startswith(_LFS_POINTER)]

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of paths, modes and contents, which is the same on every machine and with every version of gzip."""
        return _digest(self.files)

    @property
    def most_bytes(self) -> int:
        """Return a bound for the bytes of the archive, whatever the version of gzip: contents, headers and padding."""
        return 20_480 + sum(len(file.content) + 4_096 for file in self.files.values())

    @property
    def address(self) -> str:
        """Return the address of the archive in `storage`."""
        return f"{self.storage.rstrip('/')}/{self.digest}.tar.gz"

    @cached_property
    def archive(self) -> bytes:
        """Return a compressed tar archive without times and owners."""
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path, file in self.files.items():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mode = len(file.content), 0o644
                if file.executable:
                    entry.mode = 0o755
                tar.addfile(entry, io.BytesIO(file.content))
        return gzip.compress(written.getvalue(), compresslevel=6, mtime=0)


def _digest(files: Mapping[str, SourceFile]) -> str:
    found = hashlib.sha256()
    for path, file in files.items():
        found.update(f"{file.digest} {int(file.executable)} {path}\n".encode())
    return found.hexdigest()


def read_tree(
    root: Path, include: Sequence[str] = (), exclude: Sequence[str] = (), *, committed: bool = False
) -> SourceTree:
    """Return the files below a folder, without those that git ignores: named by a `.gitignore` file and not tracked.

    Args:
        include: Patterns of `.gitignore`; only files that match one are taken. Default: all.
        exclude: Patterns of `.gitignore` of further files to leave out.
        committed: Whether all files of the folder are tracked by git.

    Raises:
        Invalid: A file cannot be read, is neither a regular file nor a link to one of the project, contains a secret, or there
            are too many files, or none; or git cannot say which of the files that a `.gitignore` names it tracks.
    """
    if not root.is_dir():
        raise Invalid(Problem("", f"no such folder: {root}", f"paths are relative to {Path.cwd()}"))
    excluded = GitIgnoreSpec.from_lines([*NEVER, *exclude])
    walk = _Walk(root.resolve(), GitIgnoreSpec.from_lines(include), excluded, committed=committed)
    files = dict(sorted(walk.files()))
    if not files:
        raise Invalid(Problem("", f"{root} has no files, or none that .gitignore, include and exclude leave"))
    wrong = [*_plain_secrets(files)]
    if wrong:
        raise Invalid(*wrong)
    absent = sorted(walk.absent_submodules())
    withheld, ignored, links = map(sorted, (walk.withheld, walk.ignored, walk.links))
    found = [*files, *withheld, *ignored, *links]
    unmatched = [pattern for pattern in include if not _matches_any(pattern, found)]
    return SourceTree(files, withheld, ignored, links, absent, unmatched)


def _matches_any(pattern: str, paths: Iterable[str]) -> bool:
    """Return whether a pattern of `.gitignore` matches a path; True for one that takes files out, such as `!docs/`."""
    one = GitIgnoreSpec.from_lines([pattern])
    takes_in = [each for each in one.patterns if each.include]
    return not takes_in or any(map(one.match_file, paths))


@dataclass(frozen=True)
class _IgnoreFile:
    """A `.gitignore` file.

    Attributes:
        above: Path from its folder to the project's, with a slash at the end; empty if it is in the project.
        below: Path from the project's folder to its own, with a slash at the end; empty if it is not in a folder below.
    """

    spec: GitIgnoreSpec
    above: str = ""
    below: str = ""

    def decision(self, path: str) -> bool | None:
        """Return whether it ignores a path of the project; None if it has no pattern for it."""
        return self.spec.check_file(self.above + path.removeprefix(self.below)).include


class _Walk:
    """Reads a folder, with bounds for the number of files and bytes."""

    def __init__(self, root: Path, include: GitIgnoreSpec, exclude: GitIgnoreSpec, *, committed: bool) -> None:
        self.withheld: list[str] = []
        self.ignored: list[str] = []
        self.links: list[str] = []
        self._empty: dict[str, list[str]] = {}
        """Folder of a repository, or "" -> the folders in it that are empty, each with a slash at the end."""
        self._root, self._include, self._exclude, self._committed = root, include, exclude, committed
        self._secrets = GitIgnoreSpec.from_lines(SECRETS)
        self._ignore_files_of: dict[str, Sequence[_IgnoreFile]] = {}
        """Folder -> the `.gitignore` files for what is in it, the nearest last."""
        self._sizes: dict[str, int] = {}
        self._bytes = 0

    def files(self) -> Iterator[tuple[str, SourceFile]]:
        yield from self._folder("")

    def absent_submodules(self) -> Iterator[str]:
        """Yield the submodules that are not checked out; git leaves an empty folder in the place of each."""
        for repository, folders in self._empty.items():
            submodules = git.submodules(self._root / repository)
            for folder in folders:
                if folder.removeprefix(repository).rstrip("/") in submodules:
                    yield _printable(folder)

    def _entries(self, below: str) -> list[os.DirEntry[str]]:
        """Return the entries of a folder by name. below: Its path with a slash at the end."""
        try:
            entries = sorted(os.scandir(self._root / below), key=lambda entry: entry.name)
        except OSError as error:
            shown = _printable(below or str(self._root))
            raise Invalid(Problem("", f"cannot read {shown}: {error.strerror}")) from None
        if below.count("/") > _MOST_LEVELS:
            why = f"{_printable(below[:40])}... is a folder in more than {_MOST_LEVELS} others"
            raise Invalid(Problem("", why, "exclude it"))
        return entries

    def _folder(self, below: str, repository: str = "") -> Iterator[tuple[str, SourceFile]]:
        """Yield the files of a folder.

        Args:
            repository: Path of the nearest folder with a `.git` above, with a slash at the end.
        """
        entries = self._entries(below)
        if any(entry.name == ".git" for entry in entries):
            repository = below
        if not entries and self._is_included(_printable(below)):
            self._empty.setdefault(repository, []).append(below)
        for entry in entries:
            path = below + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder:
                path += "/"
            pattern_path = _printable(path)
            included = self._is_included(pattern_path)
            if self._exclude.match_file(pattern_path) or not (included or is_folder):
                continue
            if self._is_never_taken(entry):
                continue
            if self._is_ignored(path):
                if included:
                    self.ignored.append(pattern_path)
            elif self._secrets.match_file(pattern_path) or (entry.is_symlink() and self._leads_to_secret(path)):
                if included:
                    self.withheld.append(pattern_path)
            elif entry.is_symlink() and self._leads_to_left_out(path):
                if included:
                    self.links.append(pattern_path)
            elif is_folder:
                yield from self._folder(path, repository)
            else:
                if _printable(path) != path:
                    raise Invalid(Problem("", f"{path!r} is not a name in UTF-8", "rename or exclude it"))
                if any(map(_is_control, path)):
                    raise Invalid(Problem("", f"{path!r} has a control character in its name", "rename or exclude it"))
                yield path, self._file(path)

    def _is_never_taken(self, entry: os.DirEntry[str]) -> bool:
        """Return whether an entry is the `.git` file of a worktree or a submodule, a path of this machine, or a lock file that a
        plan writes for the next one."""
        if not entry.is_file(follow_symlinks=False):
            return False
        return entry.name == ".git" or (entry.name in git.LOCKS and Path(entry.path).parent == Path.cwd().resolve())

    def _is_included(self, path: str) -> bool:
        return not self._include.patterns or self._include.match_file(path)

    def _leads_to_secret(self, link: str) -> bool:
        return self._secrets.match_file(_printable(self._target_of(link)))

    def _leads_to_left_out(self, link: str) -> bool:
        """Return whether a link leads to a file or folder of the project that `exclude` or git leaves out, itself or with the
        folder that it is in: by the link, what it contains would travel all the same."""
        target = self._target_of(link)
        if PurePosixPath(target).parts[:1] == ("..",):
            return False  # refused when it is read
        if (self._root / target).is_dir():
            target += "/"
        if self._exclude.match_file(_printable(target)):
            return True
        folders = [f"{folder}/" for folder in reversed(PurePosixPath(target).parents) if folder.name]
        return any(map(self._is_ignored, [*folders, target]))

    def _target_of(self, link: str) -> str:
        """Return the path of the file that a link leads to, from the project's folder."""
        return os.path.relpath(os.path.realpath(self._root / link), self._root)

    def _is_ignored(self, path: str) -> bool:
        """Return whether git ignores a path: the nearest `.gitignore` with a pattern for it does, and git does not track it."""
        for file in reversed(self._ignore_files(_folder_of(path))):
            decision = file.decision(_printable(path))
            if decision is not None:
                return decision and path not in self._tracked
        return False

    def _ignore_files(self, folder: str) -> Sequence[_IgnoreFile]:
        """Return the `.gitignore` files for what is in a folder, the nearest last. folder: Its path with a slash at the end."""
        if self._committed:
            return ()
        if folder not in self._ignore_files_of:
            if folder:
                found = [*self._ignore_files(_folder_of(folder))]
            else:
                found = _ignored_above(self._root)
            file = self._root / folder / ".gitignore"
            if file.is_file():
                found.append(_IgnoreFile(_read_ignore_file(file), below=_printable(folder)))
            self._ignore_files_of[folder] = found
        return self._ignore_files_of[folder]

    @cached_property
    def _tracked(self) -> frozenset[str]:
        """Return the files that git tracks, and the folders above them with a slash at the end."""
        files = git.tracked_files(self._root)
        above = chain.from_iterable(PurePosixPath(file).parents for file in files)
        return files | {f"{folder}/" for folder in above}

    def _file(self, path: str) -> SourceFile:
        file = self._root / path
        try:
            if file.is_symlink() and self._root not in file.resolve(strict=True).parents:
                why = f"{path} is a link that leads out of the project"
                raise Invalid(Problem("", why, "exclude it, or copy the file"))
            found = file.stat()
            if stat.S_ISDIR(found.st_mode):
                raise Invalid(Problem("", f"{path} is a link to a folder", "exclude it, or copy the folder"))
            if not stat.S_ISREG(found.st_mode):
                raise Invalid(Problem("", f"{path} is not a regular file", "exclude it"))
            self._sizes[path] = found.st_size
            self._bytes += found.st_size
            if len(self._sizes) > MOST_FILES or self._bytes > MOST_BYTES:
                hint = "exclude data and build outputs: exclude=[...], or .gitignore"
                raise Invalid(Problem("", self._too_much(), hint))
            return SourceFile(file.read_bytes(), bool(found.st_mode & stat.S_IXUSR))
        except RuntimeError:  # of Python before 3.13
            raise Invalid(Problem("", f"{path} is a link that leads to itself", "exclude it")) from None
        except OSError as error:
            why, hint = f"cannot read {path}: {error.strerror}", ""
            if file.is_symlink():
                hint = "exclude it"
                if isinstance(error, (FileNotFoundError, NotADirectoryError)):
                    where = " of the commit" if self._committed else ""
                    why = f"{path} is a link that leads to no file{where}"
            raise Invalid(Problem("", why, hint)) from None

    def _too_much(self) -> str:
        """Return which limit the project exceeds, and what has most of it among the files that were read so far."""
        if self._bytes > MOST_BYTES:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            size = self._sizes[largest] / 2**20
            return f"has more than {MOST_BYTES // 2**20} MiB, of which {largest} has {size:,.1f} MiB"
        counts = Counter(chain.from_iterable(PurePosixPath(path).parents[:-1] for path in self._sizes))
        why = f"has more than {MOST_FILES:,} files"
        if not counts:
            return why
        # The innermost folder with more than half of them: the folders above have as many, and other files as well.
        most = max(counts, key=lambda each: (counts[each] > MOST_FILES / 2 and len(each.parts), counts[each]))
        return f"{why}, at least {counts[most]:,} of them in {most}"


def _folder_of(path: str) -> str:
    """Return the path of the folder that has a path, with a slash at the end; empty for the folder of the project."""
    folder, slash, _ = path.rstrip("/").rpartition("/")
    return folder + slash


def _printable(path: str) -> str:
    """Return a path with a question mark for each surrogate, which a name that is not UTF-8 has."""
    return path.encode(errors="replace").decode()


def _is_control(character: str) -> bool:
    """Return whether a character ends a line, controls a terminal or turns the direction of text, or is no character at all."""
    kind = unicodedata.category(character)
    return kind in ("Cc", "Cs", "Zl", "Zp") or (kind == "Cf" and unicodedata.bidirectional(character) != "BN")


def _ignored_above(root: Path) -> list[_IgnoreFile]:
    """Return the `.gitignore` files above a folder, up to the root of its repository."""
    if (root / ".git").exists():
        return []
    found: list[_IgnoreFile] = []
    for folder in root.parents:
        if (folder / ".gitignore").is_file():
            above = f"{root.relative_to(folder).as_posix()}/"
            found.append(_IgnoreFile(_read_ignore_file(folder / ".gitignore"), above=above))
        if (folder / ".git").exists():
            return found[::-1]
    return []  # no repository: files above do not belong to the project


def _read_ignore_file(file: Path) -> GitIgnoreSpec:
    """Return the patterns of a `.gitignore` file; as in git, a pattern that is not valid matches nothing."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_LONGEST_TEXT + 1)
    except OSError as error:
        raise Invalid(Problem("", f"cannot read {_printable(str(file))}: {error.strerror}")) from None
    if len(content) > _LONGEST_TEXT:
        raise Invalid(Problem("", f"{_printable(str(file))} has more than {_LONGEST_TEXT:,} bytes"))
    lines = content.decode("utf-8-sig", errors="replace").split("\n")  # as git, which knows no other ends of lines
    return GitIgnoreSpec.from_lines(filter(is_pattern, (line.removesuffix("\r") for line in lines)))


def _plain_secrets(files: Mapping[str, SourceFile]) -> Iterator[Problem]:
    for path, file in files.items():
        encoding = "utf-8"
        if file.content.startswith(_BYTE_ORDER_MARKS):
            encoding = "utf-16"
        elif b"\0" in file.content:
            continue
        if len(file.content) > _LONGEST_TEXT:
            continue
        text = file.content.decode(encoding, errors="replace")
        if not plaintext_secrets.holds_token(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if plaintext_secrets.is_token(line):
                why = f"{path}:{number} holds a plain-text secret, which would travel with the job"
                yield Problem("", why, f'read it from a variable of env, or leave the file out: exclude=["{path}"]')
                break
