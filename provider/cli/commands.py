"""Owns the table of all commands: it imports the modules that declare them, in the order of `--help`."""

from __future__ import annotations

from pulumi_trainer.provider.cli import job_commands, manifest_commands, platform_commands
from pulumi_trainer.provider.cli.parsers import COMMANDS, GROUPS

__all__ = ["COMMANDS", "GROUPS", "job_commands", "manifest_commands", "platform_commands"]
