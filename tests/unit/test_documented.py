"""Each code block of README.md and docs/ is run by the test that it names, or is a sketch with a reason; commands exist."""

from __future__ import annotations

import re

import pytest
from pulumi_trainer.program.targets import KEYS
from pulumi_trainer.provider.cli import commands

from tests.documented import PAGES, ROOT, all_blocks

MOST_SKETCHES = 12
PULUMIS_OWN = (
    "no Pulumi.yaml project file found",
    "PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions",
    "the stack is currently locked",
)
"""Messages of the troubleshooting page that are Pulumi's."""


@pytest.mark.parametrize("page", PAGES)
def test_each_block_is_run_or_has_a_reason(page: str) -> None:
    text = (ROOT / page).read_text()
    assert len(re.findall(r"^ *```", text, re.M)) % 2 == 0
    for block in all_blocks(page):
        assert block.tests or len(block.sketch.split()) > 2, (
            f"{block.where}: write <!-- test: tests/... --> or <!-- sketch: why no test can run it --> before the block"
        )
        for test in block.tests:
            code = (ROOT / test).read_text()
            assert f'blocks("{page}", __file__)' in code or "pages_run_by(__file__)" in code, f"{block.where}: {test}"


def test_few_blocks_are_sketches() -> None:
    sketches = [f"{block.where}: {block.sketch}" for page in PAGES for block in all_blocks(page) if block.sketch]
    assert len(sketches) <= MOST_SKETCHES, sketches


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    """In sketches too."""
    text = (ROOT / page).read_text()
    lines = [f"pulumi-trainer {rest}" for rest in re.findall(r"`pulumi-trainer ([^`\n]+)`", text)]
    for block in all_blocks(page):
        lines += re.findall(r"^(?:\$ )?(pulumi-trainer [a-z].*)$", block.text, re.M)
    for line in lines:
        command, options = _command(line)
        for option in re.findall(
            r"(?<= )(--[a-z][a-z-]*|-[a-zA-Z])(?=[ =\]|]|$)", line.partition("|")[0].partition(" -- ")[0]
        ):
            assert option in options, f"{page}: `{line}`: {command} has no {option}"


def _command(line: str) -> tuple[str, set[str]]:
    """Return the command that a line calls, and its options."""
    words = line.split()[1:]
    name = words[0]
    if name in commands.GROUPS and len(words) > 1 and words[1].isalpha():
        name = f"{name} {words[1]}"
    options = {"--help", "-h", "--version"}
    if name in commands.COMMANDS:
        options.update(*(argument.names for argument in commands.COMMANDS[name].arguments))
    else:
        assert name in commands.GROUPS or name.startswith("-"), f"`{line}`: no such command"
    return name, options


@pytest.mark.parametrize("page", PAGES)
def test_keys_of_the_configuration_exist(page: str) -> None:
    keys = re.findall(r"(?<![\w/-])trainer:([a-z]+)(?!\w*:)", (ROOT / page).read_text())
    assert set(keys) <= {*KEYS, "index"}, page


def test_messages_of_the_troubleshooting_page_are_messages() -> None:
    """Of this package or Pulumi's own; one is a rule of Trainer's webhook. Headings may leave out names and numbers."""
    source = ""
    for package in ("components", "provider"):
        for file in (ROOT / package).rglob("*.py"):
            source += re.sub(r'"\n\s*f?"', "", file.read_text())
    headings = re.findall(r"^### `(.*)`$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.M)
    assert len(headings) > 5
    for heading in headings:
        if heading not in PULUMIS_OWN:
            missing = [part for part in heading.split("...") if part.strip(" ,") and part.strip(" ,") not in source]
            assert not missing, f"{heading}: {missing}"
    reasons = re.findall(r"`([A-Z]\w+)`", (ROOT / "docs" / "troubleshooting.md").read_text())
    unknown = [reason for reason in reasons if f'"{reason}"' not in source]
    assert unknown == ["ModuleNotFoundError"], "a reason that nothing reports"


@pytest.mark.parametrize("page", ["README.md", "docs/start/install.md", "docs/start/first-job.md"])
def test_the_first_stack_needs_no_account(page: str) -> None:
    """`pulumi stack init` asks a new user for an account of Pulumi Cloud, unless there was a login before it."""
    login, _, rest = (ROOT / page).read_text().partition("pulumi stack init")
    assert rest and "pulumi login --local" in login


ON_LOCAL = {
    "the first back-off": (
        "test_local_jobset.py",
        "test_waits_longer_each_time_up_to_a_maximum_and_forgets_after_a_success",
    ),
    "a container that fails twice in the same way": ("test_local_endings.py", "class TestTheSameFailureTwice"),
    "a Pod that cannot be started": ("test_local_endings.py", "class TestThatCannotStart"),
    "on a full disk": ("test_local_endings.py", "class TestAFullDisk"),
    "while `packages_to_install` are installed": ("test_local_endings.py", "test_a_job_that_installs_is_not_running"),
    "a program that is not on PATH": ("test_local_endings.py", "class TestMissingPrograms"),
    "`Recreate` waits": ("test_local_jobs.py", "test_a_restart_waits_until_all_pods_are_gone"),
    "a declared `containerPort` that is taken": (
        "../engine/test_local_ports.py",
        "test_a_port_that_is_taken_changes_no_other_number",
    ),
    "of a model at `hf://`": ("test_initializers_hf.py", "test_a_model_has_its_chat_template_and_its_tokenizer"),
    "probes, lifecycle hooks and security contexts": ("test_local_review.py", "test_what_is_left_out"),
}
"""How each row about the Local target begins -> the test that proves it. Those of the modes are in tests/golden/test_modes.py."""


def test_each_difference_of_the_local_target_has_its_test() -> None:
    page = (ROOT / "docs/differences.md").read_text().partition("## Where the Local target")[2]
    rows = re.findall(r"^\| (.*?) \| .* \|$", page, re.M)[2:]
    begun = [[begin for begin in ON_LOCAL if row.startswith(begin)] for row in rows]
    assert [each for found in begun for each in found] == list(ON_LOCAL) and all(begun), rows
    for file, test in ON_LOCAL.values():
        name = test if test.startswith("class ") else f"def {test}("
        assert name in (ROOT / "tests/unit" / file).read_text(), f"{file}: {test}"
