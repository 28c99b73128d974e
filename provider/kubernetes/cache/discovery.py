"""Cached answers of a cluster to questions about what it has, so that many jobs cost few requests.

All methods may be called by several threads, and raise what the client raises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pulumi_trainer.provider.kubernetes.client.api_resources import ACCESS_REVIEW, RULES_REVIEW, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.schema import openapi
from pulumi_trainer.provider.kubernetes.schema.schema import Predicates, Schema
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, only, section, without

T = TypeVar("T")

PLAN_SECONDS = 3.0
"""Seconds for a cluster to answer; after that the program goes on with what it can check without the cluster."""


class Facts:
    """The cached answers of one cluster.

    Args:
        giving_up: Whether no more requests are sent after the first one without an answer.
    """

    def __init__(self, client: Client, *, giving_up: bool) -> None:
        self.client = client
        self.giving_up = giving_up
        self._away: TrainerError | None = None
        self._known: dict[tuple[Any, ...], Any] = {}
        self._locks: dict[tuple[Any, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, client: Client, patience: float | None = None) -> Facts:
        """Return the answers that this process has cached for a client."""
        with _lock:
            known = _facts.setdefault(client, {})
            if patience not in known:
                patient = client if patience is None else client.within(patience)
                known[patience] = cls(patient, giving_up=patience is not None)
            return known[patience]

    def remember(self, what: str, key: Any, value: Any) -> None:
        """Cache a value."""
        with self._lock:
            self._known[what, key] = value

    def recall(self, what: str, key: Any) -> Any:
        """Return a cached value; None if not found."""
        return self._known.get((what, key))

    def alone(self, *key: Any) -> threading.Lock:
        """Return the lock for the thread that computes the value of a key."""
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())

    def served(self) -> Mapping[str, list[str]]:
        """Return the versions of each API group."""
        return self.ask_once(("served",), lambda: _groups(self.client.read("/apis")))

    def served_now(self) -> Mapping[str, list[str]]:
        """Return the versions of each API group, requested again."""
        self._forget("served")
        return self.served()

    def plurals(self, api_version: str) -> list[str]:
        """Return the plurals of the kinds in an API version."""

        def ask() -> list[str]:
            resources = self.client.read(f"/apis/{api_version}").get("resources") or []
            return [str(each.get("name")) for each in resources]

        return self.ask_once(("plurals", api_version), ask)

    def schema(self, kind: Kind, predicates: Predicates) -> Schema | None:
        """Return the schema of a kind; None if the server does not have it."""

        def ask() -> Schema | None:
            try:
                return openapi.schema(self.client.read(openapi.path(kind)), kind, predicates)
            except ApiError:
                return None

        return self.ask_once(("schema", kind), ask)

    def find(self, kind: Kind, namespace: str, name: str) -> Document | bool:
        """Return an object; False if it does not exist, True if reading it is forbidden."""
        where = namespace if kind.namespaced else ""

        def ask() -> Document | bool:
            try:
                return self.client.get(kind, where, name) or False
            except ApiError as error:
                if error.code != 403:
                    raise
                return True

        return self.ask_once((kind, where, name), ask)

    def named(self, kind: Kind, namespace: str, name: str) -> Document | None:
        """Return name, labels and owners of an object from a list of its kind; None if not found, or if listing is forbidden.

        Secrets are not listed, because who may list them reads all of a namespace.
        """
        if kind == SECRET:
            ask_one = partial(self.client.get, kind, namespace, name, whole=False)
            return self.ask_once(("metadata", kind, namespace, name), lambda: _unless_refused(ask_one, 403))

        def ask() -> dict[str, Document]:
            found = _unless_refused(partial(self.client.list, kind, namespace, keep=_named, whole=False), 403)
            return {str(each["metadata"]["name"]): each for each in (found or ((), ""))[0]}

        return self.ask_once(("names", kind, namespace), ask).get(name)

    def all(self, kind: Kind, namespace: str = "") -> list[Document] | None:
        """Return all objects of a kind (and a namespace); None if the kind does not exist, or if listing is forbidden."""

        def ask() -> list[Document] | None:
            found = _unless_refused(partial(self.client.list, kind, namespace, keep=_small), 403, 404)
            return None if found is None else found[0]

        return self.ask_once(("all", kind, namespace), ask)

    def find_now(self, kind: Kind, namespace: str, name: str) -> Document | bool:
        """Return an object as `find` does, but look again for one that did not exist before."""
        found = self.find(kind, namespace, name)
        if found is False:
            self._forget(kind, namespace if kind.namespaced else "", name)
            found = self.find(kind, namespace, name)
        return found

    def everywhere(self, kind: Kind, fields: str, most: int = 50) -> list[Document] | None:
        """Return objects of all namespaces by a field selector; None if listing is forbidden."""

        def ask() -> list[Document] | None:
            query = {"fieldSelector": fields, "limit": str(most)}
            answer = _unless_refused(partial(self.client.read, kind.path(), query), 403)
            return None if answer is None else mappings(answer.get("items"))

        return self.ask_once((kind, "everywhere", fields), ask)

    def _forget(self, *key: Any) -> None:
        with self._lock:
            self._known.pop(key, None)

    def rules(self, namespace: str) -> Document:
        """Return the `status` of a SelfSubjectRulesReview: the user's permissions in a namespace."""
        asked = {"apiVersion": RULES_REVIEW.api_version, "kind": RULES_REVIEW.kind, "spec": {"namespace": namespace}}
        return self.ask_once(("rules", namespace), lambda: self.client.post(RULES_REVIEW, asked).get("status") or {})

    def allowed(self, namespace: str, group: str, resource: str, verb: str, object_name: str) -> bool:
        """Return whether a SelfSubjectAccessReview allows one permission.

        Args:
            resource: Plural of the kind, with a subresource if it is about one: `pods/log`.
            object_name: The only object that it is about; empty for all.
        """
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

        return self.ask_once(("allowed", *wanted.values()), ask)

    def ask_once(self, key: tuple[Any, ...], ask: Callable[[], T]) -> T:
        """Return the cached answer to a question; the first one that has the key asks."""
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


