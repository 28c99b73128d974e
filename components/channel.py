"""The component of a channel: it points to a release of a runtime, which TrainJobs take within the limit of `follow=`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from math import inf
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import as_mapping, shown_value
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.plan.job_plan import PlacedJob
from pulumi_trainer.plan.offer import Offer
from pulumi_trainer.plan.review import refusals
from pulumi_trainer.plan.runtime_ref import LoadedRuntime, RuntimeSource, runtime_from_offer
from pulumi_trainer.program import messages, session, targets
from pulumi_trainer.program.constructors import ComponentArgs, constructor
from pulumi_trainer.program.removals import recorded_channel
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.program.trainer_release import choose_release
from pulumi_trainer.provider.engine import dynamic
from pulumi_trainer.provider.jobs.identity import short_digest
from pulumi_trainer.provider.jobs.metrics import is_lower_better
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.kubernetes.values.wording import parse_duration
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.runtime_releases import carried_releases
from pulumi_trainer.provider.trainer.runtime_rollout import (
    SECONDS,
    Rollout,
    Waves,
    begin_or_go_on,
    next_wave,
    progress_note,
)
from pulumi_trainer.runtime import catalogue_argument_problems
from pulumi_trainer.runtimes import BUILT_IN, RuntimeCatalog

_MOST = "24h"


class ChannelArgs(ComponentArgs):
    """The arguments of `RuntimeChannel`."""

    release: str
    catalog: RuntimeCatalog | None = None
    waves: Sequence[Sequence[str]] = ()
    soak: str = "0s"
    max_regression: Mapping[str, float] | None = None
    max_duration: str = _MOST
    force: bool = False
    target: Destination | None = None

    def waves_problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the arguments of a roll-out."""
        known = set[str]()
        if isinstance(self.waves, str) or not isinstance(self.waves, Sequence):
            yield Problem("waves", f"must be a list of waves, not {shown_value(self.waves)}")
            return
        for place, group in enumerate(self.waves):
            if isinstance(group, str) or not isinstance(group, (list, tuple)) or not group:
                yield Problem(f"waves[{place}]", f"must be a list of namespaces and jobs, not {shown_value(group)}")
                continue
            for number, name in enumerate(group):
                where = f"waves[{place}][{number}]"
                if not isinstance(name, str) or not _PLACE.fullmatch(name):
                    yield Problem(where, f"must be a namespace, or a job as NAMESPACE/NAME, not {shown_value(name)}")
                elif name in known:
                    yield Problem(where, f"{name} is a duplicate")
                else:
                    known.add(name)
        if not isinstance(self.soak, str) or parse_duration(self.soak) is None:
            yield Problem("soak", f"must be a duration such as 30m or 2h, not {shown_value(self.soak)}")
        if not isinstance(self.max_duration, str) or not parse_duration(self.max_duration):
            yield Problem("max_duration", f"must be a duration such as 30m or 2h, not {shown_value(self.max_duration)}")
        if not isinstance(self.max_regression, Mapping | None):
            yield Problem(
                "max_regression", f"must be a mapping from metrics to numbers, not {shown_value(self.max_regression)}"
            )
            return
        for metric, limit in as_mapping(self.max_regression).items():
            if metric != SECONDS and is_lower_better(str(metric)) is None:
                why = "whether a lower or a higher value is better is not known"
                yield Problem(
                    f"max_regression[{metric}]", why, "a name with a word such as loss, error, accuracy or reward"
                )
            if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 < limit < inf:
                yield Problem(f"max_regression[{metric}]", f"must be a number such as 1.1, not {shown_value(limit)}")
        if not self.waves and (self.max_regression or self.soak != "0s" or self.max_duration != _MOST):
            why = "is missing: soak=, max_regression= and max_duration= are about the waves of a roll-out"
            yield Problem("waves", why)


_PLACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?")


