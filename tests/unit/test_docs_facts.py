"""Numbers, lists, messages and names that pages repeat are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import docs_reference
import json_output_schemas
import pulumi_trainer
import pytest
from pulumi_trainer.provider.jobs.attempts import Goodput
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.client.kubeconfig import CONTENT

from tests.documented import PAGES, ROOT, all_blocks

TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
WORDS = {page: " ".join(text.split()) for page, text in TEXTS.items()}
PROSE = [
    *("README.md", "CONTRIBUTING.md", *(page for page in PAGES if page.startswith("docs/"))),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("README.md")),
]
"""The pages for people."""

MOST_WORDS = 35
"""A sentence with more words is long."""

MOST_LONG_SENTENCES = 20


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    section = re.split(r"^#+ ", TEXTS[page].partition(f"# {heading}\n")[2], flags=re.M)[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in re.findall(r"^\| .*", section, re.M)][
        2:
    ]


def test_frameworks_have_trained_in_the_versions_that_tests_pin() -> None:
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "tests/constraints.txt").read_text(), re.M))
    for framework, runtime, packages, *_ in rows("docs/support.md", "Frameworks"):
        for package in packages.split(", "):
            assert pins[package.split()[0]] == package.split()[1], framework
        assert (ROOT / "runtimes" / runtime.split("`")[1]).is_dir(), framework


def source(folder: str) -> str:
    return "\n".join(file.read_text() for file in sorted((ROOT / folder).rglob("*.py")))


RECORDED = re.compile(r"(\d{3}) (?:recorded answers|cases hold|with each release)")


def test_the_number_of_recorded_answers_is_that_of_the_folders() -> None:
    folders = len([*(ROOT / "tests/golden/cases").iterdir()])
    golden = " ".join((ROOT / "tests/golden/README.md").read_text().split())
    found = {page: RECORDED.findall(text) for page, text in {**WORDS, "tests/golden/README.md": golden}.items()}
    assert {page for page, numbers in found.items() if numbers} == {
        "README.md",
        "docs/differences.md",
        "tests/golden/README.md",
    }
    for page, numbers in found.items():
        assert {*map(int, numbers)} <= {folders}, page


@pytest.mark.parametrize("page", PAGES)
def test_arguments_of_components_exist(page: str) -> None:
    """In text and in sketches too, such as `Local(max_parallel=)`."""
    for name, arguments in re.findall(r"\b(?:trainer\.)?([A-Z]\w+)\((\w+=[^()`\n]*)\)", TEXTS[page]):
        item = getattr(pulumi_trainer, name, None)
        if item is None:
            continue
        known = docs_reference.read_docstring(item)[1].keys() | getattr(item, "__annotations__", {}).keys()
        for argument in re.findall(r"(?:^|, )(\w+)=", arguments):
            assert argument in known, f"{page}: {name}({argument}=)"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_program_installs_what_it_imports(page: str) -> None:
    """The default target is this machine, where the interpreter stands for the image of the runtime."""
    (program,) = [block for block in all_blocks(page) if block.kind == "python"]
    assert re.search(r"import torch\b", program.text)
    assert re.search(r'packages_to_install=\["torch\b', program.text)
    assert "tests/engine/test_readme.py" in program.tests


def test_the_namespace_of_a_program_is_not_that_of_the_context() -> None:
    assert "**The namespace** is the exception" in TEXTS["docs/access.md"]
    assert "else what kubectl would use" not in WORDS["docs/training-jobs.md"]
    assert docs_reference.read_docstring(pulumi_trainer.Kubernetes)[1]["namespace"].endswith("default: `default`.")


def test_the_role_for_outputs_is_described_with_all_of_its_verbs() -> None:
    code = (ROOT / "provider/targets/kubernetes/preflight/rbac.py").read_text()
    verbs = " ".join(re.findall(r'_may\("([\w ]+)", kinds.POD, "outputs --copy', code)).split()
    (meaning,) = [cells[1] for cells in rows("docs/access.md", "The least permissions") if cells[0] == "`--outputs`"]
    assert verbs and [verb for verb in verbs if verb not in meaning] == []


def test_messages_that_pages_show_are_those_of_the_code() -> None:
    assert CONTENT.removeprefix("give ") in TEXTS["docs/troubleshooting.md"]


def test_titles_in_the_navigation_are_those_of_pages() -> None:
    """A group of pages and a page do not have the same title."""
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    groups = re.findall(r"- ([^:\n]+):$", nav, re.M)
    titles = [TEXTS[page].partition("\n")[0].removeprefix("# ") for page in PAGES if page.startswith("docs/")]
    assert not {*groups} & {*titles} - {"Reference", "Troubleshooting"}
    for page in PAGES:
        if page.startswith("docs/"):
            assert re.search(rf"(: |- ){re.escape(page.removeprefix('docs/'))}$", nav, re.M), (
                f"{page} is not in the nav"
            )


def test_the_reference_explains_its_words() -> None:
    for key, meaning in re.findall(r"^\| `(trainer:\w+)` .* \| (.*) \|$", docs_reference.configuration(), re.M):
        assert f"`{key}` of the stack" not in meaning, f"{key}: refers to itself"
    for effect in {*docs_reference.job_effects().values()}:
        begin = re.split(r"[,;]| while ", effect)[0]
        assert f"**{begin}**" in docs_reference._CHANGES, f"{effect} is not explained"


def test_the_reference_links_the_source_of_each_name() -> None:
    """Who reads the pages in the repository finds the arguments of a class in the docstrings of these files."""
    for page, (_, modules) in docs_reference.PAGES.items():
        (row,) = re.findall(rf"^\| `{page}` \| (.*) \|$", TEXTS["docs/reference.md"], re.M)
        linked = "\n".join((ROOT / "docs" / path).read_text() for path in re.findall(r"\]\((\S+?)\)", row))
        for name in docs_reference.public_names(modules):
            assert re.search(rf"^(class {name}\b|{name}\b.* = )", linked, re.M), f"{page}: {name}"


def test_pages_agree_on_what_may_change() -> None:
    assert "Before 1.0" in (json_output_schemas.__doc__ or "")
    assert "Before 1.0 the public interface may change in any version" in TEXTS["docs/support.md"]


def test_goodput_is_never_more_than_the_time_that_has_passed() -> None:
    assert str(Goodput(2.4, 0.0, 0, 1.2, True)).startswith("100%: 1s of training in 1s")


def test_the_table_of_versions_is_that_of_the_code() -> None:
    begin, end = docs_reference.SUPPORT_MARKS
    shown = TEXTS["docs/support.md"].partition(begin)[2].partition(end)[0]
    assert shown.strip() == docs_reference.support().strip(), "run: python tools/docs_reference.py"


def _reasons_of_the_code() -> dict[str, set[str]]:
    """Return the reasons that the diagnosis of jobs in clusters gives, with their phases."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "provider/lifecycle/diagnosis").glob("*.py"):
        tree = ast.parse(file.read_text())
        texts = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Constant)
        }  # fmt: skip
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Finding" and len(call.args) > 2):
                continue
            phase = re.fullmatch(r"Phase\.([A-Z]+)", ast.unparse(call.args[0]))
            reason = call.args[1]
            name = reason.value if isinstance(reason, ast.Constant) else texts.get(getattr(reason, "id", ""))
            if phase and isinstance(name, str):
                found.setdefault(name, set()).add(Phase[phase[1]].value)
    return found


