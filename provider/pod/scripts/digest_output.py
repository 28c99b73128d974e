"""Prints what identifies the files of a folder: the digest of their names and contents, their number and their bytes, as JSON.

The digest is that of the lines which `sha256sum` prints for all files in the order of their names, so anybody can compute it:
`find . -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum`. Runs as a program of its own, as `send_output` does.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable
from typing import Any

CHUNK = 2**20
ALIVE = 2**30
"""Bytes after which a reader that waits for an answer learns that it is still computed."""


def digest(root: str, alive: Callable[[], Any] = int) -> dict[str, Any]:
    """Return sha256, files and size (bytes) of the files below a folder. No link is followed. alive: Called now and then."""
    found, files, size = hashlib.sha256(), 0, 0
    for path in sorted(list_files(os.fsencode(root))):
        content, length = digest_file(path, alive)
        name = b"." + path[len(os.fsencode(root)) :]
        found.update(content.encode() + b"  " + name + b"\n")
        files, size = files + 1, size + length
    return {"sha256": found.hexdigest(), "files": files, "size": size}


def list_files(root: bytes) -> list[bytes]:
    found = []
    for folder, _, names in os.walk(root, onerror=fail):
        for name in names:
            path = os.path.join(folder, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                found.append(path)
    return found


def fail(error: OSError) -> None:
    raise error


def digest_file(path: bytes, alive: Callable[[], Any]) -> tuple[str, int]:
    found, size = hashlib.sha256(), 0
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        while True:
            data = file.read(CHUNK)
            if not data:
                return found.hexdigest(), size
            found.update(data)
            size += len(data)
            if size % ALIVE == 0:
                alive()


if __name__ == "__main__":
    try:
        # JSON may begin with empty lines.
        print(json.dumps(digest(sys.argv[1].rstrip("/"), lambda: print(flush=True))))
    except OSError as error:
        sys.exit(f"{os.fsdecode(error.filename)} cannot be read: {error.strerror}")
