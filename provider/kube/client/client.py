"""Requests to one API server: server-side apply, retries with back-off, and errors in the server's own words.

`transport` sends and reads; requests and answers are plain JSON, as the models of the official client would drop the fields
that they do not know.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

import urllib3
from pulumi_trainer.provider.kube.client.kinds import NAMESPACE, POD, Kind
from pulumi_trainer.provider.kube.client.transport import (
    FIELD_MANAGER,
    JSON,
    Access,
    ApiError,
    Configure,
    Connection,
    Unreachable,
)
from pulumi_trainer.provider.kube.errors import Problem, TargetFault

__all__ = ["Access", "ApiError", "Client", "Unreachable"]

Document = dict[str, Any]

PATIENCE = 60.0
"""Seconds that a request goes on trying while the server is away or overloaded."""
CONNECT_SECONDS, READ_SECONDS = 5.0, 45.0
LASTING = 3.0
"""Seconds for what is not likely to pass: a certificate that is not trusted, a name that nobody knows."""
PAGE = 250
"""Objects a page of a list."""
_TRY_AGAIN = (429, 500, 502, 503, 504)
TAIL_SECONDS = 5.0
"""In which the newest lines of a log have to come."""
UNTYPED = "failed to create typed patch object"
"""What server-side apply says, with status 500, of unknown fields and wrong types: it says so again and again."""
_METADATA = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
"""A list of objects without what they hold."""
_APPLY, _MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class Client:
    """configure: opens the access; called again when the server stops accepting the credentials, or they have expired.

    warn: is called with what is unwise about an access, once each.
    host: URL of the server. where: how errors call the access. requests: how many have been sent.
    """

    def __init__(
        self, configure: Configure, *, patience: float = PATIENCE, warn: Callable[[Problem], None] | None = None
    ) -> None:
        self.patience = patience
        self._shared = Connection(configure, warn)

    def within(self, patience: float) -> Client:
        """The same connection, with another patience in seconds."""
        other = copy(self)
        other.patience = patience
        return other

    @property
    def host(self) -> str:
        return self._shared.access(self.patience).host

    @property
    def where(self) -> str:
        return self._shared.access(self.patience).where

    @property
    def cautions(self) -> tuple[Problem, ...]:
        """What is unwise about the access."""
        return self._shared.access(self.patience).cautions

    @property
    def requests(self) -> int:
        return self._shared.requests

    def cluster_id(self) -> str:
        """UID of the namespace kube-system, which is a cluster's identity; asked once a connection."""
        self._shared.access(self.patience)
        if not self._shared.cluster:
            found = self.get(NAMESPACE, "", "kube-system")
            uid = (found or {}).get("metadata", {}).get("uid")
            if not isinstance(uid, str) or not uid:
                why = f"{self.host} has no namespace kube-system, whose UID is a cluster's identity"
                raise TargetFault(Problem(self.where, why))
            self._shared.cluster = uid
        return self._shared.cluster

    def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        """The object; None if there is none, or no such kind."""
        try:
            return self._object("GET", kind, namespace, name)
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
        """All objects, and the resource version to watch from. keep: what to remember of each (None: nothing). whole: else their
        metadata are enough."""
        found: list[Document] = []
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        where = f"list of {kind.plural} in {namespace or 'all namespaces'}"
        deadline = time.monotonic() + self.patience
        while True:
            try:
                page = self._json("GET", kind.path(namespace), query, where=where, accept=JSON if whole else _METADATA)
            except ApiError as error:
                if error.code != 410 or "continue" not in query or time.monotonic() > deadline:
                    raise
                del query["continue"]  # the snapshot that the pages are of is no longer kept
                found.clear()
                continue
            items, meta = page.get("items") or [], page.get("metadata")
            if not (isinstance(meta, dict) and isinstance(items, list) and all(map(_is_object, items))):
                raise Unreachable(where, "the answer is no list of objects", passing=False)
            found += [kept for item in items if (kept := keep(item)) is not None]
            if not (token := meta.get("continue")):
                return found, str(meta.get("resourceVersion") or "")
            query["continue"] = str(token)

    def create(self, kind: Kind, document: Mapping[str, Any], *, dry_run: bool = False) -> Document:
        """Raises ApiError 409 AlreadyExists; also where an answer got lost and the request was sent again."""
        namespace, name = _place(document)
        query = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        return self._object("POST", kind, namespace, name, query, document)

    def apply(self, kind: Kind, document: Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Document:
        """Server-side apply as `FIELD_MANAGER`. Raises ApiError 409 Conflict with a cause for each field of others."""
        namespace, name = _place(document)
        query = {
            "fieldManager": FIELD_MANAGER,
            "force": "true" if force else "false",
            "fieldValidation": "Strict",
            **({"dryRun": "All"} if dry_run else {}),
        }
        return self._object("PATCH", kind, namespace, name, query, document, _APPLY)

    def patch(self, kind: Kind, namespace: str, name: str, change: Mapping[str, Any]) -> Document:
        """A JSON merge patch as `FIELD_MANAGER`."""
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
        """Asks for the deletion; False if there is nothing to delete. uid: only that very object. version: only as it was then,
        by its resourceVersion."""
        options: Document = {"propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid, **({"resourceVersion": version} if version else {})}
        try:
            self._json("DELETE", kind.path(namespace, name), body=options, where=kind.where(namespace, name))
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
        """Asks for the deletion if `mine` says so of the object as it is at that moment. Returns it as it was; None: there is
        none."""
        while (found := self.get(kind, namespace, name)) is not None and mine(found):
            about = {"uid": str(found["metadata"]["uid"]), "version": str(found["metadata"]["resourceVersion"])}
            if self.delete(kind, namespace, name, **about, propagation=propagation):
                break
        return found

    def read(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        """Any path that answers with JSON, such as /version. Raises ApiError."""
        return self._json("GET", path, query or {}, where=path)

    def post(self, kind: Kind, document: Mapping[str, Any], namespace: str = "") -> Document:
        """A question that is asked by a create, such as a SelfSubjectAccessReview."""
        return self._json("POST", kind.path(namespace), {}, document, where=kind.kind)

    def watch(
        self, kind: Kind, namespace: str, version: str, *, labels: str = "", fields: str = "", seconds: int = 300
    ) -> Iterator[Document]:
        """Events (type, object) after that resource version, until the server ends the watch. One attempt: raises ApiError
        (410: the version is too old) and Unreachable when the connection breaks. seconds: when the server is to end it."""
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
        answer = self._shared.send("GET", kind.path(namespace), query, None, "", where, timeout, self.patience)
        for line in answer.lines():
            event = answer.parsed(line)
            if event.get("type") == "ERROR":
                raise answer.error(event.get("object"))
            if not isinstance(event.get("type"), str) or not _is_object(event.get("object")):
                raise Unreachable(where, "the answer is no event")
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
        """A container's log in the pieces in which it comes; query: container, follow, tailLines, previous, ... of the API.
        idle: seconds of silence after which it is given up. opened: gets what ends the stream from another thread. One
        attempt: raises ApiError, and Unreachable when the connection breaks."""
        where = f"log of Pod {namespace}/{pod}"
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=idle)
        answer = self._shared.send(
            "GET", POD.path(namespace, pod, "log"), query, None, "", where, timeout, self.patience
        )
        if opened is not None:
            opened(answer.shut)
        yield from answer.chunks()

    def log_tail(self, namespace: str, pod: str, query: Mapping[str, str], most: int) -> bytes:
        """Return what comes of a container's log within `TAIL_SECONDS`, up to `most` bytes. Raises as `logs`."""
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
        content_type: str = "application/json",
    ) -> Document:
        path, where = kind.path(namespace, "" if method == "POST" else name), kind.where(namespace, name)
        found = self._json(method, path, query, body, content_type, where=where)
        if not _is_object(found) or found["metadata"].get("name") != name:
            raise Unreachable(where, "the answer is another object", passing=False)
        return found

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        *,
        where: str,
        accept: str = JSON,
    ) -> Document:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        begun, pause = time.monotonic(), 0.1
        deadline = begun + self.patience
        self._shared.access(self.patience)  # tries again by itself
        while True:
            asked, until = 0.0, deadline
            read = min(READ_SECONDS, max(1.0, deadline - time.monotonic()))
            timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, read), read=read)
            try:
                answer = self._shared.send(
                    method, path, query or {}, data, content_type, where, timeout, self.patience, accept
                )
                asked = answer.retry_after
                return answer.document(max(deadline, time.monotonic() + read))
            except ApiError as refusal:
                if refusal.code not in _TRY_AGAIN or UNTYPED in refusal.message:
                    raise
                error: TargetFault = refusal
            except Unreachable as broken:
                error, asked = broken, 0.0
                until = deadline if broken.passing else min(deadline, begun + LASTING)
            wait = max(asked, pause * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
            if time.monotonic() + wait > until:
                raise error
            time.sleep(wait)
            pause = min(pause * 2, 5.0)


def _is_object(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("metadata"), dict)


def _place(document: Mapping[str, Any]) -> tuple[str, str]:
    metadata = document["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata["name"])
