"""Draws docs/quickstart.svg, the picture of the README, from a run of the quickstart. Called by `make picture`, in `.venv`.

The run is a real one in a temporary folder, of more epochs than the example has, so that there is progress to see. The picture
has some lines of its output, with half of their indentation; an ellipsis stands for four lines and more between them.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pulumi_cli
import setup
from clone import Clone, environment
from rich.console import Console
from rich.text import Text

PICTURE = setup.ROOT / "docs" / "quickstart.svg"
COLUMNS = 96
EPOCHS = ('"epochs": 40', '"epochs": 1000')
PLAN = (
    r"trainer:index:TrainJob: \(create\)", r"trainer:JobSet: \(create\)", "ConfigMap/classifier", "func_args.json", "epochs:",
    "main.py", "JobSet/classifier", "replicatedJobs:", 'name +: "node"', "completions:", "parallelism:", '"PET_NNODES"', "value:",
    '"PET_MASTER_ADDR"', "value:", "image +:", "cpu +:", "memory:", "to create",
)  # fmt: skip
"""Expressions; each stands for the next line that it is found in."""
JOB = ("Diagnostics:", r"TrainJob \(classifier\):")
RESULT = ("Outputs:", "accuracy:", "phase +:", "seconds :", r"\d created", "Duration:")
PROGRESS = 5
"""How many of the lines about progress are in the picture."""


def main() -> None:
    """Run the quickstart and write the picture."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "digits")
        run(setup.VENV / "bin" / "pulumi-trainer", "init", folder)
        program = folder / "__main__.py"
        program.write_text(program.read_text().replace(*EPOCHS))
        env = environment(Clone(folder), pulumi_cli.ensure(setup.CACHE, setup.say), terminal=False)
        pulumi = ("pulumi", "--non-interactive", "--color", "always", "--cwd", folder)
        run(*pulumi, "stack", "init", "dev", env=env)
        preview = run(*pulumi, "preview", "--diff", env=env)
        update = run(*pulumi, "up", "--yes", "--skip-preview", env=env)
        run(*pulumi, "destroy", "--yes", "--skip-preview", env=env)
    shown = ["$ pulumi-trainer init digits && cd digits && pulumi stack init dev", "$ pulumi preview --diff"]
    shown += [*choose(preview, PLAN), "", "$ pulumi up --yes", *choose(update, JOB), *progress(update)]
    shown += ["", *choose(update, RESULT)]
    PICTURE.write_text(draw(shown), encoding="utf-8")


def run(*argv: str | Path, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the lines that a command prints. It has to succeed."""
    done = subprocess.run([str(a) for a in argv], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\npicture: failed: {' '.join(str(a) for a in argv)}")
    return done.stdout.splitlines()


def choose(lines: Sequence[str], expressions: Sequence[str]) -> Iterator[str]:
    """Yield the next line for each expression, and an ellipsis for the lines before it."""
    at = 0
    for expression in expressions:
        found = next((n for n in range(at, len(lines)) if re.search(expression, plain(lines[n]))), None)
        if found is None:
            sys.exit(f"picture: the output has no line with {expression}")
        indent = len(plain(lines[found])) - len(plain(lines[found]).lstrip())
        if found - at > 3:
            yield " " * (indent // 2) + "…"
        yield lines[found].replace(" " * indent, " " * (indent // 2), 1)
        at = found + 1


def progress(lines: Sequence[str]) -> list[str]:
    """Return some of the lines about the job, evenly spread, the first and the last among them."""
    found = [line.replace(" " * 4, " " * 2, 1) for line in lines if re.match(r" +classifier-\w+: ", plain(line))]
    step = (len(found) - 1) / (PROGRESS - 1)
    return [found[at] for at in sorted({round(n * step) for n in range(PROGRESS)})]


def plain(line: str) -> str:
    """Return a line without colours."""
    return Text.from_ansi(line).plain


def draw(lines: Sequence[str]) -> str:
    """Return an SVG of a terminal with these lines."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        text = Text(line, "bold") if line.startswith("$ ") else Text.from_ansi(line)
        console.print(text, no_wrap=True, overflow="ellipsis")
    drawn = console.export_svg(title="pulumi-trainer", unique_id="quickstart")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # a picture on a page loads no fonts


if __name__ == "__main__":
    main()
