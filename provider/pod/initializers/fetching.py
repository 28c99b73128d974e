"""Runs one fetch: finds the missing files, transfers them, and makes the folder complete in one step.

    1  complete manifest of the same spec     -> done, without a request
    2  lock, listing, names checked
    3  files into the staging folder          (`transfer`)
    4  manifest `complete: false`, files moved to their paths, files of an earlier fetch removed
    5  manifest `complete: true`, staging folder removed

A killed fetch is continued by the next one. Only step 5 makes a folder complete.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.values.quantity import format_bytes
from pulumi_trainer.provider.pod.initializers import contract, file_names, manifest, staging
from pulumi_trainer.provider.pod.initializers.contract import Kind, Mask
from pulumi_trainer.provider.pod.initializers.manifest import FetchedFile, Manifest
from pulumi_trainer.provider.pod.initializers.progress import Meter, Progress, Report
from pulumi_trainer.provider.pod.initializers.schemes import SCHEMES, check_uri, split_uri
from pulumi_trainer.provider.pod.initializers.source import (
    MAX_FILES,
    Entry,
    FetchRequest,
    Listing,
    Patterns,
    Source,
    Tuning,
    digests,
)
from pulumi_trainer.provider.pod.initializers.staging import Staging
from pulumi_trainer.provider.pod.initializers.transfer import Transfer, disk_errors, retry

log = logging.getLogger(__name__)


def _no_report(progress: Progress) -> None:
    """Discard a report."""


@dataclass(frozen=True)
class _FetchSpec:
    kind: Kind
    uri: str
    output: Path
    patterns: Patterns
    tuning: Tuning
    mask_secrets: Mask

    def is_met_by(self, found: Manifest) -> bool:
        return self.is_same_source(found) and self.patterns == found.patterns

    def is_same_source(self, found: Manifest) -> bool:
        return (self.kind, self.uri) == (found.kind, found.uri)


def fetch(
    kind: Kind,
    uri: str,
    output: Path,
    *,
    env: Mapping[str, str],
    report: Report = _no_report,
    tuning: Tuning = Tuning(),  # noqa: B008
) -> Manifest:
    """Fetch a URI into a folder, unless the folder already has its files.

    Args:
        output: The folder. If its manifest is that of another URI, the files of that fetch are replaced.
        report: Receives the progress, at most once a second, and the completion.

    Returns:
        The manifest of the complete folder.

    Raises:
        Invalid: The URI or a variable is invalid.
        TargetFault: The source or the disk refuses something. Neither message contains a secret.
    """
    mask_secrets = contract.secret_mask(env)
    try:
        problems = check_uri(uri, kind)
        if problems:
            raise Invalid.of(problems)
        scheme, location = split_uri(uri)
        patterns = SCHEMES[scheme].patterns(location, kind)
        ignore = contract.ignore_patterns(env)
        if ignore is not None:
            patterns = dataclasses.replace(patterns, ignore=ignore)
        spec = _FetchSpec(kind, uri, output, patterns, tuning, mask_secrets)
        fetched = _complete_manifest(spec)
        if fetched is None or (output / file_names.STAGING).exists():
            with disk_errors(output), staging.locked(output) as stage:
                fetched = _complete_manifest(spec)
                if fetched is None:
                    source = SCHEMES[scheme].connect(FetchRequest(kind, location, output, env, tuning, spec.patterns))
                    fetched = _fetch_missing(spec, source, stage, report)
                stage.clear()
        size = sum(f.size for f in fetched.files)
        report(Progress(size, size, len(fetched.files), len(fetched.files), 0, finished=True))
        return fetched
    except TrainerError as error:
        raise contract.mask_error(error, mask_secrets) from None


def _complete_manifest(spec: _FetchSpec) -> Manifest | None:
    """Return the manifest of a folder that has exactly the files of the spec, by name and size."""
    found = manifest.read(spec.output)
    if found is None or not found.complete or not spec.is_met_by(found):
        return None
    if all(manifest.has_file(spec.output, f) for f in found.files):
        return found
    return None


def _fetch_missing(spec: _FetchSpec, source: Source, stage: Staging, report: Report) -> Manifest:
    before = manifest.read(spec.output)
    same_source = None
    if before and spec.is_same_source(before):
        same_source = before
    listing = _list_files(spec, source, stage.recorded_revision(spec.kind, spec.uri), same_source)
    entries = _select_entries(spec, listing, source)
    stage.plan(spec.kind, spec.uri, listing.revision, entries)
    total = sum(e.size for e in entries)
    log.info("%s at %s: %d files, %s", spec.uri, listing.revision, len(entries), format_bytes(total))
    meter = Meter(report, total, len(entries))
    files = _reusable_files(spec.output, same_source, entries, meter)
    missing = [e for e in entries if e.path not in files]
    _require_space(spec.output, sum(e.size for e in missing if not stage.path(e).exists()))
    for file in Transfer(source, stage, meter, spec.tuning, spec.mask_secrets).run(missing):
        files[file.path] = file
    fetched = tuple(files[e.path] for e in entries)
    complete = Manifest(spec.kind, spec.uri, listing.revision, spec.patterns, fetched, complete=True)
    staged = {e.path: stage.path(e) for e in missing}
    earlier = before.paths if before else set()
    _install(spec.output, complete, earlier, staged, stage.folder)
    return complete


def _list_files(spec: _FetchSpec, source: Source, recorded: str, before: Manifest | None) -> Listing:
    """Return the listing at the revision of an earlier fetch. recorded: Revision of an interrupted fetch, or empty."""
    if before and before.complete:
        log.warning(
            "%s differs from what was fetched, or other files were requested; fetching the missing files", spec.output
        )
    revision = recorded
    if before:
        revision = before.revision
    listing = retry(lambda: source.listing(revision), spec.uri, spec.tuning, spec.mask_secrets)
    if before and before.complete and listing.revision != before.revision:
        why = f"has changed since it was fetched: it is at {listing.revision}, but the folder has {before.revision}"
        hint = f"use another volume, or empty {spec.output} first"
        raise TargetFault(Problem(spec.uri, why, hint))
    if len(listing.entries) > MAX_FILES:
        raise TargetFault(
            Problem(spec.uri, f"has more than {MAX_FILES:,} files", "name a folder of it, or pack the files")
        )
    return listing


def _select_entries(spec: _FetchSpec, listing: Listing, source: Source) -> list[Entry]:
    """Return the entries that the patterns select, whose names can be written."""
    selected = [e for e in listing.entries if spec.patterns.selects(e.key)]
    entries = sorted(selected, key=lambda e: e.path)
    left_out = len(listing.entries) - len(entries)
    if left_out:
        log.info("%d files are left out: %s", left_out, _describe(spec.patterns))
    if not entries:
        why = "has no files"
        if left_out:
            why = f"none of its {left_out} files match the patterns: {_describe(spec.patterns)}"
        raise TargetFault(Problem(spec.uri, why, f"check the URI and {contract.IGNORE_PATTERNS}"))
    problems = file_names.check_paths([e.path for e in entries], spec.output)
    if problems:
        raise TargetFault(*problems_below(spec.uri, problems))
    for entry in entries:
        reason = file_names.find_obstacle(spec.output, entry.path)
        if reason:
            raise TargetFault(Problem(source.address(entry), reason, f"remove it, or empty {spec.output}"))
    return entries


def _describe(patterns: Patterns) -> str:
    effects = []
    if patterns.allow:
        effects.append(f"only {', '.join(patterns.allow)} are fetched")
    if patterns.ignore:
        effects.append(f"{', '.join(patterns.ignore)} are ignored")
    return "; ".join(effects)


def _reusable_files(
    output: Path, before: Manifest | None, entries: list[Entry], meter: Meter
) -> dict[str, FetchedFile]:
    """Return the files of an interrupted fetch or a damaged folder whose content is verified."""
    recorded: dict[str, FetchedFile] = {}
    if before:
        recorded = {f.path: f for f in before.files}
    reusable: dict[str, FetchedFile] = {}
    for entry in entries:
        file = recorded.get(entry.path)
        if file and (file.version, file.size) == (entry.version, entry.size) and manifest.has_file(output, file):
            with suppress(OSError):
                if digests(output / file.path, {"sha256"})["sha256"] == file.sha256:
                    reusable[file.path] = file
                    meter.add_reused_file(file.size)
    return reusable


def _require_space(output: Path, needed: int) -> None:
    """Raise before the first byte if the disk is too small."""
    usage = shutil.disk_usage(output)
    if usage.total and needed > usage.free:
        why = f"no space left: {format_bytes(needed)} are needed and {format_bytes(usage.free)} are free; nothing was fetched"
        raise TargetFault(Problem(str(output), why, "free some space, or use a larger volume"))


def _install(output: Path, complete: Manifest, before: set[str], staged: Mapping[str, Path], folder: Path) -> None:
    """Move verified files to their paths and remove those of an earlier fetch."""
    stale = sorted(before - {f.path for f in complete.files})
    manifest.write(output, dataclasses.replace(complete, complete=False, stale=tuple(stale)), folder)
    for path in stale:
        if not file_names.find_obstacle(output, path):
            (output / path).unlink(missing_ok=True)
        for parent in PurePosixPath(path).parents:
            with suppress(OSError):
                if str(parent) != ".":
                    (output / parent).rmdir()
    for path, file in staged.items():
        reason = file_names.find_obstacle(output, path)
        if reason:
            raise TargetFault(Problem(reason, "appeared during the fetch", "remove it and run again"))
        target = output / path
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
    changed = {(output / path).parent for path in staged} | {output}
    for changed_folder in changed:
        manifest.sync_folder(changed_folder)
    manifest.write(output, complete, folder)
