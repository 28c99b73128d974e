"""Reads a catalogue: a folder for each runtime, a file for each release, and the digest of each file in `catalogue.lock`.

Files are read when they are needed and are not trusted: a release that has changed since it was locked, anything but a plain
file, and a document of another runtime are refused.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.documents import control_character_problems, parse
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.kubernetes.values.yaml_values import Unreadable, from_yaml
from pulumi_trainer.provider.trainer.catalog.versions import VERSION, by_version
from pulumi_trainer.provider.trainer.labels import RELEASE

LOCK = "catalogue.lock"
ABOUT = "about.yaml"
MAX_FILE = 2**20
"""Bytes of a file: a server accepts no larger object."""

NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
"""A valid name of a runtime: jobs have it as a label."""
_LONGEST_REASON = 200
_LINE = re.compile(r"([0-9a-f]{64})  (\S+/\S+\.yaml)")


@dataclass(frozen=True)
class Deprecation:
    """A deprecated release.

    Args:
        on: The day from which it is no longer offered, such as 2026-12-01; empty if not set.
        successor: The release to use instead, or `name@release` of another runtime; empty if not set.
    """

    of: str
    on: str
    successor: str

    def __str__(self) -> str:
        shown = f"{self.of} is deprecated"
        if self.on:
            shown += f", and no longer offered from {self.on} on"
        if self.successor:
            shown += f"; take {self.successor}"
        return shown

    def is_over(self) -> bool:
        """Return whether the date has passed, so that the release is no longer offered."""
        return bool(self.on) and date.fromisoformat(self.on) <= date.today()

    def warning(self) -> Problem:
        """Return the warning for those who use the release as their `runtime`."""
        if not self.is_over():
            return Problem("runtime", str(self))
        why = f"{self.of} is deprecated and has not been offered since {self.on}"
        hint = "use another release"
        if self.successor:
            hint = f"use {self.successor}"
        return Problem("runtime", why, hint)


@dataclass(frozen=True)
class Withdrawal:
    """A release that nobody should use any more, and which jobs that follow a channel leave, to an older one if need be.

    Args:
        since: The day since which it is withdrawn, such as 2026-12-01; empty if not set.
    """

    of: str
    since: str
    reason: str

    def __str__(self) -> str:
        since = f" since {self.since}" if self.since else ""
        return f"{self.of} is withdrawn{since}: {self.reason}"

    def warning(self) -> Problem:
        """Return the warning for those who use the release as their `runtime`."""
        return Problem("runtime", str(self), "use another release")


class RuntimeCatalog:
    """Runtimes by name and release. `from_dir`, `from_git` and `from_package` return one without reading anything.

    All methods raise Invalid if something is missing or malformed.
    """

    def __init__(self, *given: NoReturn, **named: NoReturn) -> None:
        keywords: Mapping[str, object] = named
        shown = [*map(repr, given), *(f"{name}={value!r}" for name, value in keywords.items())]
        self.source = f"RuntimeCatalog({', '.join(map(_shown, shown))})"
        self._locate: Callable[[], Path] = self._refuse
        self._documents: dict[tuple[str, str], dict[str, Any]] = {}

    def _refuse(self) -> NoReturn:
        hint = "use RuntimeCatalog.from_dir(folder), from_git(url, ref) or from_package(package)"
        raise Invalid(Problem(self.source, "not the location of a catalogue", hint))

    @classmethod
    def _at(cls, locate: Callable[[], Path], source: str) -> RuntimeCatalog:
        made = cls()
        made._locate, made.source = locate, source
        return made

    @classmethod
    def from_dir(cls, folder: str | os.PathLike[str]) -> RuntimeCatalog:
        """Return the catalogue in a folder of this machine.

        Args:
            folder: Path of the folder; a relative one starts at the program's folder.
        """
        return cls._at(lambda: Path(folder).absolute(), _shown(os.fspath(folder)))

    @classmethod
    def from_git(cls, url: str, ref: str) -> RuntimeCatalog:
        """Return the catalogue in the root of a git repository.

        `git` of this machine fetches it, with the user's own credentials, into ~/.cache/pulumi-trainer. The commit of a tag or
        a branch is written into `runtimes.lock` beside the program the first time; one that has moved since is refused.

        Args:
            url: https://, ssh://, user@host:path, or a folder.
            ref: A tag, a branch or a commit.
        """
        from pulumi_trainer.provider.trainer.catalog import git

        return cls._at(lambda: git.catalogue_folder(url, ref), f"{hide_credentials(git.without_user(url))}@{ref}")

    @classmethod
    def from_package(cls, package: str) -> RuntimeCatalog:
        """Return the catalogue in the folder of an installed Python package.

        Args:
            package: Import name of the package, such as `pulumi_trainer.runtimes`.
        """
        return cls._at(lambda: _package(package), _shown(package))

    @cached_property
    def folder(self) -> Path:
        """Return the folder of the catalogue."""
        found = self._locate()
        if not found.is_dir():
            siblings = []
            if found.parent.is_dir():
                siblings = [f.name for f in found.parent.iterdir() if f.is_dir()]
            hint = f"a catalogue has one folder a runtime, one file a release, and {LOCK}"
            raise Invalid(
                Problem(self.source, "is not a folder", did_you_mean(found.name, siblings, hint, cutoff=0.55))
            )
        return found

    def names(self) -> list[str]:
        """Return the names of the runtimes, sorted."""
        return sorted(self._found)

    def releases(self, name: str) -> list[str]:
        """Return the releases of a runtime, the newest last."""
        if name not in self._found:
            raise Invalid(self._unknown("runtime", name, self.names()))
        return list(self._found[name])

    def offered(self, name: str) -> list[str]:
        """Return the releases of a runtime, without those that are withdrawn and deprecated ones whose date has passed."""
        offered = []
        for release in self.releases(name):
            deprecation = self.deprecation(name, release)
            is_over = deprecation is not None and deprecation.is_over()
            if not is_over and self.withdrawal(name, release) is None:
                offered.append(release)
        return offered

    def load(self, name: str, release: str | None = None) -> dict[str, Any]:
        """Return a copy of a release's ClusterTrainingRuntime document.

        Args:
            release: Default: the newest that is not withdrawn.

        Raises:
            Invalid: The runtime or the release is unknown, or its file is not the released one.
        """
        known = self.releases(name)
        if release is not None and release not in known:
            raise Invalid(self._unknown(f"release of {name}", release, self.offered(name)))
        if release is None:
            release = next((each for each in reversed(known) if self.withdrawal(name, each) is None), known[-1])
        key = name, release
        if key not in self._documents:
            self._documents[key] = self._locked(*key)
        return copy.deepcopy(self._documents[key])

    def load_unlocked(self, name: str, release: str) -> dict[str, Any]:
        """Return the document of a release without comparing it with the lock.

        Raises:
            Invalid: The file cannot be read, or its document is not a valid release of that name.
        """
        return _checked(f"{self.source}/{_file(name, release)}", self._bytes(_file(name, release)), name, release)

    def about(self, name: str) -> dict[str, Any]:
        """Return the entry of a runtime in `about.yaml`, such as its `purpose`; {} if not found."""
        self.releases(name)
        found = self._about.get(name)
        if not isinstance(found, dict):
            return {}
        return dict(found)

    def deprecation(self, name: str, release: str) -> Deprecation | None:
        """Return the deprecation of a release; None if it is not deprecated.

        `deprecated` in `about.yaml` maps releases to {date: DATE, successor: RELEASE}. It is not part of a release, as
        it is added later.

        Raises:
            Invalid: The runtime is unknown, or its entry in `about.yaml` is not valid.
        """
        found = self._texts(name, "deprecated", release, date="DATE", successor="RELEASE")
        if found is None:
            return None
        on, successor = found
        where = f"{self.source}/{ABOUT}: {name}.deprecated.{release}"
        other, _, wanted = successor.rpartition("@")
        if successor and wanted not in self._found.get(other or name, ()):
            raise Invalid(Problem(f"{where}.successor", f"{successor!r} is not a release of this catalogue"))
        return Deprecation(f"{name}@{release}", on, successor)

    def withdrawal(self, name: str, release: str) -> Withdrawal | None:
        """Return the withdrawal of a release; None if it is not withdrawn.

        `withdrawn` in `about.yaml` maps releases to {since: DATE, reason: TEXT}.

        Raises:
            Invalid: The runtime is unknown, or its entry in `about.yaml` is not valid.
        """
        found = self._texts(name, "withdrawn", release, since="DATE", reason="TEXT")
        if found is None:
            return None
        since, reason = found
        if not 0 < len(reason) <= _LONGEST_REASON or not reason.isprintable():
            where = f"{self.source}/{ABOUT}: {name}.withdrawn.{release}.reason"
            why = f"must be one line of at most {_LONGEST_REASON} characters"
            raise Invalid(Problem(where, why, "the plans of its jobs show why nobody should use it"))
        return Withdrawal(f"{name}@{release}", since, reason)

    def _texts(self, name: str, entry: str, release: str, **fields: str) -> list[str] | None:
        """Return the texts of an entry about a release, "" for those that are not there; None if there is no entry.

        Args:
            fields: What each text is; the first one is a date.
        """
        found = section(self.about(name), entry).get(release)
        if found is None:
            return None
        where = f"{self.source}/{ABOUT}: {name}.{entry}.{release}"
        form = ", ".join(f"{field}: {what}" for field, what in fields.items())
        if not isinstance(found, dict):
            raise Invalid(Problem(where, f"must be {{{form}}}"))
        texts = [found.get(field, "") for field in fields]
        if not all(isinstance(text, str) for text in texts):
            raise Invalid(Problem(where, f"must be {{{form}}}"))
        try:
            date.fromisoformat(texts[0] or "2000-01-01")
        except ValueError:
            why, hint = f"{texts[0]!r} is not a date", "write it like 2026-12-01"
            raise Invalid(Problem(f"{where}.{next(iter(fields))}", why, hint)) from None
        return texts

    @cached_property
    def lock(self) -> dict[str, str]:
        """Return file name -> digest of the released files."""
        found: dict[str, str] = {}
        for number, line in enumerate(self._text(LOCK).splitlines(), 1):
            match, where = _LINE.fullmatch(line), f"{self.source}/{LOCK}, line {number}"
            if match is None:
                raise Invalid(
                    Problem(where, "not a valid line of sha256sum", "expected: digest, two spaces, NAME/RELEASE.yaml")
                )
            if match[2] in found:
                raise Invalid(Problem(where, f"duplicate entry {match[2]}", "remove the line that is wrong"))
            found[match[2]] = match[1]
        return found

    def digest(self, name: str, release: str) -> str:
        """Return the digest of the current content of a release's file.

        Raises:
            Invalid: The file cannot be read.
        """
        return hashlib.sha256(self._bytes(_file(name, release))).hexdigest()

    def problems(self) -> list[Problem]:
        """Return all problems of the folder, except releases that are not locked."""
        found = []
        files = {_file(*each) for each in self._all()}
        for file in sorted(self.lock):
            if file not in files:
                why, hint = f"is listed in {LOCK}, but its file is missing", f"restore it: git checkout -- {file}"
                found.append(Problem(f"{self.source}/{file}", why, hint))
        for path in sorted(self.folder.glob("*/*.y*ml")):
            is_release = path.suffix == ".yaml" and VERSION.fullmatch(path.stem)
            if NAME.fullmatch(path.parent.name) and not is_release:
                why = f"{path.stem!r} is not a release: X.Y.Z or X.Y.Z-N"
                found.append(Problem(f"{self.source}/{path.parent.name}/{path.name}", why))
            elif is_release and not NAME.fullmatch(path.parent.name):
                found.append(invalid_name(path.parent.name).below(f"{self.source}/{path.parent.name}"))
        found += self._about_problems()
        for name, release in self._all():
            locked = _file(name, release) in self.lock
            try:
                if locked:
                    self.load(name, release)
                else:
                    self.load_unlocked(name, release)
                self.deprecation(name, release)
                self.withdrawal(name, release)
            except Invalid as error:
                found += error.problems
        return found

    def _about_problems(self) -> Iterator[Problem]:
        """Yield the entries of `about.yaml` that are about nothing in this catalogue, and so have no effect."""
        for name, entry in self._about.items():
            where = f"{self.source}/{ABOUT}: {name}"
            if name not in self._found:
                yield self._unknown("runtime", str(name), self.names()).below(where)
            elif not isinstance(entry or {}, dict):
                yield Problem(where, "must be a mapping")
            else:
                for part in ("deprecated", "withdrawn"):
                    yield from self._unknown_releases(name, part, (entry or {}).get(part) or {})

    def _unknown_releases(self, name: str, part: str, releases: object) -> Iterator[Problem]:
        where = f"{self.source}/{ABOUT}: {name}.{part}"
        if not isinstance(releases, dict):
            yield Problem(where, "must be a mapping of releases")
            return
        for release in releases:
            if release not in self._found[name]:
                yield self._unknown(f"release of {name}", str(release), self._found[name]).below(where)

    def unlocked(self) -> list[tuple[str, str]]:
        """Return name and release of all releases that are not locked."""
        return [each for each in self._all() if _file(*each) not in self.lock]

    def _all(self) -> Iterator[tuple[str, str]]:
        """Yield name and release of all releases."""
        for name in self.names():
            for release in self.releases(name):
                yield name, release

    @cached_property
    def _found(self) -> dict[str, list[str]]:
        """Return runtime -> releases in the folder. All names come from this listing, so none can lead out of the folder."""
        found: dict[str, list[str]] = {}
        with os.scandir(self.folder) as folders:
            for folder in folders:
                if not NAME.fullmatch(folder.name) or not folder.is_dir(follow_symlinks=False):
                    continue
                files = os.listdir(folder.path)  # noqa: PTH208
                stems = [name.removesuffix(".yaml") for name in files if name.endswith(".yaml")]
                releases = [stem for stem in stems if VERSION.fullmatch(stem)]
                if releases:
                    found[folder.name] = sorted(releases, key=by_version)
        return found

    @cached_property
    def _about(self) -> dict[str, Any]:
        if not (self.folder / ABOUT).is_file():
            return {}
        where = f"{self.source}/{ABOUT}"
        try:
            values = list(from_yaml(self._text(ABOUT)))
        except (Unreadable, yaml.YAMLError) as error:
            raise Invalid(Problem(where, f"not valid YAML: {error}")) from None
        if len(values) > 1 or not all(isinstance(value, (dict, type(None))) for value in values):
            raise Invalid(Problem(where, "must be one mapping, by names of runtimes"))
        if not values:
            return {}
        return values[0] or {}

    def _locked(self, name: str, release: str) -> dict[str, Any]:
        file = _file(name, release)
        where, data = f"{self.source}/{file}", self._bytes(file)
        if file not in self.lock:
            hint = "`pulumi-trainer runtime check --lock` checks and releases it"
            raise Invalid(Problem(where, f"is not in {LOCK}: it is not released", hint))
        if hashlib.sha256(data).hexdigest() != self.lock[file]:
            why = f"was changed after its release: {LOCK} has another digest"
            raise Invalid(Problem(where, why, "revert the change, and put it into a new release"))
        return _checked(where, data, name, release)

    def _bytes(self, file: str) -> bytes:
        where = f"{self.source}/{file}"
        try:
            number = os.open(
                self.folder / file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
            )  # opening a FIFO would block
            with os.fdopen(number, "rb") as opened:
                if not stat.S_ISREG(os.fstat(number).st_mode):
                    raise Invalid(Problem(where, "not a regular file"))
                data = opened.read(MAX_FILE + 1)
        except OSError as error:
            hint = ""
            if file == LOCK and isinstance(error, FileNotFoundError):
                hint = (
                    f"restore it: git checkout -- {LOCK}; `pulumi-trainer runtime check --lock` creates the first one"
                )
            raise Invalid(Problem(where, f"cannot be read: {error.strerror or error}", hint)) from None
        if len(data) > MAX_FILE:
            raise Invalid(Problem(where, f"is longer than {MAX_FILE // 2**10} KiB"))
        return data

    def _text(self, file: str) -> str:
        try:
            return self._bytes(file).decode()
        except UnicodeDecodeError:
            raise Invalid(Problem(f"{self.source}/{file}", "is not UTF-8")) from None

    def _unknown(self, what: str, given: str, known: Sequence[str]) -> Problem:
        of = f"the catalogue {self.source}"
        if self is BUILT_IN:
            of = "the catalogue"
        return unknown_name(f"{what} of {of}", given, known)


def unknown_name(what: str, given: str, known: Sequence[str]) -> Problem:
    """Return the problem that a name is unknown, with similar names, and all known ones unless they are many."""
    similar = [name for name in known if str(given) and name.startswith(str(given))]
    similar = difflib.get_close_matches(str(given), known, n=3, cutoff=0.55) or similar[:3]
    hint = ""
    if similar:
        hint = f"did you mean {' or '.join(similar)}? "
    if not known:
        hint = "none is available"
    elif not similar or len(known) < 10:
        hint += f"available: {', '.join(known)}"
    return Problem("", f"{str(given)!r} is not a {what}", hint.strip())


def invalid_name(name: str) -> Problem:
    """Return the problem that a name is not valid for a runtime, with a valid one."""
    why = f"{name!r} is not a valid runtime name (expected lower-case letters, digits, '-' and '.', with a letter or a digit at"
    better = re.sub(r"[^-.a-z0-9]+", "-", name.lower()).strip("-.")[:63].rstrip("-.")
    hint = "such as torch-team"
    if better:
        hint = f"write {better}"
    return Problem("", f"{why} both ends, at most 63 characters (RFC 1123))", hint)


def _file(name: str, release: str) -> str:
    return f"{name}/{release}.yaml"


def _checked(where: str, data: bytes, name: str, release: str) -> dict[str, Any]:
    """Return the document of a file, which must have the name and the release of the file."""
    found = [document.content for document in parse(data, where)]
    if len(found) != 1 or found[0]["kind"] != "ClusterTrainingRuntime":
        raise Invalid(Problem(where, "must hold one ClusterTrainingRuntime, and nothing else"))
    hidden = [*control_character_problems(found[0])]
    if hidden:
        raise Invalid(*(replace(p, where=f"{where}: {p.where}") for p in hidden))
    metadata = section(found[0], "metadata")
    if metadata.get("name") != name:
        raise Invalid(Problem(f"{where}: metadata.name", f"must be {name}, like the name of its folder"))
    for part in ("labels", "annotations"):
        if section(metadata, part).get(RELEASE) != release:
            why = f'must have {RELEASE}: "{release}", like the name of the file'
            raise Invalid(Problem(f"{where}: metadata.{part}", why))
    return found[0]


def _shown(location: str) -> str:
    """Return a location without the credentials of a URL, which belongs into `from_git`."""
    if "://" not in location:
        return location
    return hide_credentials(location)


def _package(name: str) -> Path:
    hint = "install it in the program's environment, and give the name that `import` uses"
    try:
        spec = find_spec(name)
    except (ImportError, ValueError) as error:
        why = f"is not a package: {_shown(str(error))}"
        raise Invalid(Problem(_shown(name), why, hint)) from None
    if spec is None or not spec.submodule_search_locations:
        raise Invalid(Problem(_shown(name), "is not a package of this environment", hint))
    return Path(next(iter(spec.submodule_search_locations)))


BUILT_IN = RuntimeCatalog.from_dir(Path(__file__).parents[3] / "runtimes")
"""The catalogue of this package."""