def _unless_refused(ask: Callable[[], T], *codes: int) -> T | None:
    """Return what a request returns; None if the server refuses it with one of these codes."""
    try:
        return ask()
    except ApiError as error:
        if error.code not in codes:
            raise
        return None


def _named(found: Document) -> Document:
    return {"metadata": {part: found["metadata"].get(part) for part in ("name", "labels", "ownerReferences")}}


def _small(document: Document) -> Document:
    """Return what is needed of the kinds with many objects: of a Node's status its allocatable, of a Pod node and resources;
    none has managedFields.
    """
    kind = document.get("kind")
    if kind == "Pod":
        return _small_pod(document)
    if kind not in ("Node", "Workload"):
        return document
    small = {**document, "metadata": without(document["metadata"], "managedFields")}
    if kind == "Node":
        small["status"] = {"allocatable": (document.get("status") or {}).get("allocatable") or {}}
    return small


def _small_pod(pod: Document) -> Document:
    spec = section(pod, "spec")
    small = only(spec, ("nodeName", "overhead", "resources"))
    for part in ("containers", "initContainers"):
        small[part] = [only(container, ("resources", "restartPolicy")) for container in mappings(spec.get(part))]
    metadata = only(section(pod, "metadata"), ("name", "namespace", "labels"))
    return {"kind": "Pod", "metadata": metadata, "spec": small, "status": only(section(pod, "status"), ("phase",))}


def _groups(answer: Mapping[str, Any]) -> dict[str, list[str]]:
    versions: dict[str, list[str]] = {}
    for group in answer.get("groups") or []:
        versions[str(group.get("name"))] = [str(each.get("version")) for each in group.get("versions") or []]
    return versions
