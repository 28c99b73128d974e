"""`runtime new | pin | check | diff`: creates, checks and compares releases of a catalogue, without Pulumi or a cluster."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.cli.formats import dumper, print_data
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.accessors import section, without
from pulumi_trainer.provider.kubernetes.values.documents import documents
from pulumi_trainer.provider.kubernetes.views import replicated_jobs
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.trainer.admission import review
from pulumi_trainer.provider.trainer.catalog.catalog import (
    BUILT_IN,
    LOCK,
    NAME,
    RuntimeCatalog,
    invalid_name,
    unknown_name,
)
from pulumi_trainer.provider.trainer.catalog.image_references import parse_image
from pulumi_trainer.provider.trainer.catalog.versions import LEVELS, VERSION, by_version, next_version, version_step
from pulumi_trainer.provider.trainer.labels import FRAMEWORK, RELEASE
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.runtime_releases import Effect, compare, level_of

OK, REFUSED = 0, 1


def new(reference: str, source: str, folder: str, trainer: Release) -> int:
    """Write a new release for the user to edit, and return the exit code.

    Args:
        source: The runtime to copy: NAME@RELEASE of the catalogue or the built-in one, or a file; empty for the newest release of
            NAME below the new one.
    """
    name, release = _split(reference)
    if not NAME.fullmatch(name):
        raise Invalid(invalid_name(name).below(reference))
    if not VERSION.fullmatch(release):
        why = "has no release (expected NAME@RELEASE)"
        if release:
            why = f"invalid release {release!r} (expected X.Y.Z or X.Y.Z-N)"
        raise Invalid(Problem(reference, why, f"for example {name}@1.0.0"))
    catalog = RuntimeCatalog.from_dir(folder)
    file = Path(folder) / name / f"{release}.yaml"
    if file.exists():
        raise Invalid(Problem(str(file), "exists already", "give the next number"))
    if not source and name not in (*_names(catalog), *_names(BUILT_IN)):
        why = f"{name} has no release to copy from"
        raise Invalid(Problem(reference, why, "name a runtime to copy from, for example --from torch-distributed"))
    source = source or _release_before(name, release, catalog)
    _write_release(valid_runtime(source, catalog, trainer), name, release, folder)
    print_line(
        f"{file}: a copy of {source}; edit it, then `pulumi-trainer runtime check --lock` checks and releases it"
    )
    return OK


def _release_before(name: str, release: str, catalog: RuntimeCatalog) -> str:
    """Return the newest release of a runtime below a number that is not withdrawn, or if there is none, the oldest one above."""
    for each in (catalog, BUILT_IN):
        if name not in _names(each):
            continue
        known = [number for number in each.releases(name) if each.withdrawal(name, number) is None]
        below = [other for other in known if by_version(other) < by_version(release)]
        found = below or known[:1]
        if found:
            return f"{name}@{found[-1]}"
    return name


def pin(reference: str, folder: str, trainer: Release) -> int:
    """Write the next patch release of a runtime, with the digests that its tags have now, and return the exit code.

    Args:
        reference: NAME of the newest release of the catalogue, else of the built-in one, or NAME@RELEASE.
    """
    from pulumi_trainer.provider.trainer.catalog import registry

    document = valid_runtime(reference, RuntimeCatalog.from_dir(folder), trainer)
    name, last = str(document["metadata"]["name"]), release_of(document) or "0.0.0"
    if not NAME.fullmatch(name):
        raise Invalid(invalid_name(name).below(reference))
    if not VERSION.fullmatch(last):
        raise Invalid(
            Problem(reference, f"invalid release {last!r} (expected X.Y.Z or X.Y.Z-N)", f"correct the label {RELEASE}")
        )
    release = next_version(last, "patch")
    file = Path(folder) / name / f"{release}.yaml"
    if file.exists():
        raise Invalid(Problem(str(file), "exists already", f"pin that one: {name}@{release}"))
    found = {}
    for image in _image_names(document):
        parsed = parse_image(image)
        if not parsed.digest:
            found[image] = f"{image}@{registry.find_digest(parsed)}"
    if not found:
        print_line(f"{reference}: all images have digests")
        return OK
    pinned = copy.deepcopy(document)
    for container, image in _containers_with_image(pinned):
        container["image"] = found.get(image, image)
    _write_release(pinned, name, release, folder)
    for image in found.values():
        print_line(f"  {image}")
    print_line(f"{file}: `pulumi-trainer runtime check --lock` checks and releases it")
    return OK


def _containers_with_image(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each container of a runtime with its image."""
    for job in replicated_jobs(section(document, "spec", "template", "spec")):
        for container in job.pod.all_containers:
            image = container.document.get("image")
            if isinstance(image, str) and image:
                yield container.document, image


def _image_names(document: dict[str, Any]) -> list[str]:
    """Return the images of a runtime, each once."""
    return list(dict.fromkeys(image for _, image in _containers_with_image(document)))


