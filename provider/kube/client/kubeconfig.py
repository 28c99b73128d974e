"""kubeconfig as kubectl reads it: which files count, how several are merged, which server and which user a context means.

Rules: tools/clientcmd of https://github.com/kubernetes/client-go/tree/v0.36.3 (loader.go, client_config.go). The official
client differs: it takes the current context of the last file instead of the first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.kube.errors import Problem, TargetFault
from pulumi_trainer.provider.kube.values.yaml_values import MAX_LENGTH, Unreadable, from_yaml

DEFAULT = "~/.kube/config"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token and the CA of its service account."""

_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}

CONTENT = 'give Kubernetes(content=pulumi.Config().require_secret("kubeconfig"))'
ELSEWHERE = (
    "`pulumi config set trainer:kubeconfig PATH` for another one (and `pulumi destroy --run-program`, which reads the"
    " configuration anew)"
)
"""What to do where credentials have moved or are refused."""


@dataclass(frozen=True)
class Chosen:
    """One server and who we are there.

    where: how errors call it. cluster, user: as in a kubeconfig, paths absolute. namespace: of the context, empty if it has
    none. Holds secrets: never in a text.
    """

    where: str
    cluster: Mapping[str, Any] = field(repr=False)
    user: Mapping[str, Any] = field(repr=False)
    namespace: str = ""


def is_content(kubeconfig: str) -> bool:
    """Whether it is a kubeconfig itself, as providers take it, and no path."""
    return "\n" in kubeconfig or kubeconfig.lstrip().startswith("{")


def chosen(kubeconfig: str = "", content: str = "", context: str = "") -> Chosen:
    """What `context` means, or the current context; of a file, of the content of one, or of what kubectl would read here:
    $KUBECONFIG, then ~/.kube/config, then the service account of the pod. Raises TargetFault."""
    if content:
        return _of_context([("", _parsed(content, "the kubeconfig given as content"))], context)
    if is_content(kubeconfig):
        raise TargetFault(Problem("kubeconfig", "is the content of a kubeconfig, and a path is wanted here", CONTENT))
    if kubeconfig:
        paths, named = [Path(kubeconfig).expanduser()], True
    else:
        named = bool(os.environ.get("KUBECONFIG"))
        listed = os.environ.get("KUBECONFIG") or DEFAULT
        paths = [Path(p).expanduser() for p in listed.split(os.pathsep) if p]
    files = [(str(p), _parsed(_text(p), f"kubeconfig {p}")) for p in paths if kubeconfig or p.exists()]
    if not files:
        if (pod := _of_pod()) and not context:
            return pod
        tried = ", ".join(map(str, paths))
        mend = (
            "point KUBECONFIG to a file that is there"
            if named
            else "set KUBECONFIG, or give Kubernetes(kubeconfig=...)"
        )
        raise TargetFault(Problem("kubeconfig", f"there is none: {tried} does not exist", mend))
    return _of_context(files, context)


def _of_context(files: list[tuple[str, dict[str, Any]]], context: str) -> Chosen:
    """The first file that names something wins."""
    name = context or next((str(c["current-context"]) for _, c in files if c.get("current-context")), "")
    where = "kubeconfig " + ":".join(path for path, _ in files) if files[0][0] else "kubeconfig (content)"
    names = ", ".join(sorted({str(c["name"]) for _, config in files for c in _entries(config, "contexts")})) or "none"
    if not name:
        raise TargetFault(Problem(where, "names no current context", f"choose one of: {names}"))
    found = _named(files, "contexts", "context", name)
    if found is None:
        raise TargetFault(Problem(where, f'has no context "{name}"', f"it has: {names}"))
    where = f'{where}, context "{name}"'
    cluster = _named(files, "clusters", "cluster", str(found.get("cluster") or ""))
    if cluster is None or not isinstance(cluster.get("server"), str):
        raise TargetFault(Problem(where, f'its cluster "{found.get("cluster")}" has no entry with a server'))
    if not cluster["server"].startswith(("https://", "http://")):
        raise TargetFault(Problem(where, "its server is no https:// address"))
    if "@" in cluster["server"]:
        why, mend = "its server has credentials in its address", "give the user a token or a certificate"
        raise TargetFault(Problem(where, why, mend))
    wanted = str(found.get("user") or "")
    user = _named(files, "users", "user", wanted) if wanted else {}
    if user is None:
        raise TargetFault(Problem(where, f'its user "{wanted}" has no entry'))
    return Chosen(where, cluster, user, str(found.get("namespace") or ""))


def _named(files: list[tuple[str, dict[str, Any]]], list_: str, key: str, name: str) -> dict[str, Any] | None:
    for path, config in files:
        for entry in _entries(config, list_):
            if str(entry["name"]) == name:
                found = entry.get(key)
                return _absolute(found if isinstance(found, dict) else {}, key, path)
    return None


def _absolute(entry: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    """With the paths of a file taken from its folder; those of a content from here."""
    here = Path(path).absolute().parent
    moved: dict[str, Any] = {k: str(here / str(entry[k])) for k in _FILES.get(key, ()) if entry.get(k)}
    plugin = entry.get("exec") if key == "user" else None
    command = str(plugin.get("command") or "") if isinstance(plugin, dict) else ""
    if isinstance(plugin, dict) and os.sep in command:
        moved["exec"] = {**plugin, "command": str(here / command)}
    return {**entry, **moved}


def _entries(config: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = config.get(name)
    return [e for e in (found if isinstance(found, list) else []) if isinstance(e, dict) and "name" in e]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_LENGTH + 1)
        if len(data) > MAX_LENGTH:
            why = f"is longer than {MAX_LENGTH >> 20} MiB: not a kubeconfig"
            raise TargetFault(Problem(f"kubeconfig {path}", why, ELSEWHERE))
        return data.decode()
    except UnicodeDecodeError:
        raise TargetFault(Problem(f"kubeconfig {path}", "is no text")) from None
    except OSError as error:
        raise TargetFault(Problem(f"kubeconfig {path}", f"cannot be read: {error.strerror}", ELSEWHERE)) from None


def _parsed(text: str, where: str) -> dict[str, Any]:
    """An error of the YAML would quote the text, tokens included: only its line is told."""
    found, line = None, -1
    try:
        found = next(from_yaml(text), None)
    except Unreadable as error:
        line = error.line
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else -1
    except (yaml.YAMLError, ValueError):
        pass
    if not isinstance(found, dict):
        last = text.rstrip("\n").count("\n")
        place = f" (line {min(line, last) + 1})" if line >= 0 else ""
        raise TargetFault(Problem(where, f"is no kubeconfig: not a YAML mapping{place}"))
    return found


def _of_pod() -> Chosen | None:
    """The service account of the pod in which we run. https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    token, authority, namespace = (SERVICE_ACCOUNT / name for name in ("token", "ca.crt", "namespace"))
    if not host or not port or not token.exists():
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Chosen(
        "service account of the pod",
        {"server": server, "certificate-authority": str(authority)},
        {"tokenFile": str(token)},
        _text(namespace).strip() if namespace.exists() else "",
    )
