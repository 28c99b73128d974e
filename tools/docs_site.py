"""Adds to the docs site (mkdocs.yml) the pages that are not in docs/: the reference, examples, files of the repository.

Links that leave docs/ lead to these pages; a link to a file that has no page keeps its text only.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

import docs_reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FILES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "reporting.md"}
"""Files of the repository -> their pages."""

REFERENCE = "docs/reference.md"
"""Page of the repository in place of the reference: anchors of links to it are names of pages that are made from the code."""

HOME = {"README.md": "index.md"}
"""Files that a page stands for without having their text."""

_SHOWN = {".py": "python", ".toml": "toml", ".txt": "text", ".yaml": "yaml"}
_IDENTIFIER = re.compile(r"<code>([^<\s/[(]{1,30})</code>(?=(?:(?!<td|</tr>).)*</td>)", re.S)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for path, text in {**pages(), **docs_reference.pages()}.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Make the links of a page in docs/ lead to pages."""
    path = page.file.src_uri
    if page.file.generated_by:
        return markdown
    text = docs_reference.with_anchors(markdown) if path == "warnings.md" else markdown
    return with_links_to_pages(text, f"docs/{path}", path)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Mark the identifiers in tables, which must not be broken, and name the search for screen readers."""
    output = _IDENTIFIER.sub(r'<code class="whole">\1</code>', output)
    return output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )


def pages() -> dict[str, str]:
    """Return the added pages by their paths in the site."""
    found = {page: with_links_to_pages((ROOT / file).read_text(), file, page) for file, page in FILES.items()}
    for folder in example_folders():
        page = f"{folder.as_posix()}.md"
        text = (ROOT / folder / "README.md").read_text() + _files_of(folder)
        found[page] = with_links_to_pages(text, f"{folder.as_posix()}/README.md", page)
    return found


def example_folders() -> list[Path]:
    """Return the folders of examples that have a README, relative to the repository."""
    return sorted(file.parent.relative_to(ROOT) for file in (ROOT / "examples").rglob("README.md"))


def _files_of(folder: Path) -> str:
    """Return the program of an example as code blocks."""
    parts = [f"\n\n## Files of {folder.as_posix()}\n"]
    for file in sorted((ROOT / folder).rglob("*")):
        name = file.relative_to(ROOT / folder)
        is_local = "venv" in name.parts or re.fullmatch(r"Pulumi\..+\.yaml", file.name)
        if file.suffix in _SHOWN and not is_local:
            parts.append(f"\n`{name.as_posix()}`\n\n````{_SHOWN[file.suffix]}\n{file.read_text().rstrip()}\n````\n")
    return "".join(parts)


def with_links_to_pages(text: str, source: str, page: str) -> str:
    """Return Markdown whose relative links are those of the site.

    Args:
        text: Markdown.
        source: Path of its file in the repository, to which its links are relative.
        page: Path of its page in the site.
    """

    def replaced(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        path, mark, anchor = target.partition("#")
        if not path or ":" in path:
            return found[0]
        file = os.path.normpath(PurePosixPath(source).parent / path)
        if file == REFERENCE and anchor:
            return f"[{label}]({os.path.relpath(f'reference/{anchor}.md', PurePosixPath(page).parent)})"
        to = page_of(file)
        return f"[{label}]({os.path.relpath(to, PurePosixPath(page).parent)}{mark}{anchor})" if to else label

    return _LINK.sub(replaced, text)


def page_of(file: str) -> str:
    """Return the page of a file or folder of the repository; empty if it has none."""
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    if page := {**FILES, **HOME}.get(file):
        return page
    folder = Path(file)
    shown = [each for each in (folder, *folder.parents) if each in example_folders()]
    return f"{shown[0].as_posix()}.md" if shown else ""
