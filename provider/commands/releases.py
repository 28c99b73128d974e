"""`runtime new | check | diff`: the releases of one's own catalogue. Without Pulumi, without a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.admission import review
from pulumi_trainer.provider.api.labels import FRAMEWORK, RELEASE
from pulumi_trainer.provider.api.versions import (
    LEVELS,
    VERSION,
    following,
    step,
)
from pulumi_trainer.provider.catalog.catalog import (
    BUILT_IN,
    LOCK,
    NAME,
    RuntimeCatalog,
    unknown,
    unnamed,
)
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.documents import documents
from pulumi_trainer.provider.lifecycle.releases import compare, level_of

OK, REFUSED = 0, 1


def new(reference: str, source: str, folder: str) -> int:
    """Writes a release that is to be edited, like `source`: a NAME@RELEASE of the catalogue or of the built-in one, or a file;
    default: the newest of that name."""
    name, release = _split(reference)
    if not NAME.fullmatch(name):
        raise Invalid(unnamed(name).below(reference))
    if not VERSION.fullmatch(release):
        why = f"{release!r} is no release: X.Y.Z or X.Y.Z-N" if release else "is no NAME@RELEASE: it has no release"
        raise Invalid(Problem(reference, why, f"such as {name}@1.0.0"))
    catalog = RuntimeCatalog.from_dir(folder)
    file = Path(folder) / name / f"{release}.yaml"
    if file.exists():
        raise Invalid(Problem(str(file), "exists already", "give the next number"))
    if not source and name not in (*_names(catalog), *_names(BUILT_IN)):
        why = f"{name} has no release yet that this one could be like"
        raise Invalid(Problem(reference, why, "say what it is made from, such as --from torch-distributed"))
    document = _found(source or name, catalog)
    about = {**(document.get("metadata") or {}), "name": name}
    labels, notes = ({**(about.get(part) or {}), RELEASE: release} for part in ("labels", "annotations"))
    text = yaml.safe_dump({**document, "metadata": {**about, "labels": labels, "annotations": notes}}, sort_keys=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        (Path(folder) / LOCK).touch()
    except OSError as error:
        raise Invalid(Problem(str(file), f"cannot be written: {error.strerror or error}")) from None
    print(f"{file}: edit it; then `pulumi-trainer runtime check --lock` checks and releases it")
    return OK


def check(folder: str, output: str, *, lock: bool) -> int:
    """Prints what each release does after the one before it, and what is wrong. lock: releases those that are new."""
    catalog = RuntimeCatalog.from_dir(folder)
    catalog.folder.joinpath(LOCK).touch() if lock else None
    found, steps = _checked(catalog, lock)
    if lock and not found:
        for name, release in catalog.unlocked():
            catalog.lock[f"{name}/{release}.yaml"] = catalog.digest(name, release)
        lines = "".join(f"{digest}  {file}\n" for file, digest in sorted(catalog.lock.items()))
        (catalog.folder / LOCK).write_text(lines, "utf-8")
    if output == "json":
        print(json.dumps({"releases": steps, "problems": [str(p) for p in found]}, indent=2))
    else:
        for one in steps:
            first = "the first" if one["to"] == catalog.releases(one["runtime"])[0] else "the first that is right"
            after = f"{one['level']} after {one['from']}" if one["from"] else first
            now = "" if one["locked"] else ", released now" if lock and not found else ", not released yet"
            print(f"{one['runtime']} {one['to']}: {after}{now}")
        for problem in found:
            print(f"error: {problem}", file=sys.stderr)
    return REFUSED if found else OK


def diff(one: str, other: str, folder: str, output: str) -> int:
    """Prints what the step from one to the other does to jobs. Each is NAME@RELEASE or a file."""
    catalog = RuntimeCatalog.from_dir(folder) if folder else BUILT_IN
    before, after = _found(one, catalog), _found(other, catalog)
    for reference, document in ((one, before), (other, after)):
        if errors := review(document).errors:
            raise Invalid(*(p.below(reference) for p in errors))
    effects = compare(before, after)
    level = level_of(effects)
    if output == "json":
        print(json.dumps({"from": one, "to": other, "level": level, "effects": [asdict(e) for e in effects]}, indent=2))
        return OK
    print(f"{one} => {other}: {level if effects else 'nothing changes in jobs'}")
    for effect in effects:
        print(f"  {effect.level:5}  {effect}")
    release = _release(before)
    if effects and VERSION.fullmatch(release):
        print(f"numbered {following(release, level)} or higher")
    return OK


def default_folder() -> str:
    """Where a catalogue is kept: `runtimes`, or here; empty where there is none."""
    return next((folder for folder in ("runtimes", ".") if Path(folder, LOCK).is_file()), "")


def _checked(catalog: RuntimeCatalog, lock: bool) -> tuple[list[Problem], list[dict[str, Any]]]:
    found = catalog.faults()
    steps: list[dict[str, Any]] = []
    fresh = set(catalog.unlocked())
    for name in catalog.names():
        # The last whose number is right, and those since: what is wrong with one is not told of the next as well.
        bases: list[tuple[str, dict[str, Any]]] = []
        for release in catalog.releases(name):
            try:
                locked = f"{name}/{release}.yaml" in catalog.lock
                document = catalog.load(name, release) if locked else catalog.draft(name, release)
            except Invalid:
                continue  # told by `faults`
            where = f"{catalog.source}/{name}/{release}.yaml"
            if faults := [p.below(where) for p in _faults(document)]:
                found += faults
                continue
            effects = compare(bases[-1][1], document) if bases else []
            told = {"runtime": name, "from": bases[-1][0] if bases else "", "to": release, "level": level_of(effects)}
            steps.append({**told, "locked": (name, release) not in fresh, "effects": [asdict(e) for e in effects]})
            wrong = [_misnumbered(where, *base, release, document) for base in bases]
            if bases and _without_release(bases[-1][1]) == _without_release(document):
                found.append(Problem(where, f"is equal to {bases[-1][0]}", "remove it, or change something"))
            elif wrong and (last := wrong[-1]) and all(wrong):
                found.append(last)
            else:
                bases.clear()
            bases.append((release, document))
    if not lock:
        mend = "`pulumi-trainer runtime check --lock` releases it"
        found += [Problem(f"{catalog.source}/{n}/{r}.yaml", f"is not in {LOCK}", mend) for n, r in sorted(fresh)]
    return found, steps


def _faults(document: dict[str, Any]) -> Iterator[Problem]:
    yield from review(document).errors
    if not document["metadata"]["labels"].get(FRAMEWORK):
        yield Problem(f"metadata.labels[{FRAMEWORK}]", "is missing", "it says what starts user code, such as torch")


def _misnumbered(where: str, before: str, old: dict[str, Any], release: str, new: dict[str, Any]) -> Problem | None:
    effects = compare(old, new)
    level, told = level_of(effects), step(before, release)
    if LEVELS.index(level) <= LEVELS.index(told):
        return None
    more = f" (and {len(effects) - 1} more)" if len(effects) > 1 else ""
    why = f"is numbered as {told} after {before}, and is {level}: {effects[0]}{more}"
    return Problem(where, why, f"number it {following(before, level)} or higher")


def _without_release(document: dict[str, Any]) -> dict[str, Any]:
    about = document["metadata"]
    kept = {p: {k: v for k, v in about[p].items() if k != RELEASE} for p in ("labels", "annotations")}
    return {**document, "metadata": {**about, **kept}}


def _found(reference: str, catalog: RuntimeCatalog) -> dict[str, Any]:
    """A runtime by NAME@RELEASE, by NAME (the newest), or out of a file."""
    if reference.endswith((".yaml", ".yml", ".json")):
        found = [d.content for d in documents(reference) if d.content["kind"].endswith("TrainingRuntime")]
        if len(found) != 1:
            raise Invalid(Problem(reference, f"holds {len(found)} runtimes, not one"))
        return found[0]
    name, release = _split(reference)
    both = {each: _names(each) for each in (catalog, BUILT_IN)}
    there = [each for each, names in both.items() if name in names]
    if there:
        has = next((each for each in there if release in each.releases(name)), there[0])
        release = release or has.releases(name)[-1]
        return has.draft(name, release) if release in has.releases(name) else has.load(name, release)
    where = (
        "the built-in catalogue" if catalog is BUILT_IN else f"the catalogue {catalog.source}, nor of the built-in one"
    )
    known = sorted({known for names in both.values() for known in names})
    raise Invalid(unknown(f"runtime of {where}, and no .yaml or .json file", name, known))


def _names(catalog: RuntimeCatalog) -> list[str]:
    """Of the runtimes of a catalogue, which may still have to be made."""
    return catalog.names() if catalog is BUILT_IN or Path(catalog.source).is_dir() else []


def _split(reference: str) -> tuple[str, str]:
    name, _, release = reference.partition("@")
    return name, release


def _release(document: dict[str, Any]) -> str:
    return str(((document.get("metadata") or {}).get("labels") or {}).get(RELEASE, ""))