class RuntimeChannel(RuntimeSource, pulumi.ComponentResource):
    """The release of a runtime that TrainJobs use: `RuntimeChannel("stable", release="torch-team@1.2.0", catalog=catalog)`.

    Jobs of the same program take it as `runtime=channel`. `offer` is for other stacks: export it, and give their jobs
    `runtime=StackReference(...).get_output(...)`.

    Args:
        resource_name: Name of the Pulumi resource.
        release: Current release as `name@release`. To move the channel, or to roll it back, change it; the plan shows
            the effect on each job.
        catalog: Catalogue of the release; default: the built-in one.
        waves: Namespaces, and jobs as NAMESPACE/NAME, that take a new release first, wave after wave: [["nlp/canary"], ["nlp"]].
            Each `pulumi up` moves at most one wave, and only if no job of those before has failed on the new release and the jobs
            that are named have succeeded on it; all others come last. Default: all at once.
        soak: Least time between two waves, such as 2h; default: 0s.
        max_regression: Metric, or `seconds` for the time of a run -> how many times its value before it may be, of the jobs
            that `waves` names: {"seconds": 1.1, "loss": 1.02}. A worse one stops the roll-out. Default: not compared.
        max_duration: Longest time of a run on the new release, such as 30m, of the jobs that `waves` names, from its start, or
            else from its creation. A longer one stops the roll-out, also if it succeeds later. Default: 24h.
        force: Whether the channel, and releases of its catalogue, may be removed while jobs use them; default: False.
        target: Target of the jobs that use the channel; default: the target of the stack.
        opts: Resource options.
    """

    followed = True
    misnamed: list[Problem]

    @constructor(ChannelArgs)
    def __init__(self) -> None: ...

    def construct(self, args: ChannelArgs) -> None:
        """Register the channel after its checks."""
        self.where = f'RuntimeChannel("{args.resource_name}")'
        session.current().channels.add(args.resource_name)
        self.given: Offer | None = None
        self.resource: dynamic.Channel | None = None
        site = session.call_site()
        found = targets.problems(args.target)
        self._known: list[str] = []
        try:
            self.given, self._known = _offer(args.resource_name, args.release, args.catalog)
        except TrainerError as error:
            found += catalogue_argument_problems(error)
        if not isinstance(args.force, bool):
            found.append(Problem("force", f"must be True or False, not {shown_value(args.force)}"))
        wrong = list(args.waves_problems())
        found = merge_problems(self.misnamed, [*found, *wrong])
        self._catalog = args.catalog
        self._waves = Waves()
        self._read_release: str | None = None
        if not wrong:
            soak, longest = parse_duration(args.soak) or 0.0, parse_duration(args.max_duration) or inf
            self._waves = Waves(args.waves, soak, args.max_regression, longest)
        shown = None
        if isinstance(args.release, str) and args.release.isascii():
            shown = args.release
        super().__init__("trainer:index:RuntimeChannel", args.resource_name, {"release": shown}, args.opts)
        if self.given is not None:
            for notices in (self.given.withdrawn, self.given.deprecated):
                if self.given.release in notices:
                    messages.warn(f"{self.where}: {notices[self.given.release]}", self)
        self.problems = session.current().spawn(self._review(found, site, force=args.force, target=args.target))
        self.offer: pulumi.Output[dict[str, Any] | None] = pulumi.Output.from_input(self._offered())
        self.register_outputs({})

    async def made_from(self, follow: str, job: PlacedJob) -> LoadedRuntime:
        """Return the release for a job.

        Args:
            follow: Which steps of the channel the job follows: `pin` (none), `patch`, `minor` or `any`.

        Raises:
            Invalid: The channel was rejected.
        """
        if await self.problems or self.given is None:
            raise Invalid(Problem("", f"was rejected: fix {self.where} first"))
        own = {"of": f"{pulumi.get_project()}/{pulumi.get_stack()}"}
        loaded = runtime_from_offer(self.given, own, follow, job)
        needs: list[pulumi.Resource] = []
        if self.resource is not None:
            needs.append(self.resource)
        return replace(loaded, needs=needs)

    async def _review(self, found: list[Problem], site: str, *, force: bool, target: Destination | None) -> bool:
        """Report the problems of the channel; return whether there are any."""
        offer = self.given
        if not found and offer is not None:
            destination = targets.choose(target)
            place = await targets.place(destination)
            trainer = await choose_release(destination, place)
            found = problems_below("release", refusals(offer.documents[offer.release], trainer))
            if not found:
                claimed = session.current().claim(
                    place.target, "RuntimeChannel", "", offer.channel, f"{self.where} ({site})"
                )
                found = [*place.problems, *claimed]
            if not found:
                try:
                    offer, rollout = await self._roll_out(offer, place)
                except TrainerError as error:
                    found = problems_below("release", error.problems)
                else:
                    self.given = offer
                    await self._register(offer, rollout, force, place, trainer.version, await self.urn.future() or "")
        session.current().problems.extend(problems_below(f"{self.where} ({site})", found))
        return bool(found)

    async def _roll_out(self, offer: Offer, place: targets.Place) -> tuple[Offer, Rollout]:
        """Return the offer with what a roll-out leaves behind, and the roll-out; say how far it is."""
        recorded = recorded_channel(await session.current().stack_resources(), offer.channel)
        if self._waves.groups:
            self._read_release = text(recorded.get("release"))
        if recorded.get("runtime") != offer.runtime:
            return offer, Rollout()
        before, waves, now = Rollout.from_dict(recorded.get("rollout")), self._waves, time.time()
        rollout = begin_or_go_on(text(recorded.get("release")), before, offer.release, waves, now)
        if rollout == before and rollout.before:
            reasons = await asyncio.to_thread(
                queries.rollout_holds, place.target, offer.runtime, offer.release, rollout, waves
            )
            due = rollout.since + waves.soak
            if reasons or now < due:
                when = f"{datetime.fromtimestamp(due, timezone.utc):%Y-%m-%d %H:%M} UTC"
                note = progress_note(rollout, offer.release, waves, reasons, when)
                (messages.warn if reasons else messages.info)(f"{self.where}: {note}", self)
            else:
                rollout = next_wave(rollout, waves, now)
        if rollout.left:
            notice = f"channel {offer.channel} has taken {rollout.left} back"
            offer = replace(offer, withdrawn={**offer.withdrawn, rollout.left: notice})
        if not rollout.before:
            return offer, rollout
        document = (self._catalog or BUILT_IN).load(offer.runtime, rollout.before)  # jobs of later waves have it still
        documents = {**offer.documents, rollout.before: document}
        return replace(offer, documents=documents, before=rollout.before, moved=waves.moved(rollout)), rollout

    async def _register(
        self, offer: Offer, rollout: Rollout, force: bool, place: targets.Place, trainer: str, urn: str
    ) -> None:
        document = offer.documents[offer.release]
        target = await session.current().target(place.target)
        inputs = dynamic.ChannelInputs(
            channel=offer.channel,
            runtime=offer.runtime,
            release=offer.release,
            releases=self._known,
            withdrawn=offer.withdrawn,
            rollout=rollout.to_dict(),
            moved=[*offer.moved],
            document_before=offer.documents.get(offer.before),
            read_release=self._read_release,
            document=document,
            trainer=trainer,
            digest=short_digest(document, 12),
            component=urn,
            target=session.target_input(place.target, target),
            force=force,
        )
        options = pulumi.ResourceOptions(parent=self, depends_on=[target, *place.needs])
        self.resource = dynamic.Channel(self.pulumi_resource_name, inputs, options)

    async def _offered(self) -> dict[str, Any] | None:
        """Return the offer once the move was accepted, so that no rejected move reaches another stack."""
        if await self.problems or self.given is None or self.resource is None:
            return None
        await self.resource.urn.future()
        return self.given.output


