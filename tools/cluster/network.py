"""The network of a cluster's real nodes: one box is a hub, to which this machine and each node have a link.

A cluster has 16 networks of 254 addresses, by its first port, so that many clusters can run at once: one for the nodes, one for
the pods of each node. Routes instead of rules: pods keep their addresses, and reach this machine and no other. The links end with
the boxes. Called by nodes.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from . import ports

MOST = 15
"""Nodes of a cluster."""


@dataclass(frozen=True)
class Network:
    """Addresses of a cluster. port: its first one, which no other cluster has."""

    port: int

    @property
    def _first(self) -> int:
        return (self.port - ports.FIRST) // ports.BLOCK * (MOST + 1)

    def _part(self, index: int) -> str:
        number = self._first + index
        return f"10.{100 + number // 256}.{number % 256}"

    @property
    def machine(self) -> str:
        """This machine, and with it the API server."""
        return f"{self._part(0)}.1"

    @property
    def hub(self) -> str:
        """The hub: names and images."""
        return f"{self._part(0)}.2"

    def node(self, index: int) -> str:
        """A node, from 1."""
        return f"{self._part(0)}.{10 + index}"

    def pods(self, index: int) -> str:
        """All pods of a node."""
        return f"{self._part(index)}.0/24"

    @property
    def all(self) -> str:
        """Nodes and pods."""
        return f"{self._part(0)}.0/20"


def connect(network: Network, link: str, hub: int) -> None:
    """The hub to this machine. link: name of its end here. hub: its first process."""
    _ip(
        [
            f"link add {link} type veth peer name machine netns {hub}",
            f"address add {network.machine}/24 dev {link}",
            f"link set {link} up",
            f"route add {network.all} via {network.hub}",
        ]
    )
    _ip(
        [
            "link add nodes type bridge",
            "link set machine master nodes up",
            f"address add {network.hub}/24 dev nodes",
            "link set nodes up",
        ],
        hub,
    )


def attach(network: Network, index: int, hub: int, node: int) -> None:
    """A node to the hub. node: its first process."""
    _ip(
        [
            f"link add node{index} type veth peer name eth0 netns {node}",
            f"link set node{index} master nodes up",
            f"route replace {network.pods(index)} via {network.node(index)}",
        ],
        hub,
    )
    _ip(
        [f"address add {network.node(index)}/24 dev eth0", "link set eth0 up", f"route add default via {network.hub}"],
        node,
    )


def disconnect(link: str) -> None:
    """Removes what is left of a hub whose box has ended; its kernel does that too, later."""
    subprocess.run(["ip", "link", "delete", link], stderr=subprocess.DEVNULL, check=False)


def _ip(lines: Sequence[str], pid: int | None = None) -> None:
    argv = ["ip", "-batch", "-"]
    if pid:
        argv = ["nsenter", "--target", str(pid), "--net", "--", *argv]
    done = subprocess.run(argv, input="\n".join(lines), text=True, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"ip: {done.stderr.strip()}")
