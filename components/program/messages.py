"""What components report in Pulumi's output. All text that they log or raise goes through this module.

Parts of it come from clusters, jobs and files of others, and the CLI prints it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

import pulumi
from pulumi_trainer.provider.kubernetes.terminal import message, safe_line


def warn(text: object, row: pulumi.Resource | None = None) -> None:
    """Log a warning. row: The resource that the engine shows it with; None for the stack."""
    pulumi.log.warn(message(str(text)), row)


def info(text: object, row: pulumi.Resource | None = None, *, ephemeral: bool = False) -> None:
    """Log a note."""
    pulumi.log.info(message(str(text)), row, ephemeral=ephemeral)


def log_lines(lines: Iterable[str], row: pulumi.Resource) -> None:
    """Log lines that a job has printed, with their colours. row: The job."""
    pulumi.log.info("\n".join(map(safe_line, lines)), row)


def error(text: object) -> None:
    """Log an error, which does not end the program."""
    pulumi.log.error(message(str(text)))


def failure(text: object) -> pulumi.RunError:
    """Return an error that ends the program without a traceback."""
    return pulumi.RunError(message(str(text)))
