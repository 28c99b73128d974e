"""A channel names the release of a runtime that is in use: a platform team moves it, and TrainJobs follow as far as they say."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_trainer.args.arguments import said
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.offer import CARRIED, Offer
from pulumi_trainer.plan.review import refusals
from pulumi_trainer.plan.runtime_ref import RuntimeSource, of_offer
from pulumi_trainer.program import session, targets
from pulumi_trainer.program.constructors import component
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.lifecycle.identity import short_digest
from pulumi_trainer.runtime import of_catalogue
from pulumi_trainer.runtimes import BUILT_IN, RuntimeCatalog


class RuntimeChannel(RuntimeSource, pulumi.ComponentResource):
    """The release of a runtime that TrainJobs take: `RuntimeChannel("stable", release="torch-team@1.2.0", catalog=catalog)`.

    release: `name@release`; moving the channel, or rolling it back, is a change of this line. The plan then says what that does
    to jobs, and to which. catalog: default the built-in one. force: the channel may be removed, and releases from its catalogue,
    while jobs use them. target: where to look for jobs that use it; default: that of the stack.

    Jobs of the same program take it as `runtime=channel`. `offer` is for those of other stacks: export it, and give them
    `runtime=StackReference(...).get_output(...)`.
    """

    followed = True
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

    async def made_from(self, follow: str, plan: Plan, destination: Destination) -> dict[str, Any]:
        if await self.problems or self.given is None:
            raise Invalid(Problem("", f"{self.where} is refused, see there"))
        plan.needs += [self.resource] if self.resource is not None else []
        own = {"of": f"{pulumi.get_project()}/{pulumi.get_stack()}"}
        return of_offer(self.given, own, follow, plan, destination)

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
