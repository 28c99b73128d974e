"""Which runtime document a TrainJob is made from: one of the program, of a catalogue, of a cluster, or the release of a channel.

Called by `composition`.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_trainer.args.signatures import not_one_of
from pulumi_trainer.channel import FOLLOW, Offer, RuntimeChannel
from pulumi_trainer.plan.job_plan import Plan
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
from pulumi_trainer.runtime import from_catalogue
from pulumi_trainer.runtimes import BUILT_IN, Deprecation


def problems(given: Any, follow: Any) -> list[Problem]:
    """What is wrong with the argument `follow`."""
    if follow is None:
        return []
    if found := not_one_of("follow", follow, FOLLOW):
        return found
    if not isinstance(given, (RuntimeChannel, pulumi.Output)):
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
    trainer_mode = targets.mode_of(destination) == "trainer"
    if isinstance(given, str):
        made_from, found = _named(given, result) if trainer_mode else from_catalogue(given)
        result.problems += [p.below("runtime") for p in found]
        if not found:
            result.warnings += _deprecated(_built_in_deprecation(made_from))
        return made_from
    if isinstance(given, (RuntimeChannel, pulumi.Output)):
        try:
            return await _of_channel(given, follow or "pin", result, trainer_mode)
        except TrainerError as error:
            result.problems += [p.below("runtime") for p in error.problems]
            return {}
    assert given is not None
    result.warnings += _deprecated(given.deprecation)
    if await given.problems:
        result.problems.append(Problem("runtime", f"{given.where} is refused, see there"))
    elif trainer_mode and (found := given.secrets):
        result.problems += [p.below("runtime") for p in found]
    elif trainer_mode:
        try:
            result.needs.append(await given.applied(destination))
        except TrainerError as error:
            result.problems += [p.below("runtime") for p in error.problems]
    plain: dict[str, Any] = given.plain
    return plain


async def _of_channel(
    given: RuntimeChannel | pulumi.Output[Any], follow: str, result: Plan, trainer_mode: bool
) -> dict[str, Any]:
    """The release that the channel has, or that which the job has where it goes no further. Raises Invalid."""
    own: dict[str, str] = {}
    if isinstance(given, RuntimeChannel):
        if await given.problems or given.given is None:
            raise Invalid(Problem("", f"{given.where} is refused, see there"))
        offer = given.given
        own = {"of": f"{pulumi.get_project()}/{pulumi.get_stack()}"}
        result.needs += [given.resource] if given.resource is not None else []
    elif not await given.is_known():
        raise Invalid(Problem("", "is not known yet", "bring up the stack that exports the channel first"))
    elif missing := await absent(given):
        raise Invalid(missing)
    else:
        offer = Offer.read(await given.future())
    release = offer.release
    result.runtime = {"channel": offer.channel, "follow": follow, **own}
    if trainer_mode:
        made_from, found = _named(f"{offer.runtime}@{release}", result, offer.documents[release])
        if found:
            raise Invalid(*found)
        result.warnings += _deprecated(offer.deprecated.get(told(made_from).get("release", "")))
        return made_from
    if isinstance(result.namespace, str):
        name, held = dynamic.held(result.target, result.namespace, result.name)
        if name == offer.runtime and held != release and VERSION.fullmatch(held):
            why = dynamic.held_back(follow, held, release)
            if why and held in offer.documents:
                moved = f"channel {offer.channel} has {name} {release}, and this job {held}"
                result.notes.append(f"{result.namespace}/{result.name}: {moved}. Nothing: {why}")
                release = held
    result.warnings += _deprecated(offer.deprecated.get(release))
    return offer.documents[release]


def _deprecated(told: object) -> list[Problem]:
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
