"""What an isolated container is given: the options of bubblewrap. `frameworks/test_isolation.py` runs it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from pulumi_trainer.provider.kube.errors import TargetFault
from pulumi_trainer.provider.targets.local import isolation
from pulumi_trainer.provider.targets.local.isolation import Isolation, find_isolation
from pulumi_trainer.provider.targets.local.plan import ContainerPlan, _source_of

HOME = "/home/user"


def binds(options: tuple[str, ...]) -> dict[str, str]:
    """Path -> option of each mount from the machine."""
    found = {}
    for number, word in enumerate(options):
        if word in ("--bind", "--ro-bind", "--ro-bind-try"):
            assert options[number + 1] in (options[number + 2], "/dev/null")
            found[options[number + 2]] = word
    return found


def test_volumes_are_mounted_as_kubernetes_lets_a_container_write() -> None:
    volumes = [
        {"name": "code", "configMap": {"name": "c"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
    ]
    mounts = [
        {"name": "code", "mountPath": "/code"},
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/input", "subPath": "in", "readOnly": True},
    ]
    folders = {"/code": "/jobs/a/pods/p/volumes/code", "/data": "/jobs/v/data", "/input": "/jobs/v/data/in"}
    known = Isolation(("/home/user/.pyenv",), (HOME, "/jobs"), Path("/jobs/a/environments"))
    options = known.options({"volumeMounts": mounts}, volumes, folders, [Path("/jobs/a/pods/p")])
    found = binds(options)
    assert [found[path] for path in folders.values()] == ["--ro-bind", "--bind", "--ro-bind"]
    assert found["/jobs/a/pods/p"] == found["/jobs/a/environments"] == "--bind"
    assert found["/home/user/.pyenv"] == found["/usr"] == "--ro-bind-try"
    assert "/" not in found and HOME not in found and "/run" not in found
    own = [path for path in found if path.startswith("/jobs/")]
    assert own == sorted(own, key=lambda path: path.count("/")), "a folder hides what was mounted within it before"
    hidden = Isolation((), ("/opt/home", "/opt/home/project"), Path("/opt/home/project/e"))
    order = [hidden.options({}, [], {}, []).index(path) for path in ("/opt", "/opt/home", "/opt/home/project")]
    assert order == sorted(order), "a home folder below a folder of the system is hidden"
    assert options.index("/jobs") < options.index("/jobs/v/data")
    assert options.index(HOME) < options.index("/home/user/.pyenv")


def test_what_is_readable_never_includes_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "lib").mkdir(parents=True)
    monkeypatch.setattr(isolation, "_folders_of", lambda *_: ["/", str(tmp_path), str(home), str(home / "lib")])
    certificates = str(home / "ca.pem")
    found = find_isolation(
        [sys.executable], {"HOME": str(home), "SSL_CERT_FILE": certificates}, tmp_path / "root", tmp_path / "envs"
    )
    assert certificates in found.readable and str(home / "lib") in found.readable
    assert not {"/", str(tmp_path), str(home)} & {*found.readable}
    assert found.environment({"XDG_CACHE_HOME": "x", "PATH": "y"}) == {"PATH": "y"}


def test_a_link_in_a_folder_of_the_system_is_mounted_where_it_leads_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system, home = tmp_path / "usr", tmp_path / "usr" / "home"
    for name in ("cuda-13.0", "home/cuda-13.0"):
        (system / name).mkdir(parents=True)
    (system / "cuda").symlink_to(system / "cuda-13.0")
    (home / "cuda").symlink_to(home / "cuda-13.0")
    monkeypatch.setattr(isolation, "_SYSTEM", (str(system),))
    variables = {"HOME": str(home), "CUDA_HOME": str(system / "cuda"), "CUDA_PATH": str(home / "cuda")}
    found = find_isolation([sys.executable], variables, tmp_path / "root", tmp_path / "envs")
    assert str(system / "cuda-13.0") in found.readable and str(system / "cuda") not in found.readable
    assert str(home / "cuda") in found.readable, "the home folder is hidden, with its links"


def test_an_interpreter_that_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(TargetFault, match="does not report where its packages are"):
        find_isolation([shutil.which("true") or "true"], {}, tmp_path, tmp_path)


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "needs Linux" in str(isolation.problems()[0])
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "bwrap is not on PATH. Hint: install it" in str(isolation.problems()[0])
    (tmp_path / "bwrap").symlink_to(sys.executable)
    (tmp_path / "env").write_text(f"#!{shutil.which('sh', path=os.defpath)}\nexit 3\n")
    (tmp_path / "env").chmod(0o755)
    assert "bwrap does not work here: exit code 3" in str(isolation.problems()[0])
    (tmp_path / "env").unlink()
    assert "bwrap cannot be started" in str(isolation.problems()[0])


def test_what_only_root_may_read(tmp_path: Path) -> None:
    for name, mode in (("shadow", 0o600), ("passwd", 0o644), ("keys", 0o700), ("open", 0o755)):
        file = tmp_path / name
        file.mkdir() if name in ("keys", "open") else file.touch()
        (file / "key").touch() if file.is_dir() else None
        file.chmod(mode)
    (tmp_path / "open/key").chmod(0o640)
    assert sorted(isolation._private_paths(tmp_path)) == [
        str(tmp_path / "keys"),
        str(tmp_path / "open/key"),
        str(tmp_path / "shadow"),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_the_environment_of_a_container_is_never_on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation.shutil, "which", lambda name: f"/usr/bin/{name}")
    with isolation.wrapped(["/bin/true"], {"TOKEN": "secret"}, Path("/"), []) as (argv, descriptor):
        assert str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/memfd:")
        assert b"TOKEN\0secret\0" in os.pread(descriptor, 1000, 0) and "secret" not in " ".join(argv)


def test_an_initializer_sees_the_data_of_this_machine_that_it_fetches(tmp_path: Path) -> None:
    data, link = tmp_path / "data", tmp_path / "link"
    data.mkdir()
    link.symlink_to(data)

    def options(name: str, uri: str) -> list[str]:
        plan = ContainerPlan(name, "main", [], {"STORAGE_URI": uri}, tmp_path, {})
        return [*_source_of(plan)]

    assert options("dataset-initializer", f"file://{data}") == ["--ro-bind", str(data), str(data)]
    assert options("model-initializer", f"file://{link}")[3:] == ["--ro-bind", str(data), str(link)]
    assert options("node", f"file://{data}") == options("dataset-initializer", "hf://a/b") == []
    assert options("dataset-initializer", f"file://{tmp_path}/none") == []