def _offer(channel: str, reference: Any, catalog: RuntimeCatalog | None) -> tuple[Offer, list[str]]:
    """Return the offer of a channel, and all releases of its runtime in the catalogue."""
    name, release = "", ""
    if isinstance(reference, str):
        name, _, release = reference.partition("@")
    if not name or not release:
        raise Invalid(
            Problem("", f"must be name@release, such as torch-distributed@2.3.0, not {shown_value(reference)}")
        )
    if catalog is not None and not isinstance(catalog, RuntimeCatalog):
        raise Invalid(Problem("catalog", f"must be a RuntimeCatalog, not {shown_value(catalog)}"))
    catalog = catalog or BUILT_IN
    document = catalog.load(name, release)
    drafts = catalog.unlocked()
    known = [number for number in catalog.releases(name) if (name, number) not in drafts]
    deprecated, withdrawn = dict[str, str](), dict[str, str]()
    for number in known:
        for notices, notice in (
            (deprecated, catalog.deprecation(name, number)), (withdrawn, catalog.withdrawal(name, number)),
        ):  # fmt: skip
            if notice is not None:
                notices[number] = str(notice)
    documents = {number: catalog.load(name, number) for number in carried_releases(known, withdrawn)}
    return Offer(channel, name, release, {**documents, release: document}, deprecated, withdrawn), known
