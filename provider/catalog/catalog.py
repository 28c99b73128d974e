"""A catalogue in a folder: one folder a runtime, one file a release, and the digest of each file in `catalogue.lock`.

`RuntimeCatalog` is what programs and commands hold; the built-in catalogue is one too. Nothing is read before somebody asks for
it, and nothing of a folder is trusted: a release that has changed since it was locked, what is no plain file, a document that is
another runtime's are refused.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.api.labels import RELEASE
from pulumi_trainer.provider.api.versions import VERSION, by_version
from pulumi_trainer.provider.kube.client.masking import hide_credentials
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.documents import control_character_problems, parsed
from pulumi_trainer.provider.kube.values.yaml_values import Unreadable, from_yaml

LOCK = "catalogue.lock"
ABOUT = "about.yaml"
MAX_FILE = 2**20
"""Bytes of a file: a server takes no larger object."""

NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
"""Of a runtime: jobs carry it as a label."""
_LINE = re.compile(r"([0-9a-f]{64})  (\S+/\S+\.yaml)")


@dataclass(frozen=True)
class Deprecation:
    """of: the release, `name@release`. on: the day from which it is not offered any more, such as 2026-12-01. successor: the
    release to take instead, or `name@release` of another runtime; empty: none is named."""

    of: str
    on: str
    successor: str

    def __str__(self) -> str:
        when = f"deprecated, and not offered any more from {self.on} on" if self.on else "deprecated"
        return f"{self.of} is {when}" + (f"; take {self.successor}" if self.successor else "")


class RuntimeCatalog:
    """Runtimes by name and release. Made by `from_dir`, `from_git` and `from_package`, none of which reads anything.

    All methods raise Invalid for what is not there or not as it must be. source: what errors call it.
    """

    def __init__(self, folder: Callable[[], Path], source: str) -> None:
        self._located = folder
        self.source = source
        self._documents: dict[tuple[str, str], dict[str, Any]] = {}

    @classmethod
    def from_dir(cls, folder: str | os.PathLike[str]) -> RuntimeCatalog:
        """A folder of this machine; a relative one is below the program's."""
        return cls(lambda: Path(folder).absolute(), os.fspath(folder))

    @classmethod
    def from_git(cls, url: str, ref: str) -> RuntimeCatalog:
        """The root of a git repository at a tag, a branch or a commit. url: https://, ssh://, user@host:path, or a folder.

        `git` of this machine fetches it, with the user's own credentials, into ~/.cache/pulumi-trainer. The commit of a tag or
        a branch is written into `runtimes.lock` beside the program the first time; one that has moved since is refused.
        """
        from pulumi_trainer.provider.catalog import git

        return cls(lambda: git.folder(url, ref), f"{hide_credentials(git.shown(url))}@{ref}")

    @classmethod
    def from_package(cls, package: str) -> RuntimeCatalog:
        """The folder of an installed Python package, by its import name."""
        return cls(lambda: _package(package), package)

    @cached_property
    def folder(self) -> Path:
        """Where it lies."""
        found = self._located()
        if not found.is_dir():
            beside = [f.name for f in found.parent.iterdir() if f.is_dir()] if found.parent.is_dir() else []
            mend = f"{_near(found.name, beside)}a catalogue has one folder a runtime, one file a release, and {LOCK}"
            raise Invalid(Problem(self.source, "is no folder", mend))
        return found

    def names(self) -> list[str]:
        """Its runtimes, sorted."""
        return sorted(self._found)

    def releases(self, name: str) -> list[str]:
        """The releases of a runtime, the newest last."""
        if name not in self._found:
            raise Invalid(self._unknown("runtime", name, self.names()))
        return list(self._found[name])

    def load(self, name: str, release: str | None = None) -> dict[str, Any]:
        """A ClusterTrainingRuntime document of one's own; release: the newest if None."""
        known = self.releases(name)
        if release is not None and release not in known:
            raise Invalid(self._unknown(f"release of {name}", release, known))
        key = name, release or known[-1]
        if key not in self._documents:
            self._documents[key] = self._locked(*key)
        return copy.deepcopy(self._documents[key])

    def draft(self, name: str, release: str) -> dict[str, Any]:
        """As `load`, of a release that need not be locked yet."""
        return _checked(f"{self.source}/{_file(name, release)}", self._bytes(_file(name, release)), name, release)

    def about(self, name: str) -> dict[str, Any]:
        """What `about.yaml` says of a runtime, such as its `purpose`."""
        self.releases(name)
        found = self._about.get(name)
        return dict(found) if isinstance(found, dict) else {}

    def deprecation(self, name: str, release: str) -> Deprecation | None:
        """From `deprecated` in `about.yaml`: release -> {date: DATE, successor: RELEASE}. No part of a release, so that it can be
        said later."""
        given = self.about(name).get("deprecated")
        found = given.get(release) if isinstance(given, dict) else None
        if found is None:
            return None
        where = f"{self.source}/{ABOUT}: {name}.deprecated.{release}"
        on, successor = (found.get("date", ""), found.get("successor", "")) if isinstance(found, dict) else (None, None)
        if not isinstance(on, str) or not isinstance(successor, str):
            raise Invalid(Problem(where, "must be {date: DATE, successor: RELEASE}"))
        try:
            date.fromisoformat(on or "2000-01-01")
        except ValueError:
            raise Invalid(Problem(f"{where}.date", f"{on!r} is no date", "write it like 2026-12-01")) from None
        other, _, wanted = successor.rpartition("@")
        if successor and wanted not in self._found.get(other or name, ()):
            raise Invalid(Problem(f"{where}.successor", f"{successor!r} is no release of this catalogue"))
        return Deprecation(f"{name}@{release}", on, successor)

    @cached_property
    def lock(self) -> dict[str, str]:
        """File -> digest, of all releases that must not change any more."""
        found: dict[str, str] = {}
        for number, line in enumerate(self._text(LOCK).splitlines(), 1):
            match, where = _LINE.fullmatch(line), f"{self.source}/{LOCK}, line {number}"
            if match is None:
                raise Invalid(Problem(where, "is no line of sha256sum", "it is: digest, two blanks, NAME/RELEASE.yaml"))
            if match[2] in found:
                raise Invalid(Problem(where, f"{match[2]} is there twice", "remove the line that is wrong"))
            found[match[2]] = match[1]
        return found

    def digest(self, name: str, release: str) -> str:
        """Of a release's file as it is now."""
        return hashlib.sha256(self._bytes(_file(name, release))).hexdigest()

    def faults(self) -> list[Problem]:
        """What is wrong with releases that are locked, and with the rest of the folder; nothing about those that are not."""
        found = [
            Problem(
                f"{self.source}/{file}", f"is in {LOCK}, and its file is gone", f"restore it: git checkout -- {file}"
            )
            for file in sorted(self.lock)
            if file not in {_file(n, r) for n in self._found for r in self._found[n]}
        ]
        found += [
            Problem(f"{self.source}/{path.parent.name}/{path.name}", f"{path.stem!r} is no release: X.Y.Z or X.Y.Z-N")
            for path in sorted(self.folder.glob("*/*.y*ml"))
            if not (path.suffix == ".yaml" and VERSION.fullmatch(path.stem)) and NAME.fullmatch(path.parent.name)
        ]
        found += [
            unnamed(path.parent.name).below(f"{self.source}/{path.parent.name}")
            for path in sorted(self.folder.glob("*/*.yaml"))
            if VERSION.fullmatch(path.stem) and not NAME.fullmatch(path.parent.name)
        ]
        for name in self.names():
            for release in self.releases(name):
                locked = _file(name, release) in self.lock
                try:
                    self.load(name, release) if locked else self.draft(name, release)
                    self.deprecation(name, release)
                except Invalid as error:
                    found += error.problems
        return found

    def unlocked(self) -> list[tuple[str, str]]:
        """(name, release) of all that are not released yet."""
        return [(n, r) for n in self.names() for r in self.releases(n) if _file(n, r) not in self.lock]

    @cached_property
    def _found(self) -> dict[str, list[str]]:
        """What lies in the folder; names come from here only, so none can lead out of it."""
        found: dict[str, list[str]] = {}
        with os.scandir(self.folder) as folders:
            for folder in folders:
                if not NAME.fullmatch(folder.name) or not folder.is_dir(follow_symlinks=False):
                    continue
                files = [name for name in os.listdir(folder.path) if name.endswith(".yaml")]  # noqa: PTH208
                if releases := [stem for file in files if VERSION.fullmatch(stem := file.removesuffix(".yaml"))]:
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
            raise Invalid(Problem(where, f"no YAML: {error}")) from None
        if len(values) > 1 or not all(isinstance(value, (dict, type(None))) for value in values):
            raise Invalid(Problem(where, "must be one mapping, by names of runtimes"))
        return values[0] or {} if values else {}

    def _locked(self, name: str, release: str) -> dict[str, Any]:
        file = _file(name, release)
        where, data = f"{self.source}/{file}", self._bytes(file)
        if file not in self.lock:
            mend = "`pulumi-trainer runtime check --lock` checks and releases it"
            raise Invalid(Problem(where, f"is not in {LOCK}: it is not released", mend))
        if hashlib.sha256(data).hexdigest() != self.lock[file]:
            why = f"has been edited since it was released: {LOCK} has another digest"
            raise Invalid(Problem(where, why, "take the edit back, and make a new release of it"))
        return _checked(where, data, name, release)

    def _bytes(self, file: str) -> bytes:
        where = f"{self.source}/{file}"
        try:
            number = os.open(self.folder / file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a FIFO would wait
            with os.fdopen(number, "rb") as opened:
                if not stat.S_ISREG(os.fstat(number).st_mode):
                    raise Invalid(Problem(where, "is no plain file"))
                data = opened.read(MAX_FILE + 1)
        except OSError as error:
            lost = file == LOCK and isinstance(error, FileNotFoundError)
            mend = (
                f"restore it: git checkout -- {LOCK}; `pulumi-trainer runtime check --lock` makes the first"
                if lost
                else ""
            )
            raise Invalid(Problem(where, f"cannot be read: {error.strerror or error}", mend)) from None
        if len(data) > MAX_FILE:
            raise Invalid(Problem(where, f"is longer than {MAX_FILE // 2**10} KiB"))
        return data

    def _text(self, file: str) -> str:
        try:
            return self._bytes(file).decode()
        except UnicodeDecodeError:
            raise Invalid(Problem(f"{self.source}/{file}", "is not UTF-8")) from None

    def _unknown(self, what: str, given: str, known: Sequence[str]) -> Problem:
        of = "the catalogue" if self is BUILT_IN else f"the catalogue {self.source}"
        return unknown(f"{what} of {of}", given, known)


def unknown(what: str, given: str, known: Sequence[str]) -> Problem:
    """That there is none of that name, what is near it, and what there is."""
    there = f"there is: {', '.join(known)}" if known else "it has none"
    return Problem("", f"{str(given)!r} is no {what}", f"{_near(str(given), known)}{there}")


def unnamed(name: str) -> Problem:
    """That no runtime can be called so, and how it could be."""
    why = f"{name!r} can be no name of a runtime: it is lower-case letters, digits, '-' and '.', with a letter or a digit at"
    better = re.sub(r"[^-.a-z0-9]+", "-", name.lower()).strip("-.")[:63].rstrip("-.")
    return Problem("", f"{why} both ends, at most 63 (RFC 1123)", f"write {better}" if better else "such as torch-team")


def _near(given: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(given, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}? " if near else ""


def _file(name: str, release: str) -> str:
    return f"{name}/{release}.yaml"


def _checked(where: str, data: bytes, name: str, release: str) -> dict[str, Any]:
    """The document of a file, which has to be what its name says."""
    found = [document.content for document in parsed(data, where)]
    if len(found) != 1 or found[0]["kind"] != "ClusterTrainingRuntime":
        raise Invalid(Problem(where, "must hold one ClusterTrainingRuntime, and nothing else"))
    if hidden := [*control_character_problems(found[0])]:
        raise Invalid(*(replace(p, where=f"{where}: {p.where}") for p in hidden))
    document, about = found[0], found[0].get("metadata")
    about = about if isinstance(about, dict) else {}
    if about.get("name") != name:
        raise Invalid(Problem(f"{where}: metadata.name", f"must be {name}, as its folder is called"))
    for part in ("labels", "annotations"):
        given = about.get(part)
        if not isinstance(given, dict) or given.get(RELEASE) != release:
            raise Invalid(
                Problem(f"{where}: metadata.{part}", f'must have {RELEASE}: "{release}", as the file is called')
            )
    return document


def _package(name: str) -> Path:
    mend = "install it in the program's environment; it is named as in an import"
    try:
        spec = find_spec(name)
    except (ImportError, ValueError) as error:
        raise Invalid(Problem(name, f"is no package: {error}", mend)) from None
    if spec is None or not spec.submodule_search_locations:
        raise Invalid(Problem(name, "is no package of this environment", mend))
    return Path(next(iter(spec.submodule_search_locations)))


BUILT_IN = RuntimeCatalog.from_dir(Path(__file__).parents[2] / "runtimes")
"""The one that comes with this package."""
