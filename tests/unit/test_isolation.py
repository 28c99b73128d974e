"""What an isolated container is given: the options of bubblewrap. `frameworks/test_isolation.py` runs it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.targets.local import isolation
from pulumi_trainer.provider.targets.local.isolation import WRITABLE, Isolation, Options, Source, find_isolation
from pulumi_trainer.provider.targets.local.paths import open_contained
from pulumi_trainer.provider.targets.local.plan import ContainerPlan, _source_of

HOME = "/home/user"


def binds(options: Options) -> dict[str, str]:
    """Path -> option of each mount from the machine; what a job writes to has a `Source`."""
    found = {}
    for number, word in enumerate(options):
        if word in ("--bind-fd", "--ro-bind-fd", "--ro-bind", "--ro-bind-try"):
            source, path = options[number + 1 : number + 3]
            assert (source.path if isinstance(source, Source) else source) in (path, "/dev/null")
            assert isinstance(source, Source) == word.endswith("-fd")
            found[str(path)] = str(word)
    return found


def sources(*paths: str) -> dict[str, Source]:
    return {path: Source.of(Path(path), Path("/jobs")) for path in paths}


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
    given = {path: Source.of(Path(folder), Path("/jobs")) for path, folder in folders.items()}
    own = dict.fromkeys(sources("/jobs/a/pods/p/scratch", "/jobs/a/environments").values(), WRITABLE)
    options = known.options({"volumeMounts": mounts}, volumes, given, own)
    found = binds(options)
    assert [found[path] for path in folders.values()] == ["--ro-bind-fd", "--bind-fd", "--ro-bind-fd"]
    assert found["/jobs/a/pods/p/scratch"] == found["/jobs/a/environments"] == "--bind-fd"
    assert found["/home/user/.pyenv"] == found["/usr"] == "--ro-bind-try"
    assert "/" not in found and HOME not in found and "/run" not in found
    own = [path for path in found if path.startswith("/jobs/")]
    assert own == sorted(own, key=lambda path: path.count("/")), "a folder hides what was mounted within it before"
    hidden = Isolation((), ("/opt/home", "/opt/home/project"), Path("/opt/home/project/e"))
    order = [hidden.options({}, [], {}, {}).index(path) for path in ("/opt", "/opt/home", "/opt/home/project")]
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
    with isolation.wrapped(["/bin/true"], {"TOKEN": "secret"}, Path("/"), []) as (argv, (descriptor,)):
        assert str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/memfd:")
        assert b"TOKEN\0secret\0" in os.pread(descriptor, 1000, 0) and "secret" not in " ".join(argv)


def test_an_initializer_sees_the_data_of_this_machine_that_it_fetches(tmp_path: Path) -> None:
    data, link = tmp_path / "data", tmp_path / "link"
    data.mkdir()
    link.symlink_to(data)

    def options(name: str, uri: str) -> list[str | Source]:
        plan = ContainerPlan(name, "main", [], {"STORAGE_URI": uri}, tmp_path, {})
        return [*_source_of(plan)]

    source = Source(str(data), str(data), "/")
    assert options("dataset-initializer", f"file://{data}") == ["--ro-bind-fd", source, str(data)]
    assert options("model-initializer", f"file://{link}")[3:] == ["--ro-bind-fd", source, str(link)]
    assert options("node", f"file://{data}") == options("dataset-initializer", "hf://a/b") == []
    assert options("dataset-initializer", f"file://{tmp_path}/none") == []


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
class TestSources:
    """What `open_contained` opens: never what a link in a folder of a job leads to outside its volume."""

    def opens(self, path: Path, volume: Path, root: Path) -> Path:
        descriptor = open_contained(str(path), str(volume), str(root))
        try:
            return Path(f"/proc/self/fd/{descriptor}").readlink()
        finally:
            os.close(descriptor)

    def test_volumes_and_what_is_in_them(self, tmp_path: Path) -> None:
        volume, link = tmp_path / "root" / "volume", tmp_path / "link"
        (volume / "v3").mkdir(parents=True)
        (volume / "v3" / "file").touch()
        (volume / "latest").symlink_to("v3")
        (volume / "absolute").symlink_to(volume / "v3")
        link.symlink_to(tmp_path / "root")
        for root in (tmp_path / "root", link):
            place = root / "volume"
            assert self.opens(place, place, root) == volume
            assert self.opens(place / "latest/file", place, root) == volume / "v3/file"
            assert self.opens(place / "absolute", place, root) == volume / "v3"
        assert self.opens(link, link, link) == tmp_path / "root", "a hostPath that is a link is the user's own"
        with pytest.raises(FileNotFoundError, match=f"{volume}/none"):
            self.opens(volume / "none", volume, tmp_path / "root")

    @pytest.mark.parametrize("target", ["{}", "../../private", "..", "loop"])
    @pytest.mark.parametrize("place", ["volume/loop", "volume", ""])
    def test_a_link_that_leads_out_is_refused(self, tmp_path: Path, place: str, target: str) -> None:
        private, root = tmp_path / "private", tmp_path / "root"
        for folder in (private, private / "loop", private / "volume/loop", root / "pod/volume/loop"):
            folder.mkdir(parents=True, exist_ok=True)
        replaced = root / "pod" / place
        replaced.rename(tmp_path / "moved")
        replaced.symlink_to(target.format(private))
        with pytest.raises(OSError, match=r"leads out of its volume|replaced by a link|No such file"):
            self.opens(root / "pod/volume/loop", root / "pod/volume", root)

    def test_a_link_that_appears_meanwhile_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        private, volume, real = tmp_path / "private", tmp_path / "volume", os.path.realpath
        (volume / "a/b").mkdir(parents=True)
        (private / "b").mkdir(parents=True)

        for name in ("a", "a/b"):

            def resolve_and_replace(path: str, name: str = name) -> str:
                resolved = real(path)
                if path.endswith("a/b"):
                    (volume / name).rename(tmp_path / f"moved{len(name)}")
                    (volume / name).symlink_to(private)
                return resolved

            monkeypatch.setattr(os.path, "realpath", resolve_and_replace)
            with pytest.raises(OSError, match=r"was replaced by a link|Not a directory"):
                self.opens(volume / "a/b", volume, tmp_path)
            (volume / name).unlink()
            (volume / "a/b").mkdir(parents=True, exist_ok=True)
