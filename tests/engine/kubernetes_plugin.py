"""Stands in for the plugin of pulumi-kubernetes, which a machine without Go or the network does not have.

It sends the requests of the plugin: a server-side apply without force by a field manager of each resource's own, and deletions by
name (pulumi-kubernetes v4.32.0, provider/pkg/await/await.go).
"""

from __future__ import annotations

import json
import secrets
import sys
import urllib.error
import urllib.request
from concurrent import futures
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ClusterQueue": "clusterqueues",
    "NetworkPolicy": "networkpolicies",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
MANAGER = "__fieldManager"


def plain(given: struct_pb2.Struct) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(given)
    return found


def struct(given: Any) -> struct_pb2.Struct:
    return ParseDict(given, struct_pb2.Struct())


def path_of(document: dict[str, Any]) -> str:
    kind, metadata = document["kind"], document["metadata"]
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    place = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    root = "apis" if "/" in document["apiVersion"] else "api"
    return f"/{root}/{document['apiVersion']}/{place}{plural}/{metadata['name']}"


class Plugin(provider_pb2_grpc.ResourceProviderServicer):
    server = ""

    def send(self, verb: str, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.server + path, data, headers, method=verb)) as answer:
            return json.loads(answer.read())

    def apply(self, properties: dict[str, Any], context: grpc.ServicerContext) -> dict[str, Any]:
        document = {key: value for key, value in properties.items() if not key.startswith("__")}
        manager = properties[MANAGER]
        try:
            force = document["metadata"].get("annotations", {}).get("pulumi.com/patchForce", "false")
            query = f"?fieldManager={manager}&force={force}"
            made = self.send(
                "PATCH", path_of(document) + query, document, **{"Content-Type": "application/apply-patch+yaml"}
            )
        except urllib.error.HTTPError as error:
            context.abort(
                grpc.StatusCode.UNKNOWN, f"server-side apply field conflict detected: {error.read().decode()}"
            )
        return {**made, MANAGER: manager}

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version=version("pulumi_kubernetes"))

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: N802
        kubeconfig = json.loads(Path(plain(request.args)["kubeconfig"]).read_text())
        self.server = kubeconfig["clusters"][0]["cluster"]["server"]
        return provider_pb2.ConfigureResponse(acceptSecrets=False, supportsPreview=False)

    def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        manager = plain(request.olds).get(MANAGER) or f"pulumi-kubernetes-{secrets.token_hex(4)}"
        return provider_pb2.CheckResponse(inputs=struct({**plain(request.news), MANAGER: manager}))

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: N802
        changes = provider_pb2.DiffResponse.DIFF_NONE
        if plain(request.old_inputs) != plain(request.news):
            changes = provider_pb2.DiffResponse.DIFF_SOME
        return provider_pb2.DiffResponse(changes=changes)

    def Create(self, request: Any, context: Any) -> Any:  # noqa: N802
        made = self.apply(plain(request.properties), context)
        return provider_pb2.CreateResponse(id=path_of(made), properties=struct(made))

    def Update(self, request: Any, context: Any) -> Any:  # noqa: N802
        return provider_pb2.UpdateResponse(properties=struct(self.apply(plain(request.news), context)))

    def Delete(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.send("DELETE", path_of(plain(request.properties)))
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()


def install(folder: Path, path: str) -> str:
    """Return the PATH of an environment that has this plugin. path: The PATH without it."""
    (folder / "bin").mkdir()
    plugin = folder / "bin" / "pulumi-resource-kubernetes"
    plugin.write_text(f"#!/bin/sh\nexec {sys.executable} {__file__}\n")
    plugin.chmod(0o755)
    return f"{plugin.parent}:{path}"


if __name__ == "__main__":
    serving = grpc.server(futures.ThreadPoolExecutor(4))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Plugin(), serving)
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    serving.wait_for_termination()
