"""Removes the folders of old runs (`keep_runs`) from the output volume of a job."""

from __future__ import annotations

from pathlib import Path

from pulumi_trainer.provider.targets.local.paths import remove_tree
from pulumi_trainer.provider.targets.local.record import Record, run_manifest


def remove_outdated_folders(record: Record) -> None:
    """Remove the folders of `removed_lineages` beside that of a new run; nothing outside `volumes/`."""
    output, identity = Path(record.output), record.identity
    if output.name != identity.lineage or Path(record.root, "volumes") not in output.parents:
        return
    for lineage in identity.removed_lineages:
        remove_tree(output.with_name(lineage))
        run_manifest(output.with_name(lineage)).unlink(missing_ok=True)
