"""kubeconfig as kubectl reads it: which files are read, how several are merged, which server and user a context has.

Rules: tools/clientcmd of https://github.com/kubernetes/client-go/tree/v0.36.3 (loader.go, client_config.go). The official
client differs: it takes the current context of the last file instead of the first, and reads a token file once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, section
from pulumi_trainer.provider.kubernetes.values.yaml_values import MAX_LENGTH, Unreadable, from_yaml

DEFAULT = "~/.kube/config"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token and the CA of its service account."""

_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}

CONTENT = 'give Kubernetes(content=pulumi.Config().require_secret("kubeconfig"))'
NO_FILE = "set KUBECONFIG, or give target=Kubernetes(kubeconfig=...)"
ELSEWHERE = (
    "`pulumi config set trainer:kubeconfig PATH` for another one (and `pulumi destroy --run-program`, which reads the"
    " configuration anew)"
)
"""What to do if credentials have moved or are rejected."""


@dataclass(frozen=True)
class Chosen:
    """The server and the user of a context. Contains secrets: never put it into a text."""

    where: str
    cluster: Mapping[str, Any] = field(repr=False)
    user: Mapping[str, Any] = field(repr=False)
    namespace: str = ""


def is_content(kubeconfig: str) -> bool:
    """Return whether a text is the content of a kubeconfig, which other providers accept, and not a path."""
    return "\n" in kubeconfig or kubeconfig.lstrip().startswith("{")


def choose_context(kubeconfig: str = "", content: str = "", context: str = "") -> Chosen:
    """Return the server and the user of a context.

    Args:
        kubeconfig: Path of a kubeconfig. Default: as kubectl, $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    """
    if content:
        return _of_context([("", _parsed(content, "the kubeconfig given as content"))], context)
    if is_content(kubeconfig):
        raise TargetFault(Problem("kubeconfig", "must be the path of a kubeconfig file, not its content", CONTENT))
    variable = kubeconfig or os.environ.get("KUBECONFIG", "")
    paths = [Path(kubeconfig).expanduser()]
    if not kubeconfig:
        paths = [Path(p).expanduser() for p in (variable or DEFAULT).split(os.pathsep) if p]
    files = []
    for path in paths:
        if kubeconfig or path.exists():
            files.append((str(path), _read(path)))
    if files:
        return _of_context(files, context)
    pod = _of_pod()
    if pod and not context:
        return pod
    tried = ", ".join(map(str, paths))
    hint = "set KUBECONFIG to an existing file" if variable else NO_FILE
    raise TargetFault(Problem("", f"no kubeconfig found: {tried} does not exist", hint))


def risks(path: Path) -> list[str]:
    """Return what a kubeconfig makes of whoever uses it: the programs that it starts, and files outside of its folder that it
    sends to a server.
    """
    found = []
    for user in _entries(_read(path), "user", str(path)).values():
        old = section(user, "auth-provider", "config")
        programs = ((section(user, "exec"), "command", "args"), (old, "cmd-path", "cmd-args"))
        for plugin, command, arguments in programs:
            if plugin.get(command):
                given = plugin.get(arguments) or []
                words = [plugin[command], *(given if isinstance(given, list) else [given])]
                found.append(f"run `{' '.join(map(str, words))}`")
        token = str(user.get("tokenFile") or "")
        if token and path.resolve().parent not in Path(token).resolve().parents:
            found.append(f"send the content of {token} to a server")
    return list(dict.fromkeys(found))