def test_phases_are_those_of_the_code() -> None:
    table = rows("docs/phases.md", "Phases")
    assert [cells[0] for cells in table] == [f"`{phase.value}`" for phase in Phase]
    for cells, phase in zip(table, Phase, strict=True):
        assert cells[2] == ("yes" if phase.terminal else "no"), phase


def test_reasons_are_those_of_the_code() -> None:
    table: dict[str, str] = {}
    for reasons, phases, *_ in rows("docs/phases.md", "Reasons that this package gives"):
        table |= dict.fromkeys(re.findall(r"`(\w+)`", reasons), phases)
    code = source("provider")
    for reason, phases in table.items():
        assert f'"{reason}"' in code, f"nothing reports {reason}"
        assert phases == "any" or {*re.findall(r"`(\w+)`", phases)} <= {phase.value for phase in Phase}
    local = (ROOT / "provider/targets/local/run.py").read_text()
    for reason in re.findall(
        r'(?:_wait\(now, |_schedule_retry\(now, |Verdict\("Failed", |fail\(error, now, )"(\w+)"', local
    ):
        assert reason in table, f"docs/phases.md lacks {reason}"
    given = _reasons_of_the_code()
    assert len(given) > 10
    for reason, known in given.items():
        assert reason in table, f"docs/phases.md lacks {reason}"
        assert table[reason] == "any" or known <= {*re.findall(r"`(\w+)`", table[reason])}, f"{reason}: {known}"
    for page in ("docs/troubleshooting.md",):
        for phase, reason in re.findall(r"^\| (\w+) \(`(\w+)`\)", TEXTS[page], re.M):
            assert f"`{phase}`" in table[reason], f"{page}: {phase} ({reason})"


def test_the_glossary_is_sorted_and_names_what_exists() -> None:
    terms = [cells[0] for cells in rows("docs/glossary.md", "Glossary")]
    assert terms == sorted(terms, key=str.lower)
    for text in re.findall(r"`([A-Z]\w+)(?:\(\))?`", TEXTS["docs/glossary.md"]):
        assert hasattr(pulumi_trainer, text), text


def _paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs and items of lists as one line each, without code blocks, comments, tables and headings."""
    text = re.sub(r"^ *```.*?^ *```|<!--.*?-->", "\n\n", text, flags=re.M | re.S)
    lines: list[str] = []
    for line in [*map(str.strip, text.split("\n")), ""]:
        if not line or line.startswith(("|", "#")) or re.match(r"(\d+\.|[-*]) ", line):
            yield " ".join(lines)
            lines = []
        if not line.startswith(("|", "#")):
            lines.append(line)


def _long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of words and the text of each long sentence; a colon before a capital or code ends one, too."""
    for paragraph in _paragraphs(text):
        without_targets = re.sub(r"\]\([^)]*\)", "]", paragraph)
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[\"'`*(\[A-Z])", without_targets):
            words = len(re.findall(r"\S*\w\S*", sentence))
            if words > MOST_WORDS:
                yield words, sentence


def test_few_sentences_are_long() -> None:
    long = [
        f"{page}: {words} words: {sentence}"
        for page in PROSE
        for words, sentence in _long_sentences((ROOT / page).read_text())
    ]
    assert len(long) <= MOST_LONG_SENTENCES, "make two sentences or a list of some of these:\n" + "\n".join(long)


def test_a_long_sentence_is_found() -> None:
    text = f"# Title\n\n- {'word ' * 20}\n  [{'word ' * 15}x](target.md).\n- Short.\n\n```\n{'word ' * 40}\n```\n"
    assert [words for words, _ in _long_sentences(text)] == [36]
    assert not [*_long_sentences(text.replace("  [", "  end. [", 1).replace("# Title", f"# {'word ' * 40}"))]