def _write_release(document: dict[str, Any], name: str, release: str, folder: str) -> None:
    file = Path(folder) / name / f"{release}.yaml"
    about = {**(document.get("metadata") or {}), "name": name}
    labels = {**(about.get("labels") or {}), RELEASE: release}
    annotations = {**(about.get("annotations") or {}), RELEASE: release}
    release_document = {**document, "metadata": {**about, "labels": labels, "annotations": annotations}}
    text = yaml.dump(release_document, Dumper=dumper(), sort_keys=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.parent.is_symlink():
            raise Invalid(Problem(str(file.parent), "is a link, which a catalogue does not read", "make it a folder"))
        replace_file(file, text.encode())
        _ensure_lock(Path(folder))
    except OSError as error:
        raise Invalid(Problem(str(file), f"cannot be written: {error.strerror or error}")) from None


def _ensure_lock(folder: Path) -> None:
    """Make the lock of a catalogue, unless it has one; a link that leads to no file is none."""
    lock = folder / LOCK
    if not lock.exists():
        replace_file(lock, b"")


def check(folder: str, output: str, trainer: Release, *, lock: bool) -> int:
    """Print what each release changes after the one before it, and all problems; return the exit code."""
    catalog = RuntimeCatalog.from_dir(folder)
    if lock:
        _ensure_lock(catalog.folder)
    found, steps = _checked(catalog, lock, trainer)
    if lock and not found:
        for name, release in catalog.unlocked():
            catalog.lock[f"{name}/{release}.yaml"] = catalog.digest(name, release)
        lines = "".join(f"{digest}  {file}\n" for file, digest in sorted(catalog.lock.items()))
        replace_file(catalog.folder / LOCK, lines.encode())
    moving = list(_moving_images(catalog))
    if output in ("json", "yaml"):
        result = {"releases": steps, "problems": [*map(str, found)], "warnings": [*map(str, moving)]}
        print_data(result, output)
    else:
        for one in steps:
            print_line(_step_line(one, catalog, locked_now=lock and not found))
        for warning in moving:
            print_line(f"warning: {warning}", error=True)
        for problem in found:
            print_line(f"error: {problem}", error=True)
    return REFUSED if found else OK


def _moving_images(catalog: RuntimeCatalog) -> Iterator[Problem]:
    """Yield a warning for each image of a newest release whose tag moves: two jobs of that release may run different images."""
    for name in catalog.names():
        release = catalog.releases(name)[-1]
        with suppress(Invalid):  # `check` reports it
            for image in _image_names(catalog.load_unlocked(name, release)):
                parsed = parse_image(image)
                if parsed.moves:
                    tag = f"the tag {parsed.tag}" if parsed.tag else "no tag"
                    why = f"the image {image} has {tag}: two jobs of this release may run different images"
                    hint = f"`pulumi-trainer runtime pin {name}` writes its digest into a release"
                    yield Problem(f"{catalog.source}/{name}/{release}.yaml", why, hint)


def diff(one: str, other: str, folder: str, output: str, trainer: Release) -> int:
    """Print what the step from one release to another changes in jobs, and return the exit code."""
    catalog = BUILT_IN
    if folder:
        catalog = RuntimeCatalog.from_dir(folder)
    before, after = valid_runtime(one, catalog, trainer), valid_runtime(other, catalog, trainer)
    effects = compare(before, after, trainer)
    level = level_of(effects)
    if output in ("json", "yaml"):
        print_data({"from": one, "to": other, "level": level, "effects": [*map(asdict, effects)]}, output)
        return OK
    change = level if effects else "nothing changes in jobs"
    print_line(f"{one} => {other}: {change}")
    for effect in effects:
        print_line(f"  {effect.level:5}  {effect}")
    release = release_of(before)
    if effects and VERSION.fullmatch(release):
        print_line(f"numbered {next_version(release, level)} or higher")
    return OK


def default_folder() -> str:
    """Return the folder of a catalogue: `runtimes` or the current one; empty if neither has a lock."""
    return next((folder for folder in ("runtimes", ".") if Path(folder, LOCK).is_file()), "")


def _step_line(one: dict[str, Any], catalog: RuntimeCatalog, *, locked_now: bool) -> str:
    """Return the line that `check` prints for a release."""
    if one["from"]:
        change = f"{one['level']} after {one['from']}"
    elif one["to"] == catalog.releases(one["runtime"])[0]:
        change = "the first"
    else:
        change = "the first without problems"
    if not one["locked"]:
        change += ", released now" if locked_now else ", not released yet"
    return f"{one['runtime']} {one['to']}: {change}"


def _checked(catalog: RuntimeCatalog, lock: bool, trainer: Release) -> tuple[list[Problem], list[dict[str, Any]]]:
    """Return the problems of a catalogue, and the step to each release. lock: Whether unlocked releases are no problem."""
    problems = catalog.problems()
    steps: list[dict[str, Any]] = []
    for name in catalog.names():
        problems += _check_runtime(catalog, name, steps, trainer)
    if not lock:
        hint = "`pulumi-trainer runtime check --lock` releases it"
        for name, release in sorted(catalog.unlocked()):
            problems.append(Problem(f"{catalog.source}/{name}/{release}.yaml", f"is not in {LOCK}", hint))
    return problems, steps


def _check_runtime(
    catalog: RuntimeCatalog, name: str, steps: list[dict[str, Any]], trainer: Release
) -> Iterator[Problem]:
    """Yield the problems of a runtime's releases, and append the step to each release to `steps`."""
    # The last release with a right number, and those since: a problem of one release is not reported for the next as well.
    bases: list[tuple[str, dict[str, Any]]] = []
    for release in catalog.releases(name):
        locked = f"{name}/{release}.yaml" in catalog.lock
        try:
            if locked:
                document = catalog.load(name, release)
            else:
                document = catalog.load_unlocked(name, release)
        except Invalid:
            continue  # reported by `catalog.problems`
        where = f"{catalog.source}/{name}/{release}.yaml"
        faults = problems_below(where, _faults(document, trainer))
        if faults:
            yield from faults
            continue
        base = ""
        base_document: dict[str, Any] = {}
        effects: list[Effect] = []
        if bases:
            base, base_document = bases[-1]
            effects = compare(base_document, document, trainer)
        steps.append(
            {"runtime": name, "from": base, "to": release, "level": level_of(effects), "locked": locked,
             "effects": [*map(asdict, effects)]}
        )  # fmt: skip
        misnumbered = [_misnumbered(where, *each, release, document, trainer) for each in bases]
        if bases and _without_release(base_document) == _without_release(document):
            yield Problem(where, f"is equal to {base}", "remove it, or change it")
        elif misnumbered and misnumbered[-1] and all(misnumbered):
            yield misnumbered[-1]
        else:
            bases.clear()
        bases.append((release, document))


def _faults(document: dict[str, Any], trainer: Release) -> Iterator[Problem]:
    yield from review(document, trainer).errors
    if not document["metadata"]["labels"].get(FRAMEWORK):
        yield Problem(
            f"metadata.labels[{FRAMEWORK}]",
            "is missing",
            "set it to the framework that starts user code, for example torch",
        )


def _misnumbered(
    where: str, before: str, old: dict[str, Any], release: str, new: dict[str, Any], trainer: Release
) -> Problem | None:
    """Return that the number of a release understates its changes; None if it does not."""
    effects = compare(old, new, trainer)
    level, numbered = level_of(effects), version_step(before, release)
    if LEVELS.index(level) <= LEVELS.index(numbered):
        return None
    more = f" (and {len(effects) - 1} more)" if len(effects) > 1 else ""
    why = f"has the number of a {numbered} release after {before}, but its changes are {level}: {effects[0]}{more}"
    return Problem(where, why, f"number it {next_version(before, level)} or higher")


def _without_release(document: dict[str, Any]) -> dict[str, Any]:
    about = document["metadata"]
    kept = {p: without(about[p], RELEASE) for p in ("labels", "annotations")}
    return {**document, "metadata": {**about, **kept}}


def valid_runtime(reference: str, catalog: RuntimeCatalog, trainer: Release) -> dict[str, Any]:
    """Return a runtime as `_find` does, if a server with this release of Trainer would accept it."""
    document = _find(reference, catalog)
    errors = review(document, trainer).errors
    if errors:
        raise Invalid(*problems_below(reference, errors))
    return document


def _find(reference: str, catalog: RuntimeCatalog) -> dict[str, Any]:
    """Return a runtime by NAME@RELEASE, by NAME (the newest release), or from a file."""
    if reference.endswith((".yaml", ".yml", ".json")):
        found = [d.content for d in documents(reference) if d.content["kind"].endswith("TrainingRuntime")]
        if len(found) != 1:
            raise Invalid(Problem(reference, f"contains {len(found)} runtimes, not one"))
        return found[0]
    name, release = _split(reference)
    catalogs = [each for each in (catalog, BUILT_IN) if name in _names(each)]
    if catalogs:
        source = next((each for each in catalogs if release in each.releases(name)), catalogs[0])
        release = release or source.releases(name)[-1]
        if release in source.releases(name):
            return source.load_unlocked(name, release)
        return source.load(name, release)
    where = f"the catalogue {catalog.source} or the built-in one"
    if catalog is BUILT_IN:
        where = "the built-in catalogue"
    names = sorted({*_names(catalog), *_names(BUILT_IN)})
    raise Invalid(unknown_name(f"runtime of {where}, or a .yaml or .json file", name, names))


def _names(catalog: RuntimeCatalog) -> list[str]:
    """Return the names of a catalogue's runtimes; none for a folder that does not exist yet."""
    if catalog is BUILT_IN or Path(catalog.source).is_dir():
        return catalog.names()
    return []


def _split(reference: str) -> tuple[str, str]:
    name, _, release = reference.partition("@")
    return name, release


def release_of(document: dict[str, Any]) -> str:
    return str(((document.get("metadata") or {}).get("labels") or {}).get(RELEASE, ""))
