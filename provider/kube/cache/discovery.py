"""What one cluster has, asked once and remembered: so that many jobs cost few requests.

Every question may be asked by several threads; it raises what the client raises, and then it raises that again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.kinds import (
    ACCESS_REVIEW,
    RULES_REVIEW,
    SECRET,
    Kind,
)
from pulumi_trainer.provider.kube.errors import TrainerError
from pulumi_trainer.provider.kube.schema import openapi
from pulumi_trainer.provider.kube.schema.rules import Predicates
from pulumi_trainer.provider.kube.schema.schema import Schema
from pulumi_trainer.provider.kube.values.accessors import rows

T = TypeVar("T")
Document = dict[str, Any]

PATIENCE = 3.0
"""Seconds for a cluster to answer; then the program goes on with what can be told without it."""


class Facts:
    """giving_up: after the first question that gets no answer, no other is asked."""

    def __init__(self, client: Client, *, giving_up: bool) -> None:
        self.client = client
        self.giving_up = giving_up
        self._away: TrainerError | None = None
        self._known: dict[tuple[Any, ...], Any] = {}
        self._locks: dict[tuple[Any, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, client: Client, patience: float | None = None) -> Facts:
        """Those that this process has gathered by way of this client. patience: seconds for an answer, after which the
        cluster counts as away; None: the client's, every time."""
        with _lock:
            known = _facts.setdefault(client, {})
            if patience not in known:
                own = client if patience is None else client.within(patience)
                known[patience] = cls(own, giving_up=patience is not None)
            return known[patience]

    def remember(self, what: str, key: Any, value: Any) -> None:
        with self._lock:
            self._known[what, key] = value

    def recall(self, what: str, key: Any) -> Any:
        """What was remembered, or None."""
        return self._known.get((what, key))

    def alone(self, *key: Any) -> threading.Lock:
        """Held by whoever finds out what is then remembered under that key."""
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())

    def served(self) -> Mapping[str, list[str]]:
        """API group -> its versions."""
        return self._once(("served",), lambda: _groups(self.client.read("/apis")))

    def served_now(self) -> Mapping[str, list[str]]:
        """The same, asked again."""
        self._forget("served")
        return self.served()

    def plurals(self, api_version: str) -> list[str]:
        """Of the kinds that a group has in that version."""

        def ask() -> list[str]:
            return [str(each.get("name")) for each in self.client.read(f"/apis/{api_version}").get("resources") or []]

        return self._once(("plurals", api_version), ask)

    def schema(self, kind: Kind, predicates: Predicates) -> Schema | None:
        """None where the server does not tell. predicates: of the rules that are known."""

        def ask() -> Schema | None:
            try:
                return openapi.schema(self.client.read(openapi.path(kind)), kind, predicates)
            except ApiError:
                return None

        return self._once(("schema", kind), ask)

    def find(self, kind: Kind, namespace: str, name: str) -> Document | bool:
        """The object; False: there is none. True: we may not look."""
        where = namespace if kind.namespaced else ""

        def ask() -> Document | bool:
            try:
                return self.client.get(kind, where, name) or False
            except ApiError as error:
                if error.code != 403:
                    raise
                return kind != SECRET or self._lists_secret(where, name)

        return self._once((kind, where, name), ask)

    def named(self, kind: Kind, namespace: str, name: str) -> Document | None:
        """Name, labels and owners of an object, by one list of its kind. None: there is none, or we may not list them."""

        def ask() -> dict[str, Document]:
            try:
                found, _ = self.client.list(kind, namespace, keep=_named, whole=False)
            except ApiError as error:
                if error.code != 403:
                    raise
                return {}
            return {str(each["metadata"]["name"]): each for each in found}

        return self._once(("names", kind, namespace), ask).get(name)

    def _lists_secret(self, namespace: str, name: str) -> bool:
        """Return whether there is a Secret of that name, as its users may list Secrets and not get them. False: certainly not."""
        try:
            found, _ = self.client.list(SECRET, namespace, fields=f"metadata.name={name}", keep=lambda _: {})
        except ApiError as error:
            if error.code != 403:
                raise
            return True
        return bool(found)

    def all(self, kind: Kind, namespace: str = "") -> list[Document] | None:
        """All objects of a kind, of a namespace if one is given; None: there is no such kind, or we may not list them."""

        def ask() -> list[Document] | None:
            try:
                return self.client.list(kind, namespace, keep=_small)[0]
            except ApiError as error:
                if error.code not in (403, 404):
                    raise
                return None

        return self._once(("all", kind, namespace), ask)

    def find_now(self, kind: Kind, namespace: str, name: str) -> Document | bool:
        """The same, and what was not there before is looked for again."""
        if (found := self.find(kind, namespace, name)) is False:
            self._forget(kind, namespace if kind.namespaced else "", name)
            found = self.find(kind, namespace, name)
        return found

    def everywhere(self, kind: Kind, fields: str, most: int = 50) -> list[Document] | None:
        """Objects of all namespaces that a field selector chooses, so many at most; None: we may not look."""

        def ask() -> list[Document] | None:
            try:
                answer = self.client.read(kind.path(), {"fieldSelector": fields, "limit": str(most)})
            except ApiError as error:
                if error.code != 403:
                    raise
                return None
            return rows(answer.get("items"))

        return self._once((kind, "everywhere", fields), ask)

    def _forget(self, *key: Any) -> None:
        with self._lock:
            self._known.pop(key, None)

    def rules(self, namespace: str) -> Document:
        """`status` of a SelfSubjectRulesReview: what we may do there."""
        asked = {
            "apiVersion": RULES_REVIEW.api_version,
            "kind": RULES_REVIEW.kind,
            "spec": {"namespace": namespace},
        }
        return self._once(("rules", namespace), lambda: self.client.post(RULES_REVIEW, asked).get("status") or {})

    def allowed(self, namespace: str, group: str, resource: str, verb: str, object_name: str) -> bool:
        """What a SelfSubjectAccessReview says of one permission."""
        name, _, subresource = resource.partition("/")
        wanted = {"namespace": namespace, "group": group, "resource": name, "subresource": subresource, "verb": verb}
        wanted["name"] = object_name
        asked = {
            "apiVersion": ACCESS_REVIEW.api_version,
            "kind": ACCESS_REVIEW.kind,
            "spec": {"resourceAttributes": wanted},
        }

        def ask() -> bool:
            return bool((self.client.post(ACCESS_REVIEW, asked).get("status") or {}).get("allowed"))

        return self._once(("allowed", *wanted.values()), ask)

    def _once(self, key: tuple[Any, ...], ask: Callable[[], T]) -> T:
        with self.alone(*key):
            if self._away is not None:
                raise self._away
            if key not in self._known:
                try:
                    self._known[key] = ask()
                except TrainerError as error:
                    self._away = error if self.giving_up else None
                    raise
            found: T = self._known[key]
            return found


_facts: WeakKeyDictionary[Client, dict[float | None, Facts]] = WeakKeyDictionary()
_lock = threading.Lock()


def _named(found: Document) -> Document:
    return {"metadata": {part: found["metadata"].get(part) for part in ("name", "labels", "ownerReferences")}}


def _small(document: Document) -> Document:
    """Without who wrote which field; of a Node what chooses it, and not what lies on it."""
    metadata = {k: v for k, v in document["metadata"].items() if k != "managedFields"}
    if document.get("kind") == "Node":
        status = {"allocatable": (document.get("status") or {}).get("allocatable") or {}}
        return {**document, "metadata": metadata, "status": status}
    return {**document, "metadata": metadata}


def _groups(answer: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        str(group.get("name")): [str(version.get("version")) for version in group.get("versions") or []]
        for group in answer.get("groups") or []
    }
