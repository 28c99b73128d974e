"""A package index on loopback that sends its one wheel in two halves: the second one when the test lets it."""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAME = "large-1-py3-none-any.whl"


@dataclass
class SlowIndex:
    """An index that has the package `large`.

    Attributes:
        url: URL of the index.
        go_on: Sends the second half of its wheel.
        downloads: How often the wheel was asked for.
    """

    url: str
    go_on: threading.Event
    downloads: int = 0


@contextmanager
def slow_index(folder: Path, size: int = 8_000_000) -> Iterator[SlowIndex]:
    """Serve the index, with the headers of PyPI about caching. folder: Place of the wheel; size: its bytes."""
    info, module = "large-1.dist-info", "large.py"
    file = folder / NAME
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("large.bin", os.urandom(size))
        made.writestr(module, "VERSION = '1'\n")
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: large\nVersion: 1\n")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = ["large.bin", module, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"]
        made.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    with zipfile.ZipFile(file) as read:
        metadata = read.read(f"{info}/METADATA")
    content, go_on = file.read_bytes(), threading.Event()
    index = SlowIndex("", go_on)
    link = f'<a href="/{NAME}" data-dist-info-metadata="true" data-core-metadata="true">{NAME}</a>'.encode()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            body, kind = link, "text/html"
            if self.path.endswith(".metadata"):
                body, kind = metadata, "text/plain"
            elif self.path.endswith(".whl"):
                body, kind = content, "application/zip"
                index.downloads += 1
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if body is not link:
                self.send_header("Cache-Control", "max-age=365000000, immutable, public")
            self.end_headers()
            half = len(body) // 2
            self.wfile.write(body[:half])
            if body is content:
                go_on.wait(120)
            self.wfile.write(body[half:])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
        yield index
    finally:
        go_on.set()
        server.shutdown()
        server.server_close()
