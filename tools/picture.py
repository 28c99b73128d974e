"""Draws the picture of the README from real runs in temporary folders. Called by `make picture`, in `.venv`.

docs/flow.svg shows how the program of the README becomes a plan with a JobSet, and runs on a laptop or on a cluster. It has some
lines of the output, with less indentation.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pulumi_cli
import setup
from clone import Clone, environment
from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

FLOW = setup.ROOT / "docs" / "flow.svg"
PULUMI = ("pulumi", "--non-interactive", "--color", "always")
FLOW_COLUMNS = 144
FLOW_PROGRAM = (
    r"^def train",
    r"DistributedDataParallel",
    r"print\(f",
    r"^torch_on_two_nodes",
    "func=train",
    r"^\)",
    r"^job = ",
)
"""Lines of the README's program: each expression stands for the next line that it is found in."""
FLOW_PLAN = (r"trainer:index:TrainJob: \(create\)", "ConfigMap/linear", "steps:", "main.py")
FLOW_JOBSET = ("JobSet/linear", 'name +: "node"', "completions:", "containers:", '"PET_NNODES"', "value:", "image +:")
FLOW_LAPTOP = (r"^    linear-\w+: Running", r"^    linear-\w+: Succeeded", r"\d created")
FLOW_CLUSTER = ("kind +: .kubernetes", '"PET_MASTER_ADDR"', "value:", "image +:", "to create")


def main() -> None:
    """Draw the picture."""
    FLOW.write_text(show_flow(), encoding="utf-8")


@contextmanager
def project() -> Iterator[tuple[Path, Callable[..., list[str]]]]:
    """Yield the folder of a quickstart with a stack of its own, and what runs a command there; then destroy the stack."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "digits")
        run(setup.VENV / "bin" / "pulumi-trainer", "init", folder)
        env = environment(Clone(folder), pulumi_cli.ensure(setup.CACHE, setup.say), terminal=False)
        in_folder = partial(run, cwd=folder, env=env)
        in_folder(*PULUMI, "stack", "init", "dev")
        yield folder, in_folder
        in_folder(*PULUMI, "destroy", "--yes", "--skip-preview")


def show_flow() -> str:
    """Run the README's program here, plan it for a cluster, and return the picture of its way."""
    text = re.search(r"^```python\n(.*?)^```", (setup.ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert text, "the README has no program"
    with project() as (folder, in_folder):
        (folder / "__main__.py").write_text(text[1])
        preview = in_folder(*PULUMI, "preview", "--diff")
        update = in_folder(*PULUMI, "up", "--yes", "--skip-preview")
        logs = in_folder(setup.VENV / "bin" / "pulumi-trainer", "logs", "linear")
        in_folder(*PULUMI, "stack", "init", "cluster")
        in_folder(*PULUMI, "config", "set", "trainer:target", "kubernetes")
        cluster = in_folder(*PULUMI, "preview", "--diff")
        in_folder(*PULUMI, "stack", "select", "dev")
    ranks = [line for line in logs if "rank" in line]
    jobset = pane("JobSet", (), planned(choose(preview, FLOW_JOBSET)))
    plan = pane("plan: pulumi preview --diff", (), planned(choose(preview, FLOW_PLAN)), jobset)
    laptop = pane(
        "laptop: pulumi up", [*outline(choose(update, FLOW_LAPTOP)), "", "$ pulumi-trainer logs linear", *ranks]
    )
    on_cluster = pane("cluster: trainer:target kubernetes", (), planned(choose(cluster, FLOW_CLUSTER)))
    grid = Table.grid(padding=(0, 1))
    for _ in range(3):
        grid.add_column(ratio=1, vertical="middle")
        grid.add_column(vertical="middle")
    program = pane("program", choose(text[1].splitlines(), FLOW_PROGRAM))
    grid.add_row(program, "▶", plan, "▶", Group(laptop, Text("or", justify="center"), on_cluster))
    return draw([grid], FLOW_COLUMNS, "program, plan, JobSet, laptop or cluster", "flow")


def outline(lines: Iterable[str]) -> Iterator[str]:
    """Yield these lines without ellipses, with two spaces for each level of indentation and one after each key."""
    levels: list[int] = []
    for line in lines:
        text = plain(line)
        if text.strip() == "…":
            continue
        indent = len(text) - len(text.lstrip())
        levels = [*(level for level in levels if level < indent), indent]
        yield " " * 2 * (len(levels) - 1) + re.sub(r" *: +", ": ", text.strip(), count=1)


def pane(title: str, lines: Iterable[str], *below: RenderableType) -> Panel:
    """Return a frame with a title around these lines, which are folded at its border, and what is below them."""
    return Panel(Group(*map(Text, lines), *below), title=title, title_align="left", box=ROUNDED)


def planned(lines: Iterable[str]) -> Group:
    """Return lines of a plan, in the colour of what it creates and cut at the border of their frame."""
    return Group(*(Text(line, "green", no_wrap=True, overflow="ellipsis") for line in outline(lines)))


def run(*argv: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the lines that a command prints. It has to succeed."""
    done = subprocess.run([str(a) for a in argv], cwd=cwd, env=env, capture_output=True, text=True, check=False)
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


def plain(line: str) -> str:
    """Return a line without colours."""
    return Text.from_ansi(line).plain


def draw(parts: Iterable[RenderableType], columns: int, title: str, name: str) -> str:
    """Return an SVG of a terminal that shows these parts below each other."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for part in parts:
        console.print(part, no_wrap=True, overflow="ellipsis")
    drawn = console.export_svg(title=title, unique_id=name)
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL)  # a picture on a page loads no fonts


if __name__ == "__main__":
    main()
