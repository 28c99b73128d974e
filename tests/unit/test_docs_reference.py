"""The reference of the docs site has every public name, command, key, runtime and code; `make docs` checks its links."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import docs_reference
import pulumi_trainer
import pulumi_trainer.client
import pulumi_trainer.plugins
import pulumi_trainer.runtimes
import pulumi_trainer.training
import pytest
from json_output_schemas import SCHEMAS
from pulumi_trainer.program.targets import KEYS
from pulumi_trainer.provider.cli import commands
from pulumi_trainer.provider.lifecycle import changes
from pulumi_trainer.provider.trainer.admission.warnings import RULES

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)(?:#([^)\s]+))?\)")
PAGES = docs_reference.pages()
TEXT = "\n".join(PAGES.values())
COMPONENTS = "\n".join(PAGES[f"reference/{page}.md"] for page in docs_reference.PAGES)
HEADINGS = re.findall(r"^#+ .*\{#([\w.]+)\}$", COMPONENTS, re.M)


def test_every_public_name_is_there_once() -> None:
    written = [name.removeprefix("pulumi_trainer.") for name in re.findall(r"^::: ([\w.]+)$", TEXT, re.M)]
    names = [name for name in pulumi_trainer.__all__ if name not in written]
    assert sorted(names) == sorted(name for name in HEADINGS if "." not in name)
    modules: list[Any] = [
        pulumi_trainer.client, pulumi_trainer.plugins, pulumi_trainer.runtimes, pulumi_trainer.training,
    ]  # fmt: skip
    for module in modules:
        short = module.__name__.partition(".")[2]
        assert {f"{short}.{name}" for name in module.__all__} <= set(written)


def test_every_command_is_there() -> None:
    page = PAGES["reference/command-line.md"]
    for name in commands.COMMANDS:
        assert f"## pulumi-trainer {name}\n" in page
    for option in ("--all-namespaces", "--platform", "--lock"):
        assert option in page
    assert "| `--by` | Group the rows by this: team (default), queue, user or job. |" in page


def test_code_in_tables_is_shown_as_it_is() -> None:
    """Python-Markdown shows a backslash in code."""
    assert "| `RuntimeSource | str | pulumi.Output[Any]` |" in PAGES["reference/trainjob.md"]
    assert not re.search(r"`[^`\n]*\\\|[^`\n]*`", TEXT)


def test_every_key_of_json_is_there_with_its_meaning() -> None:
    page = PAGES["reference/json.md"]
    for command in SCHEMAS:
        assert f"## {command} -o json " in page
    for row in re.findall(r"^\| `\w+` \| `.*$", page, re.M):
        assert not row.endswith("|  |"), row


def test_every_key_and_runtime_is_there() -> None:
    for key in KEYS:
        assert f"| `trainer:{key}` |" in PAGES["reference/configuration.md"]
    for name in pulumi_trainer.runtimes.names():
        assert f"## {name}\n" in PAGES["reference/catalogue.md"]


def test_every_code_has_an_anchor() -> None:
    page = (Path(__file__).parents[2] / "docs" / "warnings.md").read_text()
    anchors = re.findall(r'<a id="(PT\d+)"></a>', docs_reference.with_anchors(page))
    assert anchors == [rule.code for rule in RULES]


def test_every_argument_has_its_row_and_meaning() -> None:
    for page in docs_reference.PAGES:
        for row in re.findall(r"^\| `\w+` \| `.*$", PAGES[f"reference/{page}.md"], re.M):
            assert not row.endswith("|  |"), row


@pytest.mark.parametrize(
    ("argument", "effect"),
    [("suspend", "update"), ("trainer", "new run"), ("priority", "update"), ("active_deadline_seconds", "new run")],
)
def test_what_a_change_does_is_computed(argument: str, effect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert docs_reference.job_effects()[argument] == effect
    monkeypatch.setattr(changes, "_ALWAYS", ())
    if argument == "suspend":
        assert docs_reference.job_effects()[argument] == "new run"


def test_links_of_the_docs_lead_somewhere_in_a_clone() -> None:
    """A clone has no page that is made from the code, so links to the reference lead to the page that says what to read."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    links = [(file, *link) for file in listed.split() for link in LINK.findall((ROOT / file).read_text())]
    assert len(links) > 200
    for file, path, anchor in links:
        target = ((ROOT / file).parent / path).resolve()
        assert target.exists(), f"{file}: {path}"
        if target == ROOT / "docs/reference.md":
            assert f"reference/{anchor}.md" in PAGES, f"{file}: {anchor}"
    named = re.findall(
        r"`([\w-]+)`", "".join(re.findall(r"(?m)^\| (.*?) \|", (ROOT / "docs/reference.md").read_text()))
    )
    assert {f"reference/{name}.md" for name in named} == {*PAGES}
