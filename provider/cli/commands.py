"""Owns the table of all commands: it imports the modules that declare them, in the order of `--help`."""

from __future__ import annotations

from pulumi_trainer.provider.cli import job_commands, manifest_commands, platform_commands
from pulumi_trainer.provider.cli.parsers import COMMANDS

__all__ = ["COMMANDS", "GROUPS", "job_commands", "manifest_commands", "platform_commands"]

GROUPS = {
    "runtime": "List runtimes, and create, check and compare releases of a catalogue, for example `runtime list`.",
    "deploy": "Print what runs parts of pulumi-trainer in a cluster, for example `deploy exporter`.",
    "policy": "Enforce a file of rules about jobs elsewhere, for example `policy render policy.yaml`.",
    "cache": "List and prune the cache of this user, for example `cache list`.",
}
"""Commands that have commands."""
