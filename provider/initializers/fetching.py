"""One fetch from beginning to end: what is there already, what is to come, and how it becomes complete at once.

    1  complete manifest of the same wish     -> done, no request
    2  lock, listing, names checked
    3  files into the staging folder          (`transfer`)
    4  manifest `complete: false`, files moved into place, older ones removed
    5  manifest `complete: true`, staging folder removed

Killed anywhere, the next run goes on; nothing but step 5 makes a folder complete.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pulumi_trainer.provider.initializers import (
    contract,
    manifest,
    names,
    staging,
)
from pulumi_trainer.provider.initializers.contract import Kind
from pulumi_trainer.provider.initializers.manifest import FetchedFile, Manifest
from pulumi_trainer.provider.initializers.progress import Meter, Progress, Report
from pulumi_trainer.provider.initializers.schemes import SCHEMES, check_uri, split
from pulumi_trainer.provider.initializers.source import (
    Entry,
    Listing,
    Order,
    Patterns,
    Source,
    Tuning,
    digests,
)
from pulumi_trainer.provider.initializers.staging import Staging
from pulumi_trainer.provider.initializers.transfer import (
    Patience,
    Transfer,
    disk,
    retried,
)
from pulumi_trainer.provider.kube.errors import (
    Invalid,
    Problem,
    TargetFault,
    TrainerError,
)
from pulumi_trainer.provider.kube.values.quantity import human

log = logging.getLogger(__name__)


def _silent(progress: Progress) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class _Wish:
    kind: Kind
    uri: str
    output: Path
    patterns: Patterns


def fetch(
    kind: Kind,
    uri: str,
    output: Path,
    *,
    env: Mapping[str, str],
    report: Report = _silent,
    tuning: Tuning = Tuning(),  # noqa: B008
) -> Manifest:
    """Fetches a URI into a folder, or finds that it is there already.

    env: the variables of `contract`. report: told how far it is, at most once a second, and when it is complete.
    Raises Invalid for a wrong URI or variable, TargetFault for everything that the source or the disk refuses; neither
    holds a secret. A folder that holds another URI's files, by its manifest, gets these in their place.
    """
    scrub = contract.scrubber(env)
    try:
        if found := check_uri(uri, kind):
            raise Invalid.of(found)
        scheme, location = split(uri)
        patterns = SCHEMES[scheme].patterns(location, kind)
        if (ignore := contract.ignore_patterns(env)) is not None:
            patterns = dataclasses.replace(patterns, ignore=ignore)
        wish = _Wish(kind, uri, output, patterns)
        if (done := _complete(wish)) and not (output / names.STAGING).exists():
            return _told(done, report)
        with disk(output), staging.locked(output) as stage:
            if done := _complete(wish):
                stage.remove()
            else:
                source = SCHEMES[scheme].connect(Order(kind, location, output, env, tuning))
                done = _fetched(wish, source, stage, report, tuning, scrub)
            return _told(done, report)
    except TrainerError as error:
        raise contract.scrubbed(error, scrub) from None


def _complete(wish: _Wish) -> Manifest | None:
    """The manifest of a folder that holds exactly this, by name and size."""
    found = manifest.read(wish.output)
    if found is None or not found.complete or not found.same_wish(wish.kind, wish.uri, wish.patterns):
        return None
    return found if all(manifest.in_place(wish.output, f) for f in found.files) else None


def _told(done: Manifest, report: Report) -> Manifest:
    size = sum(f.size for f in done.files)
    report(Progress(size, size, len(done.files), len(done.files), 0, finished=True))
    return done


def _fetched(
    wish: _Wish, source: Source, stage: Staging, report: Report, tuning: Tuning, scrub: Callable[[str], str]
) -> Manifest:
    header = {"kind": wish.kind, "uri": wish.uri, "part": tuning.part}
    before = manifest.read(wish.output)
    recorded = stage.begin(header)
    of_this = before if before and (before.kind, before.uri) == (wish.kind, wish.uri) else None
    if of_this:
        recorded = of_this.revision
        if of_this.complete:
            log.warning(
                "%s is not as it was fetched, or other files are wanted; what is missing is fetched", wish.output
            )
    patience = Patience(wish.uri, tuning, threading.Event(), scrub)
    listing = retried(lambda: source.listing(recorded), patience)
    if of_this and of_this.complete and listing.revision != of_this.revision:
        why = f"has changed since it was fetched: it is at {listing.revision}, the folder holds {of_this.revision}"
        mend = f"fetch it into another volume, or empty {wish.output} first"
        raise TargetFault(Problem(wish.uri, why, mend))
    entries = _wanted(wish, listing, source)
    stage.plan(header, listing.revision, entries)
    total = sum(e.size for e in entries)
    log.info("%s at %s: %d files, %s", wish.uri, listing.revision, len(entries), human(total))
    meter = Meter(report, total, len(entries))
    kept = _kept(wish.output, of_this, entries, meter)
    missing = [e for e in entries if e.path not in kept]
    _room(wish.output, sum(max(0, e.size - stage.held(e)) for e in missing))
    fresh = Transfer(source, stage, meter, tuning, scrub).run(missing)
    files = {**kept, **{f.path: f for f in fresh}}
    done = Manifest(
        wish.kind, wish.uri, listing.revision, wish.patterns, tuple(files[e.path] for e in entries), complete=True
    )
    _install(wish.output, done, before.paths if before else set(), {e.path: stage.path(e) for e in missing}, stage)
    return done


def _wanted(wish: _Wish, listing: Listing, source: Source) -> list[Entry]:
    """What the patterns leave of the listing, with names that can be written."""
    entries = sorted((e for e in listing.entries if wish.patterns.wants(e.key)), key=lambda e: e.path)
    left_out = len(listing.entries) - len(entries)
    if left_out:
        log.info("%d files are left out: %s", left_out, _said(wish.patterns))
    if not entries:
        why = f"none of its {left_out} files is wanted: {_said(wish.patterns)}" if left_out else "has no files"
        raise TargetFault(Problem(wish.uri, why, f"look at the URI and at {contract.IGNORE_PATTERNS}"))
    if found := names.problems((e.path for e in entries), wish.output):
        raise TargetFault(*(p.below(wish.uri) for p in found))
    for entry in entries:
        if reason := names.obstacle(wish.output, entry.path):
            raise TargetFault(Problem(source.where(entry), reason, f"remove it, or empty {wish.output}"))
    return entries


def _said(patterns: Patterns) -> str:
    allow = f"only {', '.join(patterns.allow)} are fetched" if patterns.allow else ""
    ignore = f"{', '.join(patterns.ignore)} are ignored" if patterns.ignore else ""
    return "; ".join(filter(None, (allow, ignore)))


def _kept(output: Path, before: Manifest | None, entries: list[Entry], meter: Meter) -> dict[str, FetchedFile]:
    """Files in place from an interrupted fetch or a damaged folder, their content verified."""
    known = {f.path: f for f in before.files} if before else {}
    kept: dict[str, FetchedFile] = {}
    for entry in entries:
        file = known.get(entry.path)
        if file and (file.version, file.size) == (entry.version, entry.size) and manifest.in_place(output, file):
            with suppress(OSError):
                if digests(output / file.path, {"sha256"})["sha256"] == file.sha256:
                    kept[file.path] = file
                    meter.kept(file.size)
                    meter.file()
    return kept


def _room(output: Path, needed: int) -> None:
    """Better to say it before the first byte."""
    usage = shutil.disk_usage(output)
    if usage.total and needed > usage.free:
        why = f"no space left: {human(needed)} are needed and {human(usage.free)} are free; nothing was fetched"
        raise TargetFault(Problem(str(output), why, "make room, or use a larger volume"))


def _install(output: Path, done: Manifest, before: set[str], staged: Mapping[str, Path], stage: Staging) -> None:
    """Everything is verified: into place with it. The caller turns what the disk refuses into an error."""
    stale = sorted(before - {f.path for f in done.files})
    manifest.write(output, dataclasses.replace(done, complete=False, stale=tuple(stale)), stage.folder)
    for path in stale:
        if not names.obstacle(output, path):
            (output / path).unlink(missing_ok=True)
        for folder in PurePosixPath(path).parents:
            with suppress(OSError):
                if str(folder) != ".":
                    (output / folder).rmdir()
    for path, source in staged.items():
        if reason := names.obstacle(output, path):
            raise TargetFault(Problem(reason, "came while the fetch was running", "remove it and run again"))
        place = output / path
        place.parent.mkdir(parents=True, exist_ok=True)
        source.replace(place)
    for parent in {(output / path).parent for path in staged} | {output}:
        manifest.sync(parent)
    manifest.write(output, done, stage.folder)
    stage.remove()
