"""What `make test-frameworks` installs, and what it says where it may not."""

from __future__ import annotations

from pathlib import Path

import debian
import pytest


def program(folder: Path, name: str, text: str = "exit 0") -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH; bubblewrap is wanted on Linux only."""
    monkeypatch.setattr(debian, "WANTED", {"mpirun": "openmpi-bin"})
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_nothing_is_done_where_mpirun_is(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(path, "mpirun")
    program(path, "apt-get", "exit 1")
    debian.main()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("root", "sudo"), [(False, False), (False, True), (True, True)])
def test_it_says_what_to_install_by_hand(path: Path, monkeypatch: pytest.MonkeyPatch, root: bool, sudo: bool) -> None:
    """No apt-get, and no right to use it: sudo would ask for a password."""
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    if sudo:
        program(path, "sudo", "exit 1")
    if not root:
        program(path, "apt-get", "echo installed >&2; exit 9")
    with pytest.raises(SystemExit, match=r"mpirun is not on PATH.*sudo apt-get install openmpi-bin"):
        debian.main()


def test_it_installs_once(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (path / "env").symlink_to("/usr/bin/env")
    mpirun = f'printf "#!/bin/sh\\n" > {path}/mpirun; /bin/chmod +x {path}/mpirun'
    install = f'echo "$@" >> {path}/asked; case "$*" in *install*) {mpirun};; *) exit 100;; esac'
    program(path, "apt-get", install)
    debian.main()
    asked = (path / "asked").read_text().splitlines()
    assert [line.split()[-1] for line in asked] == ["update", "openmpi-bin"] and "--yes" in asked[1]
    assert capsys.readouterr().out == "setup: installing openmpi-bin\n"
    debian.main()
    assert (path / "asked").read_text().splitlines() == asked


def test_a_failed_installation_shows_what_apt_has_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (path / "env").symlink_to("/usr/bin/env")
    program(path, "apt-get", 'case "$*" in *install*) echo "E: no such package"; exit 100;; esac')
    with pytest.raises(SystemExit, match=r"(?s)E: no such package.*sudo apt-get install openmpi-bin"):
        debian.main()


def test_sudo_never_asks_for_a_password() -> None:
    assert all(argv[:2] == ["sudo", "-n"] for argv in debian.commands(["x"], root=False))
