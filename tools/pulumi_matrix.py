"""Runs the unit tests, the core of the engine's tests and one test of a cluster with the oldest and the newest tested releases of
Pulumi. Called by `make test-pulumi`, in `.venv`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pulumi_cli
import setup
from alone import alone

RELEASES = {"oldest": None, "newest": pulumi_cli.newest}
"""Name of a file of pinned packages in tools/pulumi -> function that returns the folder of the CLI; None for that of set-up."""
SUITES = {
    "the unit tests": ("-n", "3", "--dist=worksteal", "tests/unit"),
    "the core of the engine's tests": ("-n", "3", "--dist=worksteal", "-m", "core", "tests/engine"),
    "a job in a cluster": ("tests/cluster/test_up.py::test_a_job_is_made_once_and_all_of_it_goes",),
}
"""What is tested -> pytest's arguments."""


def pins(release: str) -> Path:
    """The file with the pinned packages of a release."""
    return pulumi_cli.MODULE / f"{release}.txt"


def environment(release: str) -> dict[str, str]:
    """Variables in which programs run with a release; makes its virtual environment and gets its CLI first if need be."""
    venv = setup.ROOT / "build" / f"pulumi-{release}"
    with alone(setup.ROOT, setup.say):
        setup.environment(venv, sys.executable, "test")
        installing = ("pip", "install", "--quiet", "--python", venv / "bin" / "python", "--requirements", pins(release))
        setup.run(setup.uv(), *installing, env=setup.indexes())
    find_cli = RELEASES[release]
    folders = [venv / "bin", *([find_cli(setup.CACHE, setup.say)] if find_cli else [])]
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(venv)}


def describe(release: str, env: dict[str, str]) -> str:
    """Return the versions of a release's packages and CLI."""
    asked = subprocess.run(["pulumi", "version"], env=env, capture_output=True, text=True, check=True)
    pinned = re.findall(r"^([\w-]+)==(\S+)", pins(release).read_text(), re.MULTILINE)
    return ", ".join(" ".join(pin) for pin in (*pinned, ("CLI", asked.stdout.strip().removeprefix("v"))))


def run_suites(release: str, env: dict[str, str]) -> list[str]:
    """Run all suites with a release, whatever fails; return a line for each that failed."""
    versions, failures = describe(release, env), []
    for suite, arguments in SUITES.items():
        begun = time.monotonic()
        print(f"test: {suite} with {versions}", flush=True)
        argv = ["python", "-m", "pytest", "-p", "no:cacheprovider", "--durations=3", *arguments]
        if subprocess.run(argv, cwd=setup.ROOT, env=env, check=False).returncode:
            failures.append(f"test: {suite} failed with {versions}")
        print(f"test: {suite} took {time.monotonic() - begun:.0f} s", flush=True)
    return failures


def newer_releases(env: dict[str, str]) -> str:
    """Return a line about what the package index serves beyond the newest tested releases."""
    file = pins("newest")
    names = re.findall(r"^[\w-]+(?===)", file.read_text(), re.MULTILINE)
    argv = [setup.uv(), "pip", "install", "--dry-run", "--no-deps", "--upgrade", *names]
    asked = subprocess.run(argv, env={**env, **setup.indexes()}, capture_output=True, text=True, check=False)
    if asked.returncode:
        return "test: unknown whether newer releases are served: the package index does not answer"
    if served := re.findall(r"^ \+ (\S+)", asked.stderr, re.MULTILINE):
        return f"test: {' and '.join(served)} is served but not tested: pin it in {file.relative_to(setup.ROOT)}"
    return "test: the package index serves no newer release"


def main() -> None:
    """Test the releases one after the other; exit code 1 if a suite failed."""
    try:
        environments = {release: environment(release) for release in RELEASES}
    except pulumi_cli.Unavailable as error:
        sys.exit(f"test: {error}")
    failures = [line for release, env in environments.items() for line in run_suites(release, env)]
    print(newer_releases(environments["newest"]), flush=True)
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
