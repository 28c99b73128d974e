"""Credentials from a program that the kubeconfig names: `aws eks get-token`, `gke-gcloud-auth-plugin`, `kubelogin`, ...

Protocol: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins, as in
plugin/pkg/client/auth/exec/exec.go of https://github.com/kubernetes/client-go/tree/v0.36.3. The official client logs a
failure and then sends requests without credentials; here it is an error with the program's output.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.client.masking import MASK, mask, secret_forms
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text

PLUGIN_SECONDS = 60.0
"""Seconds for the program; one that waits for a login is killed then."""
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_SHOWN = 1000
_TOKENS = re.compile(
    r"\b(eyJ[\w-]{8,}\.[\w-]+(\.[\w-]*)?|k8s-aws-v1\.[\w-]+|ya29\.[\w.-]+|[Bb]earer\s+\S+|[A-Za-z0-9+/_=-]{60,})"
)


def credentials(
    plugin: Mapping[str, Any], cluster: Mapping[str, Any], where: str
) -> tuple[dict[str, str], float | None]:
    """Run a credential plugin, which is `exec` of a kubeconfig's user.

    Returns:
        `user` fields of a kubeconfig with a token or a certificate, and when they expire (seconds since the epoch; None: never).
    """
    command = str(plugin.get("command") or "")
    version = str(plugin.get("apiVersion") or "")
    where = f"{where}: credential plugin {command}"
    if version not in _VERSIONS:
        hint = "generate the kubeconfig again with your provider's tool"
        raise TargetFault(Problem(where, f'its apiVersion "{version}" is not one of {", ".join(_VERSIONS)}', hint))
    if plugin.get("interactiveMode") == "Always":
        raise TargetFault(Problem(where, "requires a terminal (interactiveMode: Always), and this process has none"))
    status = _status(_run(plugin, command, _request(plugin, cluster, version), where), version, where)
    token = text(status.get("token"))
    certificate, key = text(status.get("clientCertificateData")), text(status.get("clientKeyData"))
    if not token and not (certificate and key):
        raise TargetFault(Problem(where, "answered without a token and without a certificate with its key"))
    found = {}
    if token:
        found["token"] = token
    if certificate and key:
        found["client-certificate-data"] = base64.b64encode(certificate.encode()).decode()
        found["client-key-data"] = base64.b64encode(key.encode()).decode()
    return found, _expiry(status, where)


def trimmed(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return the end of a program's output without tokens, for an error."""
    text = _TOKENS.sub(MASK, mask(text, secrets).strip())
    return text if len(text) <= _SHOWN else f"...{text[-_SHOWN:]}"


def _request(plugin: Mapping[str, Any], cluster: Mapping[str, Any], version: str) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        spec["cluster"] = {k: cluster[k] for k in names if cluster.get(k)}
        path = cluster.get("certificate-authority")
        if path and "certificate-authority-data" not in spec["cluster"]:
            try:
                spec["cluster"]["certificate-authority-data"] = base64.b64encode(Path(path).read_bytes()).decode()
            except OSError:
                pass  # reported when the connection is opened
        for extension in mappings(cluster.get("extensions")):
            if extension.get("name") == "client.authentication.k8s.io/exec":
                spec["cluster"]["config"] = extension.get("extension")
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})


def _run(plugin: Mapping[str, Any], command: str, request: str, where: str) -> str:
    """Return the output of a plugin; its standard error without secrets is in the error if it fails."""
    variables = {str(e.get("name")): str(e.get("value") or "") for e in mappings(plugin.get("env"))}
    environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": request}
    program = shutil.which(command, path=environment.get("PATH"))
    hint = str(plugin.get("installHint") or "").strip() or "install it, or choose another context"
    if not command or program is None:
        why = "is not on PATH"
        if os.sep in command:
            why = "program not found"
        raise TargetFault(Problem(where, why, hint))
    argv = [program, *map(str, plugin.get("args") or [])]
    secret_names = [name for name in variables if re.search("TOKEN|SECRET|PASSWORD|KEY", name.upper())]
    secrets = secret_forms(variables[name] for name in secret_names if len(variables[name]) >= 8)
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    try:
        process = subprocess.Popen(argv, env=environment, stdin=none, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise TargetFault(Problem(where, f"cannot be run: {error.strerror}", hint)) from None
    with process:
        try:
            output, errors = process.communicate(timeout=PLUGIN_SECONDS)
        except subprocess.TimeoutExpired as late:
            os.killpg(process.pid, signal.SIGKILL)  # its children too
            why = f"did not answer within {PLUGIN_SECONDS:g} s"
            message = trimmed((late.stderr or b"").decode(errors="replace"), secrets)
            if message:
                why += f"; its output: {message}"
            raise TargetFault(Problem(where, why, "run it in a terminal, it may need a login")) from None
    if process.returncode:
        message = trimmed(errors.decode(errors="replace"), secrets) or "no output on stderr"
        raise TargetFault(Problem(where, f"ended with exit code {process.returncode}: {message}"))
    return output.decode(errors="replace")


def _status(output: str, version: str, where: str) -> dict[str, Any]:
    """Return the status of a plugin's output. The output contains the credentials: no error quotes it."""
    try:
        answer = json.loads(output)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise TargetFault(Problem(where, "its output is not an ExecCredential"))
    if answer.get("apiVersion") != version:
        why = f'was asked for apiVersion {version}, but answered with "{trimmed(str(answer.get("apiVersion")))}"'
        raise TargetFault(Problem(where, why, "generate the kubeconfig again, or update the plugin"))
    return section(answer, "status")


def _expiry(status: Mapping[str, Any], where: str) -> float | None:
    given = text(status.get("expirationTimestamp"))
    if not given:
        return None
    try:
        return datetime.fromisoformat(re.sub(r"\.\d+", "", given).replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise TargetFault(Problem(where, "its expirationTimestamp is not a time")) from None
