"""Requests to one API server: server-side apply, retries with back-off, and errors in the server's own words.

`transport` sends and reads. Requests and answers are plain JSON, as the models of the official client would drop the fields that
they do not know. urllib3's retries are not used: they have no limit in seconds, and cannot tell a server that is overloaded from
one that rejects a field with status 500.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any

import urllib3
from pulumi_trainer.provider.kubernetes.client import exec_stream, transport
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE, POD, Kind
from pulumi_trainer.provider.kubernetes.client.transport import (
    FIELD_MANAGER,
    JSON,
    Access,
    ApiError,
    Configure,
    Connection,
    Request,
    Unreachable,
)
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import Document

__all__ = ["Access", "ApiError", "Client", "Unreachable"]

RETRY_SECONDS = 60.0
"""Seconds for which a request is retried while the server is down or overloaded."""
CONNECT_SECONDS, READ_SECONDS = 5.0, 45.0
LASTING = 3.0
"""Seconds for which a lasting fault is retried: a certificate that is not trusted, an unknown host name."""
PAGE = 250
"""Objects a page of a list."""
_TRY_AGAIN = (429, 500, 502, 503, 504)
TAIL_SECONDS = 5.0
"""Seconds in which the newest lines of a log have to arrive."""
UNTYPED = "failed to create typed patch object"
"""Message of server-side apply, with status 500, for unknown fields and wrong types: a retry does not help."""
_METADATA, _METADATA_LIST = (
    f"application/json;as={kind};g=meta.k8s.io;v=v1,{JSON}"
    for kind in ("PartialObjectMetadata", "PartialObjectMetadataList")
)
"""Accept headers for an object, and a list of objects, with their metadata only."""
_APPLY, _MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class Client:
    """A client of one API server. Its copies (`within`) share connection and credentials.

    Args:
        configure: Opens the access; called again when the server rejects the credentials, or they have expired.
        warn: Called once with each risk of the access, such as insecure-skip-tls-verify.
    """

    def __init__(
        self, configure: Configure, *, patience: float = RETRY_SECONDS, warn: Callable[[Problem], None] | None = None
    ) -> None:
        self.patience = patience
        self.workers: Mapping[str, Client] = MappingProxyType({})
        """Clients of the clusters that this one may send jobs to, by name."""
        self._shared = Connection(configure, warn)

    def with_workers(self, workers: Mapping[str, Client]) -> Client:
        """Return a client with the same connection, and clients of the clusters that this cluster may send jobs to, by name."""
        other = copy(self)
        other.workers = workers
        return other

    def within(self, patience: float) -> Client:
        """Return a client with the same connection and another patience in seconds."""
        other = copy(self)
        other.patience = patience
        return other

    @property
    def host(self) -> str:
        """URL of the server."""
        return self._shared.access(self.patience).host

    @property
    def where(self) -> str:
        """The name of the access in errors."""
        return self._shared.access(self.patience).where

    @property
    def cautions(self) -> tuple[Problem, ...]:
        """Risks of the access."""
        return self._shared.access(self.patience).cautions

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self._shared.requests

    def cluster_id(self) -> str:
        """Return the UID of the namespace kube-system, the cluster's identity; requested once for each connection."""
        self._shared.access(self.patience)
        if not self._shared.cluster:
            found = self.get(NAMESPACE, "", "kube-system")
            uid = (found or {}).get("metadata", {}).get("uid")
            if not isinstance(uid, str) or not uid:
                why = f"{self.host} has no namespace kube-system, whose UID is a cluster's identity"
                raise TargetFault(Problem(self.where, why))
            self._shared.cluster = uid
        return self._shared.cluster

    def get(self, kind: Kind, namespace: str, name: str, *, whole: bool = True) -> Document | None:
        """Return an object, or only its metadata unless `whole`; None if the server has no such object or kind.

        Raises:
            ApiError: The server refuses.
            Unreachable: The server does not answer.
        """
        try:
            return self._object("GET", kind, namespace, name, accept=JSON if whole else _METADATA)
        except ApiError as error:
            if error.absent:
                return None
            raise

    def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        keep: Callable[[Document], Document | None] = lambda found: found,
        whole: bool = True,
    ) -> tuple[list[Document], str]:
        """Return all objects, or only their metadata unless `whole`, and the resource version to watch from. Raises as `get`.

        Args:
            keep: Returns what to keep of an object; None drops it.
        """
        found: list[Document] = []
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        where = f"list of {kind.plural} in {namespace or 'all namespaces'}"
        request = Request("GET", kind.path(namespace), where, query, accept=JSON if whole else _METADATA_LIST)
        deadline = time.monotonic() + self.patience
        while True:
            try:
                page = self._json(request)
            except ApiError as error:
                if error.code != 410 or "continue" not in query or time.monotonic() > deadline:
                    raise
                del query["continue"]  # the snapshot of the pages has expired
                found.clear()
                continue
            kept = map(keep, page.get("items") or [])
            found += [item for item in kept if item is not None]
            token = page["metadata"].get("continue")
            if not token:
                return found, page["metadata"].get("resourceVersion") or ""
            query["continue"] = token

    def create(
        self,
        kind: Kind,
        document: Mapping[str, Any],
        *,
        dry_run: bool = False,
        warnings: MutableSequence[str] | None = None,
    ) -> Document:
        """Create an object, and return it as stored, or as it would be stored (`dry_run`).

        Raises:
            ApiError: 409 AlreadyExists also occurs if an answer was lost and the request was sent again.
        """
        query = {"fieldManager": FIELD_MANAGER, "dryRun": "All" if dry_run else ""}
        return self._object("POST", kind, *_place(document), query, document, warnings=warnings)

    def apply(self, kind: Kind, document: Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Document:
        """Apply an object with server-side apply as `FIELD_MANAGER`, and return it as stored.

        Raises:
            ApiError: 409 Conflict has a cause for each field of another field manager.
        """
        query = {"fieldManager": FIELD_MANAGER, "force": str(force).lower(), "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return self._object("PATCH", kind, *_place(document), query, document, _APPLY)

    def patch(self, kind: Kind, namespace: str, name: str, change: Mapping[str, Any]) -> Document:
        """Change an object with a JSON merge patch as `FIELD_MANAGER`, and return it as stored.

        Raises:
            ApiError: The server refuses: 409 if the patch has an older resourceVersion.
        """
        return self._object("PATCH", kind, namespace, name, {"fieldManager": FIELD_MANAGER}, change, _MERGE)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        propagation: str = "Foreground",
    ) -> bool:
        """Request a deletion, and return whether there was something to delete.

        Args:
            uid: Delete the object only if it has this UID; empty for any.
            version: With a UID, delete the object only at this resourceVersion; empty for any.
        """
        options: Document = {"propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
            if version:
                options["preconditions"]["resourceVersion"] = version
        try:
            self._json(
                Request("DELETE", kind.path(namespace, name), kind.where(namespace, name), body=_encoded(options))
            )
        except ApiError as error:
            if error.absent or (uid and error.code == 409):
                return False
            raise
        return True

    def delete_if(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        mine: Callable[[Document], bool],
        *,
        propagation: str = "Background",
    ) -> Document | None:
        """Request a deletion if `mine` is true for the object at that moment; return the object as read, None if not found."""
        while (found := self.get(kind, namespace, name)) is not None and mine(found):
            about = {"uid": str(found["metadata"]["uid"]), "version": str(found["metadata"]["resourceVersion"])}
            if self.delete(kind, namespace, name, **about, propagation=propagation):
                break
        return found

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        """Return the JSON answer of any path, such as /version."""
        return self._json(Request("GET", path, path, query or {}))

    def post(self, kind: Kind, document: Mapping[str, Any]) -> Document:
        """Return the answer to an object that is not stored, such as a SelfSubjectAccessReview."""
        return self._json(Request("POST", kind.path(), kind.kind, body=_encoded(document)))

    def watch(
        self, kind: Kind, namespace: str, version: str, *, labels: str = "", fields: str = "", seconds: int = 300
    ) -> Iterator[Document]:
        """Yield events (type, object) after a resource version, until the server ends the watch, without retries.

        Raises:
            ApiError: 410 if the version is too old.
            Unreachable: The connection broke.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            "labelSelector": labels,
            "fieldSelector": fields,
        }
        where = f"watch of {kind.plural} in {namespace or 'all namespaces'}"
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds + 10)
        request = Request("GET", kind.path(namespace), where, query)
        response = self._shared.send(request, timeout, self.patience, stream=True)
        with transport.reading(response, where):
            for line in response:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError.of_status(event["object"], event["object"].get("code", 500), where)
                yield event

    def logs(
        self,
        namespace: str,
        pod: str,
        query: Mapping[str, str],
        *,
        idle: float | None = None,
        opened: Callable[[Callable[[], None]], None] | None = None,
    ) -> Iterator[bytes]:
        """Yield a container's log in the pieces in which it arrives, without retries.

        Args:
            query: Parameters of the API: container, follow, tailLines, previous, ...
            idle: Seconds without data after which to give up; None for no limit.
            opened: Called with a function that ends the stream from another thread.

        Raises:
            ApiError: The server refuses.
            Unreachable: The connection broke.
        """
        request = Request("GET", POD.path(namespace, pod, "log"), f"log of Pod {namespace}/{pod}", query)
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=idle)
        response = self._shared.send(request, timeout, self.patience, stream=True)
        if opened is not None:
            opened(lambda: transport.shut(response))
        with transport.reading(response, request.where):
            yield from response.stream()

    def execute(self, namespace: str, pod: str, container: str, argv: Sequence[str], *, idle: float) -> Iterator[bytes]:
        """Yield the standard output of a command in a container, without retries. Raises as `exec_stream.run`."""
        where = f"command in Pod {namespace}/{pod}"
        access = self._shared.access(self.patience)
        yield from exec_stream.run(access, POD.path(namespace, pod, "exec"), container, argv, where, idle)

    def log_tail(self, namespace: str, pod: str, query: Mapping[str, str], most: int) -> bytes:
        """Return what arrives of a container's log within `TAIL_SECONDS`, at most so many bytes. Raises as `logs`."""
        until, found = time.monotonic() + TAIL_SECONDS, bytearray()
        asked = {**query, "limitBytes": str(most)}
        for piece in self.within(TAIL_SECONDS).logs(namespace, pod, asked, idle=TAIL_SECONDS):
            found += piece
            if len(found) >= most or time.monotonic() > until:
                break
        return bytes(found[:most])

    def _object(
        self,
        method: str,
        kind: Kind,
        namespace: str,
        name: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        warnings: MutableSequence[str] | None = None,
    ) -> Document:
        path, where = kind.path(namespace, "" if method == "POST" else name), kind.where(namespace, name)
        data = None if body is None else _encoded(body)
        return self._json(Request(method, path, where, query or {}, data, content_type, accept), warnings)

    def _json(self, request: Request, warnings: MutableSequence[str] | None = None) -> Document:
        begun, pause = time.monotonic(), 0.1
        deadline = begun + self.patience
        self._shared.access(self.patience)  # tries again by itself
        while True:
            until = deadline
            read = min(READ_SECONDS, max(1.0, deadline - time.monotonic()))
            timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, read), read=read)
            try:
                response = self._shared.send(request, timeout, self.patience)
                found = transport.document(response, request.where)
                if warnings is not None:
                    warnings.extend(transport.warnings(response))
                return found
            except ApiError as refusal:
                if refusal.code not in _TRY_AGAIN or UNTYPED in refusal.message:
                    raise
                error: ApiError | Unreachable = refusal
            except Unreachable as broken:
                error = broken
                if not broken.passing:
                    until = min(deadline, begun + LASTING)
            wait = max(error.retry_after, pause * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
            if time.monotonic() + wait > until:
                raise error
            time.sleep(wait)
            pause = min(pause * 2, 5.0)


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _place(document: Mapping[str, Any]) -> tuple[str, str]:
    metadata = document["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata["name"])