def _of_context(files: list[tuple[str, Document]], context: str) -> Chosen:
    """Return the server and the user of a context; of two entries of the same name the first counts."""
    contexts: dict[str, Document] = {}
    clusters, users = dict(contexts), dict(contexts)
    for path, config in reversed(files):
        contexts |= _entries(config, "context", path)
        clusters |= _entries(config, "cluster", path)
        users |= _entries(config, "user", path)
    currents = [str(config["current-context"]) for _, config in files if config.get("current-context")]
    name = next(iter([context, *currents] if context else currents), "")
    where = "kubeconfig (content)"
    if files[0][0]:
        where = "kubeconfig " + ":".join(path for path, _ in files)
    available = ", ".join(sorted(contexts)) or "none"
    if not name:
        raise TargetFault(Problem(where, "names no current context", f"choose one of: {available}"))
    if name not in contexts:
        raise TargetFault(Problem(where, f'has no context "{name}"', f"available: {available}"))
    found = contexts[name]
    where = f'{where}, context "{name}"'
    cluster = clusters.get(str(found.get("cluster") or ""), {})
    server = cluster.get("server")
    if not isinstance(server, str):
        raise TargetFault(Problem(where, f'its cluster "{found.get("cluster")}" has no entry with a server'))
    if not server.startswith(("https://", "http://")):
        raise TargetFault(Problem(where, "its server is not an https:// address"))
    if "@" in server:
        why, hint = "its server has credentials in its address", "give the user a token or a certificate"
        raise TargetFault(Problem(where, why, hint))
    user = str(found.get("user") or "")
    if user and user not in users:
        raise TargetFault(Problem(where, f'its user "{user}" has no entry'))
    return Chosen(where, cluster, users.get(user, {}), str(found.get("namespace") or ""))


def _entries(config: Document, kind: str, path: str) -> dict[str, Document]:
    """Return the entries of a kind by name, with absolute paths: relative ones start at the folder of the file, or at the current
    one."""
    folder = Path(path).absolute().parent if path else Path.cwd()
    found: dict[str, Document] = {}
    for named in mappings(config.get(f"{kind}s")):
        entry = dict(section(named, kind))
        for key in _FILES.get(kind, ()):
            if entry.get(key):
                entry[key] = str(folder / str(entry[key]))
        command = str(section(entry, "exec").get("command") or "")
        if os.sep in command:
            entry["exec"] = {**entry["exec"], "command": str(folder / command)}
        if "name" in named:
            found.setdefault(str(named["name"]), entry)
    return found


def _read(path: Path) -> Document:
    return _parsed(_text(path), f"kubeconfig {path}")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LENGTH + 1)
        if len(data) > MAX_LENGTH:
            why = f"is longer than {MAX_LENGTH >> 20} MiB: not a kubeconfig"
            raise TargetFault(Problem(f"kubeconfig {path}", why, ELSEWHERE))
        return data.decode()
    except UnicodeDecodeError:
        raise TargetFault(Problem(f"kubeconfig {path}", "is not text")) from None
    except OSError as error:
        raise TargetFault(Problem(f"kubeconfig {path}", f"cannot be read: {error.strerror}", ELSEWHERE)) from None


def _parsed(text: str, where: str) -> Document:
    """Return a kubeconfig's mapping. The YAML error would quote the text, tokens included, so the error only names the line."""
    found, line = None, None
    try:
        found = next(from_yaml(text), None)
    except (Unreadable, yaml.YAMLError, ValueError) as error:
        line = getattr(getattr(error, "problem_mark", error), "line", None)
    if not isinstance(found, dict):
        place = ""
        if line is not None:
            place = f" (line {min(line, text.rstrip(chr(10)).count(chr(10))) + 1})"
        raise TargetFault(Problem(where, f"is not a kubeconfig: not a YAML mapping{place}"))
    return found


def _of_pod() -> Chosen | None:
    """Return the service account of the pod in which this program runs; None outside a pod.

    https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    token, namespace = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "namespace"
    if not host or not port or not token.exists():
        return None
    if ":" in host:  # an IPv6 address
        host = f"[{host}]"
    cluster = {"server": f"https://{host}:{port}", "certificate-authority": str(SERVICE_ACCOUNT / "ca.crt")}
    name = ""
    if namespace.exists():
        name = _text(namespace).strip()
    return Chosen("service account of the pod", cluster, {"tokenFile": str(token)}, name)
