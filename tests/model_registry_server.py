"""A small server of the OpenAPI of Kubeflow Model Registry, whose real one needs MySQL and images.

Requests and answers are those of the models that are generated from its OpenAPI (`mr_openapi`), which refuse other fields.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import mr_openapi
from pydantic import ValidationError

ROOT = "/api/model_registry/v1/"
KINDS = {
    "registered_models": mr_openapi.RegisteredModelCreate,
    "model_versions": mr_openapi.ModelVersionCreate,
    "artifacts": mr_openapi.ArtifactCreate,
}
PARENTS = {"model_versions": "registeredModelId", "artifacts": "modelVersionId"}


@dataclass
class Registry:
    """What a server has.

    Attributes:
        token: Token that each request needs; empty for none.
        broken: Path whose requests end with status 500.
        requests: Method and path of each request.
        credentials: The header Authorization of each request; empty if it has none.
    """

    url: str = ""
    token: str = ""
    broken: str = ""
    objects: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    requests: list[str] = field(default_factory=list)
    credentials: list[str] = field(default_factory=list)

    def find(self, kind: str, name: str, parent: str) -> dict[str, Any] | None:
        for each in self.objects[kind]:
            if each["name"] == name and each.get(PARENTS.get(kind, ""), "") == parent:
                return each
        return None

    def create(self, kind: str, given: dict[str, Any], parent: str) -> tuple[int, dict[str, Any]]:
        text = json.dumps(given)
        if kind != "artifacts" or given.get("artifactType") != "model-artifact":
            KINDS[kind].from_json(text)
        else:
            mr_openapi.ModelArtifactCreate.from_json(text)
        parent = parent or given.get(PARENTS.get(kind, ""), "")
        if self.find(kind, given["name"], parent) is not None:
            return 409, {"code": "409", "message": f"{given['name']} already exists"}
        number = sum(map(len, self.objects.values())) + 1
        made = {**given, "id": str(number), "state": given.get("state") or "LIVE"}
        if kind in PARENTS:
            made[PARENTS[kind]] = parent
        self.objects[kind].append(made)
        return 201, made

    def answer(self, method: str, path: str, query: dict[str, str], given: dict[str, Any]) -> tuple[int, Any]:
        kind, *rest = path.split("/")
        if method == "GET" and f"{kind}s" in (*KINDS, "model_artifacts"):
            name, parent = query.get("name", ""), query.get("parentResourceId", "")
            found = self.find("artifacts" if kind == "model_artifact" else f"{kind}s", name, parent)
            return (200, found) if found else (404, {"code": "404", "message": f"no {kind} found"})
        if method == "POST":
            return self.create(rest[-1] if rest else kind, given, rest[0] if rest else "")
        (found,) = [each for each in self.objects[kind] if each["id"] == rest[0]]
        found |= given if method == "PATCH" else {}
        return 200, found


@contextmanager
def model_registry_server(token: str = "") -> Iterator[Registry]:
    """Yield an empty registry, which answers at its `url`."""
    registry = Registry(token=token)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            path = parts.path.removeprefix(ROOT)
            registry.requests.append(f"{self.command} {path}")
            registry.credentials.append(self.headers.get("Authorization", ""))
            given = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            if registry.token and self.headers.get("Authorization") != f"Bearer {registry.token}":
                code, answer = 401, {"code": "401", "message": "the token is not valid"}
            elif registry.broken and registry.broken in path:
                code, answer = 500, {"code": "500", "message": "the database does not answer"}
            else:
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                try:
                    code, answer = registry.answer(self.command, path, query, given)
                except ValidationError as error:
                    code, answer = 400, {"code": "400", "message": str(error)}
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = _handle  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    registry.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
