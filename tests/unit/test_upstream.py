"""The versions of what this package follows: the table against the code, the cluster of the tests and the pinned packages."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.engine import pulumi_compat
from pulumi_trainer.provider.trainer.releases import DEFAULT, NEWEST, RELEASES
from pulumi_trainer.provider.trainer.upstream import UPSTREAM

from tools import docs_reference

ROOT = Path(__file__).parents[2]
MODULES = {
    "Kubernetes": "k8s.io/kubernetes", "JobSet": "sigs.k8s.io/jobset", "Kubeflow Trainer": "github.com/kubeflow/trainer/v2",
    "Kueue": "sigs.k8s.io/kueue", "scheduler-plugins": "sigs.k8s.io/scheduler-plugins", "Volcano": "volcano.sh/volcano",
    "KAI": "github.com/kai-scheduler/KAI-scheduler",
}  # fmt: skip
"""Product -> its Go module, from which the tests' cluster is built."""
REPOSITORIES = {
    "Kubernetes": "kubernetes/kubernetes", "JobSet": "kubernetes-sigs/jobset", "Kueue": "kubernetes-sigs/kueue",
    "scheduler-plugins": "kubernetes-sigs/scheduler-plugins", "Volcano": "volcano-sh/volcano",
    "KAI": "kai-scheduler/KAI-scheduler",
}  # fmt: skip


def text_of(*folders: str, suffix: str = ".py") -> str:
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob(f"*{suffix}"))]
    return "\n".join(file.read_text() for file in files)


@pytest.mark.parametrize("product", MODULES)
def test_tests_run_against_the_version_of_the_table(product: str) -> None:
    built = text_of("tools/cluster/go", suffix="go.mod")
    found = re.findall(rf"^(?:require )?\s*{re.escape(MODULES[product])} v([\d.]+)$", built, re.MULTILINE)
    assert max(found) == UPSTREAM[product].tested


@pytest.mark.parametrize("product", REPOSITORIES)
def test_the_code_refers_to_the_version_that_is_followed(product: str) -> None:
    code = text_of("provider", "components")
    found = re.findall(rf"github\.com/{re.escape(REPOSITORIES[product])}/(?:blob|tree)/v([\d.]*\d)", code)
    assert max(found, key=lambda each: [*map(int, each.split("."))]) == UPSTREAM[product].followed


def test_the_releases_of_trainer() -> None:
    trainer = UPSTREAM["Kubeflow Trainer"]
    assert trainer.followed == ", and commit ".join(RELEASES)
    assert trainer.tested == DEFAULT.version
    assert any(NEWEST.version in difference for difference in trainer.differences)
    for release in RELEASES.values():
        about = (release.folder / "__init__.py").read_text()
        assert f"JobSet {UPSTREAM['JobSet'].followed}" in about and release.version in about
    schemas = (ROOT / "tests" / "golden" / "recorder" / "crd_schemas.py").read_text()
    assert f"kubernetes-sigs/kueue v{UPSTREAM['Kueue'].followed}" in schemas


def test_pulumi() -> None:
    pulumi = UPSTREAM["Pulumi"]
    assert pulumi.followed == pulumi_compat.NEWEST
    assert pulumi.tested == f"{pulumi_compat.OLDEST} and {pulumi_compat.NEWEST}"
    assert f'"pulumi>={pulumi.least},<4"' in (ROOT / "pyproject.toml").read_text()


def test_the_page_and_the_command_show_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["pulumi-trainer", "version", *options])
        with pytest.raises(SystemExit):
            cli.main()
        return capsys.readouterr().out

    page, table, found = docs_reference.support(), shown(), json.loads(shown("-o", "json"))
    assert table.startswith(f"pulumi-trainer {found['version']}\n")
    assert [each["name"] for each in found["products"]] == [*UPSTREAM]
    for product in UPSTREAM.values():
        for fact in (product.name, product.followed, product.tested, product.least, *product.differences):
            assert fact in page and fact in table
