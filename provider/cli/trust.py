"""`trust`: lets commands use a kubeconfig of a project's folder, and prints what it may do."""

from __future__ import annotations

from pathlib import Path

from pulumi_trainer.provider.kubernetes.terminal import plain, print_line
from pulumi_trainer.provider.service import trust as service


def trust(file: Path) -> None:
    """Let commands use a kubeconfig until its content changes, and print what it may do."""
    found = service.trust(file)
    print_line(f"{plain(str(file))} may be used until it changes. It may:")
    for each in found or ["do nothing that needs trust"]:
        print_line(f"  {plain(each)}")
