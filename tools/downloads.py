"""Official release archives: downloaded, compared with the pinned checksum, unpacked. Standard library only.

Used by pulumi_cli.py and cluster/build.py.
"""

from __future__ import annotations

import hashlib
import http.client
import platform
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

CONNECT = 5.0
"""Seconds without an answer after which a server is given up."""
ALGORITHMS = {64: "sha256", 128: "sha512"}
"""Length of a checksum -> what it is."""
_silent: dict[str, str] = {}
"""Host that did not answer -> why; nothing else is asked of it in this process."""


class Failed(Exception):
    """There is no such archive, or it is not the one that is pinned; the text says why."""


def checksums(file: Path) -> dict[str, str]:
    """Archive -> checksum, of a file as `sha256sum` and `sha512sum` write it; lines with # are comments."""
    lines = (line.split() for line in file.read_text().splitlines() if not line.startswith("#"))
    return {name: checksum for checksum, name in lines}


def system(amd64: str) -> str:
    """This machine in the names of archives, linux-arm64 for example; amd64: what the publisher calls x86-64."""
    machine = platform.machine().lower()
    names = {"x86_64": amd64, "amd64": amd64, "aarch64": "arm64"}
    return f"{platform.system().lower()}-{names.get(machine, machine)}"


def fetch(
    url: str, checksum: str, inside: str, folder: Path, say: Callable[[str], None], names: Collection[str] = ()
) -> None:
    """Puts programs of an archive into a folder, each a plain file `inside/NAME` of the archive.

    names: the programs; without them all that there are.

    Raises: Failed, OSError.
    """
    host = urlsplit(url).netloc
    if host in _silent:
        raise Failed(_silent[host])
    with tempfile.TemporaryFile(dir=folder) as archive:
        try:
            _download(url, archive, checksum, say)
        except urllib.error.HTTPError as error:
            raise Failed(f"HTTP {error.code} {error.reason}") from None
        except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            _silent[host] = f"{host} does not answer: {getattr(reason, 'strerror', None) or reason}"
            raise Failed(_silent[host]) from None
        try:
            _unpack(archive, PurePosixPath(inside), folder, names)
        except (tarfile.TarError, EOFError) as error:
            raise Failed(f"the archive cannot be read: {error}") from None


def _download(url: str, file: IO[bytes], checksum: str, say: Callable[[str], None]) -> None:
    digest = hashlib.new(ALGORITHMS[len(checksum)])
    with urllib.request.urlopen(url, timeout=CONNECT) as answer:
        size = int(answer.headers.get("Content-Length", 0)) // 10**6
        say(f"downloading {url}" + (f" ({size} MB)" if size else ""))
        while block := answer.read(1 << 20):
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != checksum:
        raise Failed(f"its {digest.name.upper()} is {digest.hexdigest()}, not {checksum}: refused")
    file.seek(0)


def _unpack(archive: IO[bytes], inside: PurePosixPath, folder: Path, names: Collection[str]) -> None:
    """Refuses an archive with a link, a device, or a path that leads out of it."""
    missing = set(names)
    with tarfile.open(fileobj=archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
                raise Failed(f"the archive holds something unexpected, {member.name!r}: refused")
            if not member.isfile() or path.parent != inside or (names and path.name not in names):
                continue
            missing.discard(path.name)
            content = tar.extractfile(member)
            assert content
            with (folder / path.name).open("wb") as file:
                shutil.copyfileobj(content, file)
            (folder / path.name).chmod(0o755)
    if missing:
        raise Failed(f"the archive holds no {', '.join(f'{inside}/{name}' for name in sorted(missing))}: refused")
