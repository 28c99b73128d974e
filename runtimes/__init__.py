"""The catalogue: training runtimes that come with the package, one folder a runtime, one file a release.

Called by components for `runtime="name"` or `"name@release"`, and by the command line. A file never changes once it
is released: `catalogue.lock` holds its digest, a test compares them. A release is the version of Kubeflow Trainer
whose runtime it is, or beside whose runtimes it stands (`2.3.0`), with `-1`, `-2` ... for later ones of ours; the label
and the annotation `pulumi-trainer.dev/release` carry it, and never the name, which TorchTune's model is read from.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.errors import Invalid, Problem
from yaml import load as load_yaml

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader  # type: ignore[assignment]

RELEASE = "pulumi-trainer.dev/release"
"""Label and annotation of a runtime of the catalogue."""

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(-[0-9]+)?")


def names() -> list[str]:
    """The runtimes of the catalogue, sorted."""
    return sorted(_catalogue())


def releases(name: str) -> list[str]:
    """The releases of a runtime, the newest last. Raises Invalid for a name that is not in the catalogue."""
    if name not in _catalogue():
        raise Invalid(_unknown("runtime", name, names()))
    return list(_catalogue()[name])


def load(name: str, release: str | None = None) -> dict[str, Any]:
    """A ClusterTrainingRuntime document of one's own; release: the newest if None.

    Raises Invalid for a name or a release that is not in the catalogue, and tells what is.
    """
    known = releases(name)
    if release is not None and release not in known:
        raise Invalid(_unknown(f"release of {name}", release, known))
    return copy.deepcopy(_parsed(name, release or known[-1]))


def about(name: str) -> dict[str, Any]:
    """What a runtime is for (`purpose`), on which `devices` (cpu, gpu) and on how many `nodes` (one, any). Raises Invalid for
    a name that is not in the catalogue."""
    releases(name)
    return dict(_about()[name])


@cache
def _about() -> dict[str, dict[str, Any]]:
    return dict(load_yaml((_FOLDER / "about.yaml").read_text("utf-8"), Loader=SafeLoader))


@cache
def _catalogue() -> dict[str, list[str]]:
    """What lies in the folder; names come from here only, so none can lead out of it."""
    found: dict[str, list[str]] = {}
    for path in _FOLDER.glob("*/*.yaml"):
        if _NAME.fullmatch(path.parent.name) and _VERSION.fullmatch(path.stem):
            found.setdefault(path.parent.name, []).append(path.stem)
    return {name: sorted(stems, key=_by_version) for name, stems in found.items()}


def _by_version(release: str) -> list[int]:
    return [int(part) for part in re.split("[.-]", release)]


@cache
def _parsed(name: str, release: str) -> dict[str, Any]:
    text = (_FOLDER / name / f"{release}.yaml").read_text("utf-8")
    document: dict[str, Any] = load_yaml(text, Loader=SafeLoader)
    return document


def _unknown(what: str, given: str, known: Sequence[str]) -> Problem:
    near = difflib.get_close_matches(str(given), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return Problem("", f"{str(given)!r} is no {what} of the catalogue", f"{hint}there is: {', '.join(known)}")
