"""What linters do not check of our code: dense expressions, words that are not the field's, and arguments without a description.

CONTRIBUTING.md, "Style", has the rules.

python tools/style.py components provider runtimes
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import messages

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

DENSEST = 35
"""Most comprehensions, conditional and assignment expressions per 1,000 lines."""

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


class Module(NamedTuple):
    """A module of ours: its name and its code."""

    name: str
    tree: ast.Module

    @classmethod
    def read(cls, folder: Path, path: Path, tree: ast.Module) -> Module:
        """Return a module named as imports do: `components/args/project.py` is `pulumi_trainer.args.project`."""
        root = ("pulumi_trainer",) if folder.name == "components" else ("pulumi_trainer", folder.name)
        parts = path.relative_to(folder).with_suffix("").parts
        name = root + (parts[:-1] if parts[-1] == "__init__" else parts)
        return cls(".".join(name), tree)

    def imports(self) -> dict[str, tuple[str, str]]:
        """Return the names of ours that this module imports, with the module and the name that each comes from."""
        found: dict[str, tuple[str, str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pulumi_trainer"):
                found |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
        return found


PUBLIC = ("pulumi_trainer", "pulumi_trainer.client", "pulumi_trainer.plugins", "pulumi_trainer.provider.pod.training")
"""Modules that programs import."""
EXPORTING = ("pulumi_trainer", "pulumi_trainer.plugins")
"""Those of them whose imports programs use."""


def undescribed(modules: Mapping[Path, Module]) -> Iterator[tuple[Path, int, str]]:
    """Yield path, line and reason of each function that programs import, and that does not describe all of its arguments."""
    exporting = [module for module in modules.values() if module.name in EXPORTING]
    exported = {origin for module in exporting for origin in module.imports().values()}
    for path, module in modules.items():
        for node in module.tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name.startswith("_"):
                continue
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if len(names) < 2 or (module.name not in PUBLIC and (module.name, node.name) not in exported):
                continue
            described = re.findall(r"^    (\w+): ", (ast.get_docstring(node) or "").partition("\nArgs:\n")[2], re.M)
            if missing := [name for name in names if name not in described]:
                yield path, node.lineno, f"{node.name}: describe {', '.join(missing)} below `Args:`"


def main(folders: list[str]) -> int:
    found, lines, heavy = 0, 0, 0
    modules: dict[Path, Module] = {}
    texts = {path: Path(folder) for folder in folders for path in Path(folder).rglob("*.py")}
    for path, folder in sorted(texts.items()):
        text = path.read_text()
        tree = ast.parse(text)
        modules[path] = Module.read(folder, path, tree)
        lines += text.count("\n")
        heavy += weight(tree)
        for line, why in sorted([*dense(tree), *words(text), *phrases(tree, text)]):
            found += 1
            print(f"{path}:{line}: {why}")
    for path, line, why in undescribed(modules):
        found += 1
        print(f"{path}:{line}: {why}")
    share = heavy * 1000 / lines
    print(
        f"{found} found; {share:.0f} dense expressions per 1,000 lines of {lines}, of at most {DENSEST}",
        file=sys.stderr,
    )
    return 1 if found or share > DENSEST else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
