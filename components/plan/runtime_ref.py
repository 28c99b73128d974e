"""Which runtime a TrainJob is made from: one of the program, of a catalogue, of a cluster, or the release of a channel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.signatures import not_one_of
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.offer import FOLLOW, Offer
from pulumi_trainer.program import targets
from pulumi_trainer.program.absent_outputs import absent
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.labels import RELEASE
from pulumi_trainer.provider.api.versions import VERSION
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.kube.values.documents import control_character_problems
from pulumi_trainer.provider.kube.values.unknown import first_unknown
from pulumi_trainer.provider.lifecycle.identity import short_digest
from pulumi_trainer.runtimes import BUILT_IN, Deprecation

API_VERSION = "trainer.kubeflow.org/v1alpha1"


class RuntimeSource:
    """A component of the program that TrainJobs are made from. followed: whether the runtime is another one from time to time."""

    followed: ClassVar[bool] = False

    @abstractmethod
    async def made_from(self, follow: str, plan: Plan, destination: Destination) -> dict[str, Any]:
        """Return what a job is made from. What is wrong, told or needed is added to `plan`. follow: as TrainJob has it.
        Raises Invalid."""


def from_catalogue(reference: str) -> tuple[dict[str, Any], list[Problem]]:
    """A runtime of the catalogue by `name` (its newest release) or `name@release`."""
    name, _, release = reference.partition("@")
    try:
        return BUILT_IN.load(name, release or None), []
    except TrainerError as error:
        return {}, list(error.problems)


def problems(given: Any, follow: Any) -> list[Problem]:
    """What is wrong with the argument `follow`."""
    if follow is None:
        return []
    if found := not_one_of("follow", follow, FOLLOW):
        return found
    if not isinstance(given, pulumi.Output) and not getattr(given, "followed", False):
        mend = "leave it out; a runtime that is no channel is followed by naming another release"
        return [Problem("follow", "is for a runtime that is a RuntimeChannel", mend)]
    return []


def catalogue_problems(given: Any) -> list[Problem]:
    """Return what is wrong with the name of a runtime of the catalogue."""
    return [p.below("runtime") for p in from_catalogue(given)[1]] if isinstance(given, str) else []


def told(runtime: dict[str, Any]) -> dict[str, Any]:
    """What is remembered of the runtime that a job is made from."""
    about = runtime["metadata"]
    release = (about.get("labels") or {}).get(RELEASE)
    known = {"name": about["name"], "digest": first_unknown(runtime) or short_digest(runtime, 12)}
    return {**known, "release": release} if isinstance(release, str) else known


async def document(given: Any, follow: str | None, result: Plan, destination: Destination) -> dict[str, Any]:
    """What a job is made from; {} where `result` has got problems."""
    if isinstance(given, str):
        return _of_name(given, result, destination)
    try:
        if isinstance(given, pulumi.Output):
            return of_offer(await _offered(given), {}, follow or "pin", result, destination)
        made_from: dict[str, Any] = await given.made_from(follow or "pin", result, destination)
        return made_from
    except TrainerError as error:
        result.problems += [p.below("runtime") for p in error.problems]
        return {}


def _of_name(given: str, result: Plan, destination: Destination) -> dict[str, Any]:
    trainer_mode = targets.mode_of(destination) == "trainer"
    made_from, found = _named(given, result) if trainer_mode else from_catalogue(given)
    result.problems += [p.below("runtime") for p in found]
    if not found:
        result.warnings += deprecated(_built_in_deprecation(made_from))
    return made_from


async def _offered(given: pulumi.Output[Any]) -> Offer:
    """What the channel of another stack offers. Raises Invalid."""
    if not await given.is_known():
        raise Invalid(Problem("", "is not known yet", "bring up the stack that exports the channel first"))
    if missing := await absent(given):
        raise Invalid(missing)
    return Offer.read(await given.future())


def of_offer(
    offer: Offer, whose: Mapping[str, str], follow: str, result: Plan, destination: Destination
) -> dict[str, Any]:
    """Return the release that a channel has, or that which the job has where it goes no further. whose: the program of the
    channel, if it is this one. Raises Invalid."""
    release = offer.release
    result.runtime = {"channel": offer.channel, "follow": follow, **whose}
    if targets.mode_of(destination) == "trainer":
        made_from, found = _named(f"{offer.runtime}@{release}", result, offer.documents[release])
        if found:
            raise Invalid(*found)
        result.warnings += deprecated(offer.deprecated.get(told(made_from).get("release", "")))
        return made_from
    if isinstance(result.namespace, str):
        name, held = dynamic.held(result.target, result.namespace, result.name)
        if name == offer.runtime and held != release and VERSION.fullmatch(held):
            why = dynamic.held_back(follow, held, release)
            if why and held in offer.documents:
                moved = f"channel {offer.channel} has {name} {release}, and this job {held}"
                result.notes.append(f"{result.namespace}/{result.name}: {moved}. Nothing: {why}")
                release = held
    result.warnings += deprecated(offer.deprecated.get(release))
    return offer.documents[release]


def deprecated(told: object) -> list[Problem]:
    """Return the warning that the runtime is deprecated; nothing where it is not."""
    return [Problem("runtime", str(told))] if told else []


def _built_in_deprecation(document: dict[str, Any]) -> Deprecation | None:
    about = document["metadata"]
    release = (about.get("labels") or {}).get(RELEASE)
    known = about["name"] in BUILT_IN.names() and release in BUILT_IN.releases(about["name"])
    return BUILT_IN.deprecation(about["name"], str(release)) if known else None


def _named(
    reference: str, result: Plan, known_document: dict[str, Any] | None = None
) -> tuple[dict[str, Any], list[Problem]]:
    """A runtime by its name in mode trainer: the cluster's own, as its controller reads it, else the one that is known of a
    channel, else that of the catalogue."""
    name, _, release = reference.partition("@")
    asked, live = dynamic.runtime(result.target, "ClusterTrainingRuntime", "", name)
    if live is None:
        document, found = (known_document, []) if known_document else from_catalogue(reference)
        if asked and not found:
            why = f"the cluster has no ClusterTrainingRuntime {name!r}, and the job cannot be made without"
            known = release or document["metadata"]["labels"][RELEASE]
            mend = f'declare it: runtime=ClusterTrainingRuntime("{name}", release="{known}")'
            result.warnings.append(Problem("runtime", why, mend))
        return document, found
    has = (live["metadata"].get("labels") or {}).get(RELEASE, "none of the catalogue's")
    if release and has != release:
        why = f"the cluster's {name} has release {has}, not {release}; it is what the job is made from"
        result.warnings.append(
            Problem("runtime", why, f"give runtime={name!r}, or declare a runtime with that release")
        )
    known = {k: v for k, v in live.items() if k != "status"}
    return known, [*control_character_problems(known)]
