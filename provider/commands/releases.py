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
from pulumi_trainer.provider.api.documents import documents
from pulumi_trainer.provider.api.errors import Invalid, Problem
from pulumi_trainer.provider.api.labels import FRAMEWORK, RELEASE
from pulumi_trainer.provider.api.versions import LEVELS, VERSION, following, step
from pulumi_trainer.provider.lifecycle.releases import Effect, compare, level_of
from pulumi_trainer.runtimes.catalog import BUILT_IN, LOCK, NAME, RuntimeCatalog

OK, REFUSED = 0, 1


def new(reference: str, source: str, folder: str) -> int:
    """Writes a release that is to be edited, like `source`: a NAME@RELEASE of the catalogue or of the built-in one, or a file;
    default: the newest of that name."""
    name, release = _split(reference)
    if not NAME.fullmatch(name) or not VERSION.fullmatch(release):
        raise Invalid(Problem(reference, "is no NAME@RELEASE", "a release is X.Y.Z, such as torch-team@1.0.0"))
    catalog = RuntimeCatalog.from_dir(folder)
    file = Path(folder) / name / f"{release}.yaml"
    if file.exists():
        raise Invalid(Problem(str(file), "exists already", "give the next number"))
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
            after = f"{one['level']} after {one['from']}" if one["from"] else "the first"
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
        known: list[tuple[str, dict[str, Any]]] = []
        for release in catalog.releases(name):
            try:
                document = catalog.draft(name, release)
            except Invalid:
                continue  # told by `faults`
            where = f"{catalog.source}/{name}/{release}.yaml"
            if faults := [p.below(where) for p in _faults(document)]:
                found += faults
                continue
            effects = compare(known[-1][1], document) if known else []
            if known:
                found += _misnumbered(where, *known[-1], release, document, effects)
            told = {"runtime": name, "from": known[-1][0] if known else "", "to": release, "level": level_of(effects)}
            steps.append({**told, "locked": (name, release) not in fresh, "effects": [asdict(e) for e in effects]})
            known.append((release, document))
    if not lock:
        mend = "`pulumi-trainer runtime check --lock` releases it"
        found += [Problem(f"{catalog.source}/{n}/{r}.yaml", f"is not in {LOCK}", mend) for n, r in sorted(fresh)]
    return found, steps


def _faults(document: dict[str, Any]) -> Iterator[Problem]:
    yield from review(document).errors
    if not document["metadata"]["labels"].get(FRAMEWORK):
        yield Problem(f"metadata.labels[{FRAMEWORK}]", "is missing", "it says what starts user code, such as torch")


def _misnumbered(
    where: str, before: str, old: dict[str, Any], release: str, new: dict[str, Any], effects: list[Effect]
) -> Iterator[Problem]:
    if _without_release(old) == _without_release(new):
        yield Problem(where, f"is equal to {before}", "remove it, or change something")
    elif LEVELS.index(level := level_of(effects)) > LEVELS.index(step(before, release)):
        why = f"is numbered as {step(before, release)} after {before}, and is {level}: {effects[0]}"
        more = f" (and {len(effects) - 1} more)" if len(effects) > 1 else ""
        yield Problem(where, f"{why}{more}", f"number it {following(before, level)} or higher")


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
    for each in (catalog, BUILT_IN):
        if (each is BUILT_IN or Path(each.source).is_dir()) and name in each.names():
            release = release or each.releases(name)[-1]
            return each.draft(name, release) if release in each.releases(name) else each.load(name, release)
    return catalog.load(name, release)


def _split(reference: str) -> tuple[str, str]:
    name, _, release = reference.partition("@")
    return name, release


def _release(document: dict[str, Any]) -> str:
    return str(((document.get("metadata") or {}).get("labels") or {}).get(RELEASE, ""))
