"""What linters do not check of our code: dense expressions, and words that are not the field's (CONTRIBUTING.md, "Style").

python tools/style.py components provider runtimes
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import messages

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

WORDS = {
    "mend": "hint, fix",
    "mends": "hints, fixes",
    "told": "reported",
    "wish": "spec, desired",
    "see there": "the name of the place",
    "vanished": "deleted externally",
    "glance": "cached status, snapshot",
}
"""Words of a private vocabulary, with what the field says instead."""
PATTERN = re.compile(rf"(?<![a-zA-Z])({'|'.join(WORDS)})(?![a-zA-Z])")

PHRASES = {
    r"can be no [a-z]\w*": "not a valid ...",
    r"\b(?:is|are) no (?!longer\b|more\b|such\b)[a-z]\w*": "not a ..., no ... found",
    r"\bthere (?:is|are) (?:none|no)\b": "no ... found, ... does not exist",
    r"\bno (?:YAML|JSON|TOML|PEM)\b": "not valid ...",
    r"\bis there twice\b": "duplicate",
    r"\bfor ever\b": "forever",
    r"\bin vain\b": "what happens instead",
    r"\bis wanted\b": "expected ...",
    r"\bstands?\b": "is, appears",
    r"\bsays? (?:more|so|what|why|how)\b": "explains, shows",
    r"\bsay\b": "set, name, report",
    r"\bsaid\b": "reported",
    r"\bhave against\b": "reject",
    r"\b(?:done|be had|handed out) locally\b": "not supported by the Local target",
}
"""Phrases of a private vocabulary in texts for users, as regular expressions, with what the field says instead."""


def dense(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and reason of each expression that should be several steps with names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            inner = [n for n in ast.walk(node) if isinstance(n, ast.IfExp) and n is not node]
            if inner:
                yield node.lineno, "a conditional expression inside another one"
        if isinstance(node, COMPREHENSIONS):
            if len(node.generators) > 1:
                yield node.lineno, "a comprehension with more than one `for`"
            if any(len(g.ifs) > 1 for g in node.generators):
                yield node.lineno, "a comprehension with more than one `if`"
            if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
                yield node.lineno, "an assignment expression inside a comprehension"


def weight(tree: ast.AST) -> int:
    """Return the number of comprehensions, conditional expressions and assignment expressions."""
    return sum(isinstance(n, (*COMPREHENSIONS, ast.IfExp, ast.NamedExpr)) for n in ast.walk(tree))


def words(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and hint for each word of the list, in names, texts and comments; not where a line ends with `# style: kept`."""
    if not PATTERN.search(text):
        return
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.NAME, tokenize.STRING, tokenize.COMMENT):
            continue
        if lines[token.start[0] - 1].endswith("# style: kept"):
            continue
        for word in dict.fromkeys(PATTERN.findall(token.string)):
            yield token.start[0], f"{word!r}: say {WORDS[word]}"


def phrases(tree: ast.AST, text: str) -> Iterator[tuple[int, str]]:
    """Yield line and hint for each phrase of the list in strings other than docstrings."""
    lines = text.splitlines()
    for node in messages.strings(tree, messages.docstrings(tree)):
        if any(line.endswith("# style: kept") for line in lines[node.lineno - 1 : node.end_lineno]):
            continue
        for pattern, instead in PHRASES.items():
            if phrase := re.search(pattern, messages.source(node)):
                yield node.lineno, f"{phrase[0]!r}: say {instead}"


def main(folders: list[str]) -> int:
    found, lines, heavy = 0, 0, 0
    for path in sorted(p for folder in folders for p in Path(folder).rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        lines += text.count("\n")
        heavy += weight(tree)
        for line, why in sorted([*dense(tree), *words(text), *phrases(tree, text)]):
            found += 1
            print(f"{path}:{line}: {why}")
    print(f"{found} found; {heavy * 1000 / lines:.0f} dense expressions per 1,000 lines of {lines}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
