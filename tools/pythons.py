"""The oldest and the newest Python of this machine, and the unit tests on both. Run by `make test-pythons`, in `.venv`,
whose version is left out: `make test` runs them there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import setup
from alone import alone

Version = tuple[int, int]
OLDEST: Version = (3, 10)
NEWEST: Version = (3, 13)
ASK = "import sys, venv; v = sys.version_info; print(sys.implementation.name, v.major, v.minor, v.releaselevel)"


def found(folders: Iterable[Path]) -> dict[Version, Path]:
    """The first released CPython of each version that is new enough, of the programs python3.N in these folders."""
    answer: dict[Version, Path] = {}
    for folder in folders:
        for program in sorted(folder.glob("python3.*")):
            if (
                re.fullmatch(r"python3\.\d+", program.name)
                and (version := _version(program))
                and OLDEST <= version <= NEWEST
            ):
                answer.setdefault(version, program)
    return dict(sorted(answer.items()))


def folders() -> list[Path]:
    """Where Pythons are looked for: PATH, then pyenv's, of which its shims on PATH start only those in use."""
    path = [Path(p) for p in os.environ.get("PATH", "").split(os.pathsep) if p]
    pyenvs = [Path.home() / ".pyenv", *(p.parent for p in path if p.name == "shims")]
    return [*path, *(folder for pyenv in pyenvs for folder in sorted(pyenv.glob("versions/*/bin")))]


def _version(program: Path) -> Version | None:
    """None for what does not run, is not CPython, or is no release."""
    try:
        done = subprocess.run([program, "-c", ASK], capture_output=True, text=True, timeout=30, check=False)
        name, major, minor, level = done.stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return (int(major), int(minor)) if (name, level) == ("cpython", "final") else None


def unit_tests(version: Version) -> str:
    """What the unit tests print where they fail, else nothing."""
    venv, begun = _venv(version), time.monotonic()
    env = {**os.environ, "PATH": os.pathsep.join([str(venv / "bin"), os.environ["PATH"]]), "VIRTUAL_ENV": str(venv)}
    done = subprocess.run(
        [venv / "bin" / "python", "-m", "pytest", "tests/unit", "-q", "-p", "no:cacheprovider"],
        cwd=setup.ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        return f"{done.stdout}\ntest: the unit tests fail with {venv.name}"
    closing = done.stdout.rstrip().rpartition("\n")[2]  # pytest's counts
    print(f"test: the unit tests pass with {venv.name} ({time.monotonic() - begun:.0f} s)\n{closing}", flush=True)
    return ""


def _venv(version: Version) -> Path:
    return setup.ROOT / "build" / f"python{version[0]}.{version[1]}"


def main() -> None:
    """All environments first, as they share the links to the package; then one more at a time than there are cores, since
    many tests wait."""
    pythons = [*found(folders()).items()]
    oldest_and_newest = dict([*pythons[:1], *pythons[-1:]])
    others = {version: program for version, program in oldest_and_newest.items() if version != sys.version_info[:2]}
    with alone(setup.ROOT, setup.say):
        for version, program in others.items():
            setup.environment(_venv(version), program, "test")
    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        failures = [text for text in pool.map(unit_tests, others) if text]
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
