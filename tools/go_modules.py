"""Programs built from pinned Go modules: the Pulumi CLI, the components of the test cluster. Standard library only.

A folder with `go.mod` and `go.sum` pins what is built. Go's caches lie in a folder of ours; the settings of the machine (GOPROXY
and so on) hold. Used by pulumi_cli.py and cluster/build.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO


class Failed(Exception):
    """Go is missing, or refused; the text says what it said."""


def find() -> str:
    """The path of `go`."""
    go = shutil.which("go")
    if not go:
        raise Failed("no go on PATH")
    return go


def build(
    module: Path, packages: Sequence[str], flags: str, out: Path, caches: Path, say: Callable[[str], None],
    added: Mapping[Path, Path] | None = None,
) -> None:  # fmt: skip
    """`go build` without symbols and without this machine's paths.

    flags: for the linker, beside those.
    out: the program, or a folder (`Path` that exists) where there are several.
    added: source file of the module that is not there -> the one that is compiled as such.
    """
    argv = [find(), "build", "-v", "-mod=readonly", "-modcacherw", "-buildvcs=false", "-trimpath"]
    argv += ["-ldflags", f"-s -w {flags}".strip(), "-o", str(out)]
    with tempfile.TemporaryDirectory() as temporary:
        if added:
            overlay = Path(temporary, "overlay.json")
            overlay.write_text(json.dumps({"Replace": {str(old): str(new) for old, new in added.items()}}))
            argv += ["-overlay", str(overlay)]
        _run([*argv, *packages], module, caches, say, _count(module, packages, caches, say))


def _count(module: Path, packages: Sequence[str], caches: Path, say: Callable[[str], None]) -> int:
    """How many packages go into programs, those included that Go has compiled before; 0 if that cannot be read."""
    try:
        return len(_run([find(), "list", "-mod=readonly", "-deps", *packages], module, caches, say).splitlines())
    except Failed:  # the build says why
        return 0


def source(module: Path, path: str, caches: Path, say: Callable[[str], None]) -> Path:
    """The folder of a module of Go's cache, downloaded if need be, in the version that `module` pins."""
    answer = json.loads(_run([find(), "mod", "download", "-modcacherw", "-json", path], module, caches, say))
    if "Error" in answer:
        raise Failed(f"go mod download {path}: {answer['Error']}")
    return Path(answer["Dir"])


def _lines(log: IO[str]) -> int:
    """How many lines a file has that somebody else writes."""
    return os.pread(log.fileno(), 1 << 20, 0).count(b"\n")


def _run(argv: list[str], module: Path, caches: Path, say: Callable[[str], None], of: int = 0) -> str:
    """What the command prints; a line of progress every half a minute. of: At most how many packages `-v` prints."""
    env = {
        **os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOPATH": str(caches), "GOMODCACHE": str(caches / "mod"),
        "GOCACHE": str(caches / "build"), "TEST_TELEMETRY_DIR": str(caches / "telemetry"),
    }  # fmt: skip
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(argv, cwd=module, env=env, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
        try:
            while True:
                try:
                    code = process.wait(timeout=30)
                    break
                except subprocess.TimeoutExpired:
                    done = f", {_lines(log)} of at most {of} packages" if of else ""
                    say(f"still building ({time.monotonic() - begun:.0f} s{done})")
        finally:
            if process.poll() is None:  # interrupted
                process.terminate()
                process.wait()
        out.seek(0)
        log.seek(0)
        if code:
            raise Failed("\n    ".join([f"go {argv[1]} failed:", *log.read().splitlines()[-10:]]))
        return out.read()
