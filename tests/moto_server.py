"""moto's server, which stands for S3."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from moto.server import ThreadedMotoServer


@contextmanager
def moto_server(address: str = "127.0.0.1") -> Iterator[str]:
    """Yield the URL of a server at an address of this machine. Its buckets are in this process; the end removes them."""
    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    url = f"http://{address}:{server.get_host_and_port()[1]}"
    yield url
    urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST")).close()
    server.stop()
