"""The code blocks of README.md and docs/, and which test runs which: the comment before a block says it.

<!-- test: tests/engine/test_docs.py -->    this test runs the block, and gets it from `blocks`; several may
<!-- sketch: a picture of the rooms -->     no test can run it, for this reason, which is not what a test would cost
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "AGENTS.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"(?:^ *<!-- (?P<marker>[^\n]*?) -->\n)?^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        page: Path of its file.
        line: Line of its fence.
        kind: Language, such as python; empty for none.
        text: The block.
        tests: Paths of the tests that run it; none for a sketch.
        options: What else the comment says to the test.
        sketch: Why no test runs it; empty if one does.
    """

    page: str
    line: int
    kind: str
    text: str
    tests: tuple[str, ...]
    options: tuple[str, ...]
    sketch: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def all_blocks(page: str) -> list[Block]:
    """Return the blocks of a page."""
    text = (ROOT / page).read_text()
    found = []
    for match in _BLOCK.finditer(text):
        word, _, rest = (match["marker"] or "").partition(": ")
        words = rest.split() if word == "test" else []
        tests = tuple(each for each in words if each.startswith("tests/"))
        options = tuple(each for each in words if each not in tests)
        line = text.count("\n", 0, match.start("kind")) + 1
        sketch = rest if word == "sketch" else ""
        code = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.M)
        found.append(Block(page, line, match["kind"], code, tests, options, sketch))
    return found


def blocks(page: str, file: str) -> list[Block]:
    """Return the blocks of a page that a test runs.

    Args:
        page: Path of the page, such as docs/queues.md.
        file: `__file__` of the test.
    """
    test = str(Path(file).resolve().relative_to(ROOT))
    found = [block for block in all_blocks(page) if test in block.tests]
    assert found, f"{page} has no block with <!-- test: {test} -->"
    return found


def pages_run_by(file: str) -> list[str]:
    """Return the pages with blocks that a test runs, for a test that runs the blocks of any page."""
    test = str(Path(file).resolve().relative_to(ROOT))
    return [page for page in PAGES if any(test in block.tests for block in all_blocks(page))]
