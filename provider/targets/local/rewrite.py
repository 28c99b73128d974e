"""Turns what a container would see (mount paths, host names, ports) into what is there on this machine.

Containers run in the host's file system and network, so literal strings are rewritten: words of argv, values of
environment variables (not secret ones), func_args and what starts user code; in MPI's hostfile the host names.
The rules, all at word boundaries:

- Paths: a mount path, or what lies below it, becomes the folder: `/workspace/output`, `--dir=/workspace/output/x`,
  `file:///workspace/output`, and in lists and scripts too; not `/workspace/outputs`, not `s3://b/workspace/output`. The longest
  mount path wins.
- Hosts: a pod's host name, with or without the subdomain (and `.<namespace>[.svc[.cluster.local]]`), becomes its address.
- Ports: only where a declared containerPort is taken on this machine, so that the job was given another one. Then a value
  that is exactly the port, `host:port` anywhere, and in argv also `--option=port` and a word after `--...port`.

Called by `plan`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_BEFORE = r"(?:(?<![\w./-])|(?<=file://))"
_AFTER = r"(?![\w.-])"


class Rewriter:
    """mounts: mount path -> folder or file. hosts: pod host name -> address. ports: declared port -> port in use."""

    def __init__(
        self,
        mounts: Mapping[str, str],
        hosts: Mapping[str, str],
        domains: Sequence[str] = (),
        ports: Mapping[int, int] | None = None,
    ) -> None:
        self._mounts = {path.rstrip("/"): folder for path, folder in mounts.items()}
        self._hosts = hosts
        self._domains = frozenset(domains)
        self._ports = {str(a): str(b) for a, b in (ports or {}).items() if a != b}
        longest = sorted(self._mounts, key=len, reverse=True)
        self._path = re.compile(f"{_BEFORE}({'|'.join(map(re.escape, longest))}){_AFTER}") if longest else None
        start = _common(list(hosts))
        self._host = re.compile(rf"(?<![\w.-])(?<![^/]/)({re.escape(start)}[a-z0-9-]*)((?:\.[a-z0-9-]+)*)\.?(?![\w-])")
        self._port = re.compile(rf"(?<=:)({'|'.join(self._ports)})(?![\w.-])") if self._ports else None

    def path(self, text: str) -> str:
        """Paths alone: for working directories and func_args."""
        return self._path.sub(lambda m: self._mounts[m[1]], text) if self._path else text

    def hosts(self, text: str) -> str:
        """Host names alone: for hostfiles."""
        return self._host.sub(self._address, text) if self._hosts else text

    def value(self, text: str) -> str:
        """The value of an environment variable."""
        if text in self._ports:
            return self._ports[text]
        text = self.path(self.hosts(text))
        return self._port.sub(lambda m: self._ports[m[1]], text) if self._port else text

    def argv(self, words: Sequence[str]) -> list[str]:
        """A command and its arguments."""
        done = []
        for i, word in enumerate(words):
            option, equals, value = word.partition("=")
            if word in self._ports:
                names_port = i > 0 and words[i - 1].startswith("-") and words[i - 1].lower().endswith("port")
                done.append(self._ports[word] if names_port else word)
            elif equals and value in self._ports and option.startswith("-"):
                done.append(f"{option}={self._ports[value]}")
            else:
                done.append(self.value(word))
        return done

    def document(self, data: Any) -> Any:
        """Every string of a JSON document, keys excepted."""
        if isinstance(data, dict):
            return {k: self.document(v) for k, v in data.items()}
        if isinstance(data, list):
            return [self.document(v) for v in data]
        return self.path(data) if isinstance(data, str) else data

    def _address(self, match: re.Match[str]) -> str:
        domain = match[2].lstrip(".")
        if match[1] in self._hosts and (not domain or domain in self._domains):
            return self._hosts[match[1]]
        return match[0]


def domains(subdomain: str, namespace: str) -> list[str]:
    """What may follow a pod's host name."""
    inside = f"{subdomain}.{namespace}"
    return [subdomain, inside, f"{inside}.svc", f"{inside}.svc.cluster.local"]


def _common(names: list[str]) -> str:
    if not names:
        return ""
    low, high = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:same]
