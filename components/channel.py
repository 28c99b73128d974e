"""A channel names the release of a runtime that is in use: a platform team moves it, and TrainJobs follow as far as they say."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pulumi
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.versions import VERSION
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.kube.values.documents import control_character_problems
from pulumi_trainer.provider.lifecycle.identity import short_digest
from pulumi_trainer.runtimes import BUILT_IN, RuntimeCatalog
from pulumi_trainer.runtimes.catalog import MAX_FILE, NAME

from .args.arguments import said
from .args.signatures import merge_problems
from .plan.review import refusals
from .program import session, targets
from .program.constructors import component
from .program.targets import Destination
from .runtime import of_catalogue

CARRIED = 10
"""Releases that a channel carries to other stacks, so that a job that is pinned to one of them can run again."""
FOLLOW = ("pin", "patch", "minor", "any")


@dataclass(frozen=True)
class Offer:
    """What a channel has. documents: of its release and of others, by number. deprecated: what is to be told of them."""

    channel: str
    runtime: str
    release: str
    documents: Mapping[str, dict[str, Any]] = field(repr=False)
    deprecated: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, given: Any) -> Offer:
        """From the output of another stack, of which nothing is trusted. Raises Invalid."""
        try:
            return _read(json.dumps(given, sort_keys=True))  # the same for each of many jobs
        except (TypeError, ValueError, RecursionError):
            raise Invalid(Problem("", "is no offer of a RuntimeChannel: it holds what is no plain data")) from None

    @classmethod
    def of(cls, given: Any) -> Offer:
        """As `read`, of plain data."""
        mend = 'export it there: pulumi.export("stable", channel.offer), and give runtime=platform.get_output("stable")'
        parts = ("channel", "runtime", "release", "documents", "deprecated")
        if not isinstance(given, Mapping) or set(given) != set(parts):
            raise Invalid(Problem("", "is no offer of a RuntimeChannel", mend))
        texts, documents, deprecated = [given[p] for p in parts[:3]], _unpacked(given["documents"]), given["deprecated"]
        words = [*texts, *deprecated.values()] if isinstance(deprecated, Mapping) else [None]
        fine = all(isinstance(text, str) and 0 < len(text) < 300 and text.isprintable() for text in words)
        fine = fine and NAME.fullmatch(given["runtime"]) is not None
        if not fine or not isinstance(documents, Mapping) or given["release"] not in documents:
            raise Invalid(Problem("", "is no whole offer of a RuntimeChannel", mend))
        for number, document in documents.items():
            whole = isinstance(document, dict) and document.get("kind") == "ClusterTrainingRuntime"
            about = document.get("metadata") if whole else None
            if not VERSION.fullmatch(number) or not isinstance(about, dict) or about.get("name") != given["runtime"]:
                raise Invalid(Problem(f"documents[{number}]", f"is no release of {given['runtime']}", mend))
            if problems := [*control_character_problems(document), *refusals(document)]:
                raise Invalid(*(p.below(f"documents[{number}]") for p in problems))
        return cls(texts[0], texts[1], texts[2], documents, {str(k): str(v) for k, v in deprecated.items()})

    @property
    def output(self) -> dict[str, Any]:
        """What `read` takes. The documents are in it, since who gets it renders with nothing else at hand; packed, since the
        outputs of a stack are printed at each `pulumi up`."""
        parts = {"channel": self.channel, "runtime": self.runtime, "release": self.release}
        return {**parts, "documents": _packed(self.documents), "deprecated": dict(self.deprecated)}


class RuntimeChannel(pulumi.ComponentResource):
    """The release of a runtime that TrainJobs take: `RuntimeChannel("stable", release="torch-team@1.2.0", catalog=catalog)`.

    release: `name@release`; moving the channel, or rolling it back, is a change of this line. The plan then says what that does
    to jobs, and to which. catalog: default the built-in one. force: the channel may be removed, and releases from its catalogue,
    while jobs use them. target: where to look for jobs that use it; default: that of the stack.

    Jobs of the same program take it as `runtime=channel`. `offer` is for those of other stacks: export it, and give them
    `runtime=StackReference(...).get_output(...)`.
    """

    misnamed: list[Problem]

    @component
    def __init__(
        self,
        resource_name: str,
        *,
        release: str,
        catalog: RuntimeCatalog | None = None,
        force: bool = False,
        target: Destination | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...

    def construct(self, resource_name: str, given: dict[str, Any], opts: pulumi.ResourceOptions | None) -> None:
        release, catalog, force, target = (given[name] for name in ("release", "catalog", "force", "target"))
        self.where = f'RuntimeChannel("{resource_name}")'
        session.current().channels.add(resource_name)
        self.given: Offer | None = None
        self.resource: dynamic.Channel | None = None
        site = session.call_site()
        found = targets.problems(target)
        self._known: list[str] = []
        try:
            self.given, self._known = _offer(resource_name, release, catalog)
        except TrainerError as error:
            found += of_catalogue(error)
        if not isinstance(force, bool):
            found.append(Problem("force", f"must be True or False, not {said(force)}"))
        found = merge_problems(self.misnamed, found)
        shown = release if isinstance(release, str) and release.isascii() else None
        super().__init__("trainer:index:RuntimeChannel", resource_name, {"release": shown}, opts)
        if self.given is not None and (told := self.given.deprecated.get(self.given.release)):
            pulumi.log.warn(f"{self.where}: {told}", self)
        self.problems = session.current().spawn(self._review(found, site, force, target))
        self.offer: pulumi.Output[dict[str, Any] | None] = pulumi.Output.from_input(self._offered())
        self.register_outputs({})

    async def _review(self, found: list[Problem], site: str, force: bool, target: Destination | None) -> bool:
        """Collects what is wrong; True where something is."""
        offer = self.given
        if not found and offer is not None:
            found = [p.below("release") for p in refusals(offer.documents[offer.release])]
        if not found and offer is not None:
            place = await targets.place(targets.choose(target))
            found = list(place.problems)
            where = f"{self.where} ({site})"
            found += session.current().claim(place.target, "RuntimeChannel", "", offer.channel, where)
            if not found:
                self._register(offer, force, place, await self.urn.future() or "")
        session.current().problems.extend(p.below(f"{self.where} ({site})") for p in found)
        return bool(found)

    def _register(self, offer: Offer, force: bool, place: targets.Place, urn: str) -> None:
        document = offer.documents[offer.release]
        target = session.current().target(place.target)
        props = {
            "channel": offer.channel, "runtime": offer.runtime, "release": offer.release, "releases": self._known,
            "document": document, "digest": short_digest(document, 12), "component": urn,
            "target": session.bound(place.target, target), **({"force": True} if force else {}),
        }  # fmt: skip
        options = pulumi.ResourceOptions(parent=self, depends_on=[target, *place.needs])
        self.resource = dynamic.Channel(self._name, props, options)

    async def _offered(self) -> dict[str, Any] | None:
        """Once the move has been accepted: a refused one must not reach another stack."""
        if await self.problems or self.given is None or self.resource is None:
            return None
        await self.resource.urn.future()
        return self.given.output


@lru_cache(maxsize=32)
def _read(text: str) -> Offer:
    return Offer.of(json.loads(text))


def _packed(documents: Mapping[str, Any]) -> str:
    text = json.dumps(documents, sort_keys=True, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _unpacked(given: Any) -> Any:
    """None: it is nothing that was packed, or more than a channel can carry."""
    try:
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(base64.b64decode(given, validate=True), (CARRIED + 1) * MAX_FILE)
        return json.loads(text) if unpacking.eof else None
    except (TypeError, ValueError, RecursionError, zlib.error):
        return None


def _offer(channel: str, reference: Any, catalog: RuntimeCatalog | None) -> tuple[Offer, list[str]]:
    """What a channel has, and all releases that the catalogue has of its runtime."""
    name, _, release = reference.partition("@") if isinstance(reference, str) else ("", "", "")
    if not name or not release:
        raise Invalid(Problem("", f"must be name@release, such as torch-distributed@2.3.0, not {said(reference)}"))
    if catalog is not None and not isinstance(catalog, RuntimeCatalog):
        raise Invalid(Problem("catalog", f"must be a RuntimeCatalog, not {said(catalog)}"))
    catalog = catalog or BUILT_IN
    document = catalog.load(name, release)
    known = catalog.releases(name)
    documents = {number: catalog.load(name, number) for number in known[-CARRIED:]}
    told = {number: str(d) for number in known if (d := catalog.deprecation(name, number))}
    return Offer(channel, name, release, {**documents, release: document}, told), known
