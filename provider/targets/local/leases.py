"""Leases addresses, ports and GPUs of this machine to jobs. The death of a job's supervisor releases its leases.

On Linux, leases are abstract sockets in the network namespace: jobs of other users, and of the same user with another home,
respect them too. Any process can create such a socket, so a leased address is used again if all are leased: no process can keep
jobs from starting. A leased GPU is not, because two jobs on it would run out of memory. The lease of a GPU is also a locked file
in ~/.cache/pulumi-trainer/leases, which names the job; jobs with the same home respect it in all network namespaces. On other
systems, all leases are files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from pulumi_trainer.provider.kubernetes.terminal import plain_field
from pulumi_trainer.provider.machine.user_cache import cache_folder
from pulumi_trainer.provider.targets.local.machine import LINUX, listed_gpus
from pulumi_trainer.provider.targets.local.paths import FILE_MODE, make_folder, translate_os_errors

FIRST, LAST = 64, 191
"""Range of the second byte of leased addresses: 127.64.0.0 to 127.191.255.255, in blocks of 254."""
BLOCK = 254
FIRST_PORT = 20_000
"""First port that replaces a declared one: below are the usual ports of services."""
ELSEWHERE = "a job with another home folder"
"""Owner of a GPU that a job of another user, or of another home of this user, has."""
OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""First and last port that Linux gives to outgoing connections."""


class Leases:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_folder() / "leases"
        with translate_os_errors(self._folder):
            make_folder(self._folder, self._folder)
        self._leases: dict[str, Callable[[], None]] = {}

    def addresses(self, names: Sequence[str], seed: str) -> dict[str, str]:
        """Lease an address for each name. Linux accepts connections on all of 127/8; elsewhere all names share 127.0.0.1."""
        if not LINUX:
            return dict.fromkeys(names, "127.0.0.1")
        blocks = (LAST - FIRST + 1) * 256
        first = zlib.crc32(seed.encode()) % blocks
        in_turn = [divmod((first + i) % blocks, 256) for i in range(blocks)]
        free = (block for block in in_turn if self._take_name(f"address-{FIRST + block[0]}-{block[1]}"))
        found: dict[str, str] = {}
        for high, low in chain(free, in_turn):  # leased addresses, if no others are left
            for n, name in enumerate(names[len(found) : len(found) + BLOCK], 1):
                found[name] = f"127.{FIRST + high}.{low}.{n}"
            if len(found) == len(names):
                break
        return found

    def ports(self, declared: Iterable[int]) -> dict[int, int]:
        """Lease each declared port, or another one if it is in use; return declared port -> port in use."""
        in_use: dict[int, int] = {}
        for port in sorted(set(declared)):
            if self._take_port(port):
                in_use[port] = port
            else:
                in_use[port] = self._other_port()
        return in_use

    def _other_port(self) -> int:
        """Return a free port, leased if one of a hundred attempts succeeds.

        A port of outgoing connections comes last: before the job binds it, the kernel may give it to a connection of any program.
        """
        own = range(FIRST_PORT, _first_outgoing_port())
        for port in random.sample(own, min(100, len(own))):
            if self._take_port(port):
                return port
        port = 0
        for _ in range(100):
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind(("", 0))
                port = int(probe.getsockname()[1])
            if self._take_port(port):
                break
        return port

    def _take_port(self, port: int) -> bool:
        name = f"port-{port}"
        if not self._take_name(name):
            return False
        if not _free(port):
            self._leases.pop(name)()
            return False
        return True

    def gpus(self, count: int, usable: Iterable[int], owner: str = "") -> tuple[list[int], list[str]]:
        """Lease `count` of the GPUs with these indices.

        All are leased at once: two jobs that each have a part would wait for each other forever.

        Args:
            usable: Indices of the GPUs that the job may have.

        Returns:
            The indices of the leased GPUs, none if too few are free; and the names of the jobs that have the others.
        """
        usable, uuids = [*usable], listed_gpus()
        all_ = os.open(self._folder / "gpus", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(all_, fcntl.LOCK_EX)
            taken = [i for i in usable if self._take_gpu(i, uuids.get(i, ""))]
            leased = taken[:count] if len(taken) >= count else []
            for i in taken[len(leased) :]:
                self._leases.pop(f"gpu-{i}")()
            if len(taken) < count:
                owners = [self._owner(i) for i in usable if i not in taken]
                return [], [*dict.fromkeys(filter(None, owners))]
            for i in leased:
                (self._folder / f"gpu-{i}").write_text(owner, encoding="utf-8")
        finally:
            os.close(all_)
        return leased, []

    def _take_gpu(self, index: int, uuid: str) -> bool:
        """Take the lease of a GPU by its UUID, since it may have another index in a container, and return whether it was free."""
        file, name = f"gpu-{index}", f"gpu-of-machine-{uuid or index}"
        if not self._take_file(file):
            return False
        if not self._take_name(name):
            (self._folder / file).write_text(ELSEWHERE, encoding="utf-8")
            self._leases.pop(file)()
            return False
        self._leases[file] = partial(_call_all, [self._leases.pop(name), self._leases.pop(file)])
        return True

    def _owner(self, gpu: int) -> str:
        with suppress(OSError):
            return plain_field((self._folder / f"gpu-{gpu}").read_text(encoding="utf-8", errors="replace"), 300)
        return ""

    def _take_name(self, name: str) -> bool:
        """Take a lease that all jobs of the network respect, and return whether it was free."""
        if not LINUX:
            return self._take_file(name)
        lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lease.bind(f"\0pulumi-trainer-{name}")
        except OSError as error:
            lease.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        self._leases[name] = lease.close
        return True

    def _take_file(self, name: str) -> bool:
        lease = os.open(self._folder / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lease)
            return False
        self._leases[name] = partial(os.close, lease)
        return True

    def release(self) -> None:
        for give_back in self._leases.values():
            give_back()
        self._leases.clear()


def _call_all(functions: Iterable[Callable[[], None]]) -> None:
    for each in functions:
        each()


def _first_outgoing_port() -> int:
    """Return the first port of outgoing connections; where it is not known, Linux's default, which is below that of others."""
    try:
        return int(OUTGOING_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def _free(port: int) -> bool:
    """Return whether no process listens on a port of any address. PyTorch's store listens on all addresses."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
    return True
