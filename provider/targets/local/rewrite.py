"""Rewrites the mount paths, host names and ports of containers to those of this machine.

Containers run in the host's file system and network, so literal strings are rewritten: words of argv, values of
environment variables (not secret ones), func_args and what starts user code; in MPI's hostfile the host names.
The rules, all at word boundaries:

- Paths: a mount path, or a path below it, becomes the folder: `/workspace/output`, `--dir=/workspace/output/x`,
  `file:///workspace/output`, and in lists and scripts too; not `/workspace/outputs`, not `s3://b/workspace/output`. The longest
  mount path wins.
- Hosts: a pod's host name, with or without the subdomain (and `.<namespace>[.svc[.cluster.local]]`), becomes its address.
- Ports: only if a declared containerPort is in use on this machine, so that the job has another one. A number is a port only
  if its name implies it: the value of a variable that has the word PORT in its name
  (PET_MASTER_PORT), in argv that of an option whose name ends with the word `port` (`--master_port=29500`, `--port 29500`), and
  after a colon behind a host of the job, localhost, 127.0.0.1 or 0.0.0.0. Other equal numbers do not change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_BEFORE = r"(?:(?<![\w./-])|(?<=file://))"
_AFTER = r"(?![\w.-])"
_HOST = r"(?<![\w.-])(?<![^/]/)"
"""Precedes the name of a host."""


class Rewriter:
    """Rewrites the texts of one container."""

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
        self._path: re.Pattern[str] | None = None
        if longest:
            self._path = re.compile(f"{_BEFORE}({'|'.join(map(re.escape, longest))}){_AFTER}")
        start = _common(list(hosts))
        self._host = re.compile(rf"{_HOST}({re.escape(start)}[a-z0-9-]*)((?:\.[a-z0-9-]+)*)\.?(?![\w-])")
        ours = "|".join([r"localhost|127\.0\.0\.1|0\.0\.0\.0", *map(re.escape, hosts.values())])
        self._port: re.Pattern[str] | None = None
        if self._ports:
            self._port = re.compile(rf"{_HOST}((?:{ours}):)({'|'.join(self._ports)})(?![\w.-])")

    def path(self, text: str) -> str:
        """Rewrite only paths, for working directories and func_args."""
        if not self._path:
            return text
        return self._path.sub(lambda m: self._mounts[m[1]], text)

    def hosts(self, text: str) -> str:
        """Rewrite only host names, for hostfiles."""
        if not self._hosts:
            return text
        return self._host.sub(self._address, text)

    def value(self, name: str, text: str) -> str:
        """Rewrite the value of an environment variable."""
        if text in self._ports and "port" in _words(name):
            return self._ports[text]
        return self._text(text)

    def argv(self, words: Sequence[str]) -> list[str]:
        """Rewrite a command and its arguments."""
        done = []
        for before, word in zip(["", *words], words, strict=False):
            option, equals, value = word.partition("=")
            if word in self._ports and _is_port(before):
                done.append(self._ports[word])
            elif value in self._ports and _is_port(option):
                done.append(f"{option}{equals}{self._ports[value]}")
            else:
                done.append(self._text(word))
        return done

    def _text(self, text: str) -> str:
        text = self.path(self.hosts(text))
        if not self._port:
            return text
        return self._port.sub(lambda m: m[1] + self._ports[m[2]], text)

    def document(self, data: Any) -> Any:
        """Rewrite the paths in all strings of a JSON document, except keys."""
        if isinstance(data, dict):
            return {k: self.document(v) for k, v in data.items()}
        if isinstance(data, list):
            return [*map(self.document, data)]
        if not isinstance(data, str):
            return data
        return self.path(data)

    def _address(self, match: re.Match[str]) -> str:
        domain = match[2].lstrip(".")
        if match[1] in self._hosts and (not domain or domain in self._domains):
            return self._hosts[match[1]]
        return match[0]


def _words(name: str) -> list[str]:
    return re.split("[_-]", name.lower())


def _is_port(option: str) -> bool:
    return option.startswith("-") and _words(option)[-1] == "port"


def domains(subdomain: str, namespace: str) -> list[str]:
    """Return the domains that may follow a pod's host name."""
    inside = f"{subdomain}.{namespace}"
    return [subdomain, inside, f"{inside}.svc", f"{inside}.svc.cluster.local"]


def _common(names: list[str]) -> str:
    if not names:
        return ""
    low, high = min(names), max(names)
    for index, (a, b) in enumerate(zip(low, high, strict=False)):
        if a != b:
            return low[:index]
    return low  # the smaller one is a prefix of the larger one
