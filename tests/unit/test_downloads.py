"""Official archives of the test cluster are taken where the checksum is right; otherwise the component is built."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from downloads_support import member, pack, served

from tools import downloads
from tools.cluster import build

URL = "http://{host}/thing-v1.2-linux-amd64.tar.gz"
PROGRAMS = [
    (member("./thing/bin/a"), b"a"),
    (member("thing/bin/b"), b"b"),
    (member("thing/bin/b.tar"), b"left out"),
    (member("thing/deeper/bin/a"), b"left out"),
    (member("other"), b"left out"),
]
GO = '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done\necho built > "$out/a"\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a component with the programs a and b that has an archive on linux-amd64, which this machine is; Go is not there."""
    module = tmp_path / "module" / "thing"
    module.mkdir(parents=True)
    (module / "go.mod").touch()
    (tmp_path / "path").mkdir()
    thing = build.Component("thing", ("example.org/a", "example.org/b"), 2, archive=("thing", "thing/bin"))
    for name, value in {
        "MODULES": tmp_path / "module", "CACHE": tmp_path / "cache", "RELEASES": tmp_path / "releases.sha512",
        "COMPONENTS": {"thing": thing}, "CONTROL_PLANE": ("thing",), "NODES": (),
    }.items():  # fmt: skip
        monkeypatch.setattr(build, name, value)
    monkeypatch.setattr(downloads, "system", lambda amd64: f"linux-{amd64}")
    monkeypatch.setattr(downloads, "_silent", {})
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path / "cache"


@pytest.fixture
def publish(tmp_path: Path, cache: Path) -> Iterator[Callable[..., str]]:
    """Serves an archive with these members, whose checksum is pinned if no other one is given; its URL."""
    folder = tmp_path / "served"
    folder.mkdir()
    with served(folder) as server:
        url = URL.format(host=server.removeprefix("http://"))

        def publish(*members: tuple[tarfile.TarInfo, bytes], checksum: str = "") -> str:
            file = folder / url.rpartition("/")[2]
            pack(file, *members)
            checksum = checksum or hashlib.sha512(file.read_bytes()).hexdigest()
            build.RELEASES.write_text(f"# where from\n{checksum}  {url.replace('amd64', 'arm64')}\n{checksum}  {url}\n")
            return url

        yield publish


def go(cache: Path) -> None:
    """Puts a `go` on PATH that builds the program a."""
    file = cache.parent / "path" / "go"
    file.write_text(GO)
    file.chmod(0o755)


def refusal() -> str:
    with pytest.raises(build.Unavailable) as error:
        build.built(["thing"], lambda text: None)
    assert not build.folder("thing").exists() and [path.name for path in build.CACHE.iterdir()] == ["locks"]
    return str(error.value)


def test_the_programs_of_an_archive_are_taken_and_nothing_is_built(cache: Path, publish: Callable[..., str]) -> None:
    url, said = publish(*PROGRAMS), list[str]()
    folder = build.built(["thing"], said.append)["thing"]
    assert {file.name: file.read_text() for file in (folder / "bin").iterdir()} == {"a": "a", "b": "b"}
    assert all(os.access(file, os.X_OK) for file in (folder / "bin").iterdir())
    assert said[1:] == [f"downloading {url}"]
    assert {*cache.iterdir()} == {folder, cache / "locks"}, "nothing temporary is left"
    assert build.built(["thing"], pytest.fail)["thing"] == folder


def test_without_an_archive_the_same_folder_is_built(cache: Path, publish: Callable[..., str]) -> None:
    url, said = publish(checksum="0" * 128), list[str]()
    go(cache)
    folder = build.built(["thing"], said.append)["thing"]
    assert (folder / "bin" / "a").read_text() == "built\n"
    assert said[0] == "1 of 1 components are missing: at most 2 minutes on 2 cores, once"
    assert said[2].startswith("no official archive of thing: its SHA512 is ")
    assert said[3] == "building a, b: about 2 minutes"
    publish(*PROGRAMS)
    assert build.folder("thing") == folder, f"it is the same, whether it is built or comes from {url}"


def test_an_archive_with_another_checksum_is_refused_and_both_reasons_are_told(publish: Callable[..., str]) -> None:
    url = publish(*PROGRAMS, checksum="0" * 128)
    text = refusal()
    assert re.search(rf"official archive: {re.escape(url)}: its SHA512 is [0-9a-f]{{128}}, not 0{{128}}: refused", text)
    assert "Go modules: no go on PATH\nHint: install Go >= 1.26" in text


@pytest.mark.parametrize(
    "bad",
    [
        member("thing/bin/../../outside"),
        member("../outside"),
        member("/tmp/outside"),
        member("thing/bin/a", tarfile.SYMTYPE, "/etc/passwd"),
        member("thing/bin/c", tarfile.LNKTYPE, "thing/bin/a"),
        member("thing/device", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name} {info.linkname}",
)
def test_an_archive_with_a_link_or_a_path_out_of_it_is_refused(
    publish: Callable[..., str], tmp_path: Path, bad: tarfile.TarInfo
) -> None:
    publish(*PROGRAMS, (bad, b""))
    assert "the archive holds something unexpected" in refusal()
    assert not list(tmp_path.rglob("outside"))


def test_an_archive_without_one_of_the_programs_is_refused(publish: Callable[..., str]) -> None:
    publish(PROGRAMS[0])
    assert "the archive holds no thing/bin/b: refused" in refusal()


def test_a_page_that_is_missing_says_so(publish: Callable[..., str], tmp_path: Path) -> None:
    publish(*PROGRAMS)
    for file in (tmp_path / "served").iterdir():
        file.unlink()
    assert "thing-v1.2-linux-amd64.tar.gz: HTTP 404 File not found" in refusal()


def test_a_host_that_does_not_answer_is_asked_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "CONNECT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        for path in ("one", "two"):
            with pytest.raises(downloads.Failed, match=f"^{host} does not answer: timed out$"):
                downloads.fetch(f"http://{host}/{path}", "0" * 128, "thing", tmp_path, pytest.fail)
            monkeypatch.setattr(downloads, "_download", pytest.fail)


def test_a_machine_for_which_no_archive_is_pinned(publish: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    publish(*PROGRAMS)
    monkeypatch.setattr(downloads, "system", lambda amd64: "plan9-mips")
    assert "official archive: none is pinned for plan9-mips" in refusal()


def test_what_is_pinned_has_a_sha_512_and_serves_two_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = downloads.checksums(build.RELEASES)
    assert all(re.fullmatch("[0-9a-f]{128}", checksum) for checksum in pinned.values())
    found = set()
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr(downloads.platform, "system", lambda: "Linux")
        monkeypatch.setattr(downloads.platform, "machine", lambda machine=machine: machine)
        releases = [build._release(component) for component in build.COMPONENTS.values() if component.archive]
        assert None not in releases
        found |= {release[0] for release in releases if release}
    assert found == set(pinned), "each archive is some component's"
