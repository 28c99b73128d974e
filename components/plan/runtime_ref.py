"""The runtime of a TrainJob: a component of the program, a runtime of a catalogue or a cluster, or the release of a channel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.plan.job_plan import PlacedJob, StepResult
from pulumi_trainer.plan.offer import FOLLOW, Offer
from pulumi_trainer.program.absent_outputs import absent_output
from pulumi_trainer.provider.jobs.identity import short_digest
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import without
from pulumi_trainer.provider.kubernetes.values.documents import control_character_problems
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer import runtime_releases
from pulumi_trainer.provider.trainer.catalog.versions import VERSION, by_version
from pulumi_trainer.provider.trainer.labels import RELEASE
from pulumi_trainer.runtimes import BUILT_IN, Deprecation, Withdrawal

API_VERSION = "trainer.kubeflow.org/v1alpha1"


@dataclass(frozen=True, kw_only=True)
class LoadedRuntime(StepResult):
    """The runtime that a job is made from.

    Attributes:
        channel: The channel that it is from, and how the job follows the channel; empty: none.
    """

    document: dict[str, Any] = field(default_factory=dict)
    channel: Mapping[str, str] = field(default_factory=dict)


class RuntimeSource:
    """A component of the program that TrainJobs are made from."""

    followed: ClassVar[bool] = False
    described: ClassVar[str] = "ClusterTrainingRuntime or RuntimeChannel"
    """Name of such a component in messages."""

    @abstractmethod
    async def made_from(self, follow: str, job: PlacedJob) -> LoadedRuntime:
        """Return the runtime for a job."""


def from_catalogue(reference: str) -> tuple[dict[str, Any], list[Problem]]:
    """Return a runtime of the catalogue by `name` (its newest release) or `name@release`, or its problems."""
    name, _, release = reference.partition("@")
    try:
        return BUILT_IN.load(name, release or None), []
    except TrainerError as error:
        return {}, list(error.problems)


def problems(given: Any, follow: Any) -> list[Problem]:
    """Return the problems of the argument `follow`."""
    if follow not in FOLLOW:
        return []
    if not isinstance(given, pulumi.Output) and not getattr(given, "followed", False):
        hint = 'leave it out; to change the release, set runtime="NAME@RELEASE"'
        return [Problem("follow", "requires a RuntimeChannel as runtime", hint)]
    return []


def catalogue_problems(given: Any) -> list[Problem]:
    """Return the problems of the name of a runtime in the catalogue."""
    if not isinstance(given, str):
        return []
    return problems_below("runtime", from_catalogue(given)[1])


def summary(runtime: dict[str, Any]) -> dict[str, Any]:
    """Return name, digest and release of the runtime that a job is made from, as the stack's state keeps them."""
    about = runtime["metadata"]
    release = (about.get("labels") or {}).get(RELEASE)
    known = {"name": about["name"], "digest": first_unknown(runtime) or short_digest(runtime, 12)}
    if isinstance(release, str):
        known["release"] = release
    return known


async def load_runtime(given: Any, follow: str | None, job: PlacedJob) -> LoadedRuntime:
    """Return the runtime that a job is made from, or its problems."""
    if isinstance(given, str):
        return _of_name(given, job)
    try:
        if isinstance(given, pulumi.Output):
            return runtime_from_offer(await _offered(given), {}, follow or "pin", job)
        loaded: LoadedRuntime = await given.made_from(follow or "pin", job)
        return loaded
    except TrainerError as error:
        return LoadedRuntime(problems=problems_below("runtime", error.problems))


def _of_name(given: str, job: PlacedJob) -> LoadedRuntime:
    found = list[Problem]()
    try:
        if job.mode == "trainer":
            document, found = _runtime_by_name(given, job)
        else:
            document = _catalogued(given)
    except Invalid as error:
        return LoadedRuntime(problems=problems_below("runtime", error.problems))
    return LoadedRuntime(document=document, warnings=[*found, *deprecation_warnings(_built_in_deprecation(document))])


async def _offered(given: pulumi.Output[Any]) -> Offer:
    """Return the offer of another stack's channel."""
    if not await given.is_known():
        raise Invalid(Problem("", "is not known yet", "bring up the stack that exports the channel first"))
    missing = await absent_output(given)
    if missing:
        raise Invalid(missing)
    return Offer.read(await given.future())


def runtime_from_offer(offer: Offer, whose: Mapping[str, str], follow: str, job: PlacedJob) -> LoadedRuntime:
    """Return the release of a channel, or the job's current release if `follow` excludes the channel's."""
    try:
        loaded = _of_channel(offer, follow, job)
    except TrainerError as error:
        loaded = LoadedRuntime(problems=problems_below("runtime", error.problems))
    return replace(loaded, channel={"channel": offer.channel, "follow": follow, **whose, **loaded.channel})


def _of_channel(offer: Offer, follow: str, job: PlacedJob) -> LoadedRuntime:
    whole, offer = offer, offer.of_job(f"{job.place.namespace}/{job.name}")
    release = offer.release
    if job.mode == "trainer":
        document, found = _runtime_by_name(f"{offer.runtime}@{release}", job, offer.documents[release])
        return LoadedRuntime(
            document=document, warnings=[*found, *_notices(offer, summary(document).get("release", ""))]
        )
    note, left = "", {}
    namespace = job.place.namespace
    if isinstance(namespace, str):
        name, current = queries.current_release(job.place.target, namespace, job.name)
        if name == offer.runtime and VERSION.fullmatch(current):
            if _is_between(whole, offer, current):
                release = current  # another roll-out reached it first: it does not go back for this one
            else:
                release, note = _followed(offer, follow, current)
            if current in offer.withdrawn and release != current:
                left = {"left": current}
    notes = [f"{namespace}/{job.name}: {note}"] if note else []
    return LoadedRuntime(
        document=offer.documents[release], warnings=_notices(offer, release), notes=notes, channel=left
    )


def _is_between(whole: Offer, offer: Offer, current: str) -> bool:
    """Return whether a job that a roll-out has not reached has a release that is newer than the one before it, and is not bad."""
    waits = whole.release != offer.release and current in offer.documents and current not in offer.withdrawn
    return waits and by_version(current) > by_version(offer.release)


def _followed(offer: Offer, follow: str, current: str) -> tuple[str, str]:
    """Return the release that a job takes from a channel, and why it is not that of the channel; empty if it is."""
    taken = runtime_releases.taken_release(follow, current, offer.release, offer.documents, offer.withdrawn)
    if taken == offer.release or (taken == current and current not in offer.documents):
        return offer.release, ""
    moved = f"channel {offer.channel} has {offer.runtime} {offer.release}, but this job has {current}"
    why = offer.withdrawn.get(offer.release) or runtime_releases.follow_refusal(follow, current, offer.release)
    if taken == current:
        return taken, f"{moved}. No change: {why}"
    return taken, f"{moved}, and takes {taken}: {why}"


def _notices(offer: Offer, release: str) -> list[Problem]:
    """Return the warnings about a release of a channel."""
    if release in offer.withdrawn:
        hint = (
            "move the channel to another release; a job with follow= of at least patch leaves it then, on its next run"
        )
        return [Problem("runtime", offer.withdrawn[release], hint)]
    return deprecation_warnings(offer.deprecated.get(release))


def deprecation_warnings(message: object) -> list[Problem]:
    """Return the warning that the runtime is deprecated or withdrawn; empty if it is neither."""
    if isinstance(message, (Deprecation, Withdrawal)):
        return [message.warning()]
    if message:
        return [Problem("runtime", str(message))]
    return []


def _built_in_deprecation(document: dict[str, Any]) -> Deprecation | Withdrawal | None:
    about = document["metadata"]
    release = (about.get("labels") or {}).get(RELEASE)
    if about["name"] not in BUILT_IN.names() or release not in BUILT_IN.releases(about["name"]):
        return None
    place = about["name"], str(release)
    return BUILT_IN.withdrawal(*place) or BUILT_IN.deprecation(*place)


def _catalogued(reference: str) -> dict[str, Any]:
    """Return a runtime of the catalogue. Raises Invalid if the catalogue does not have it."""
    document, found = from_catalogue(reference)
    if found:
        raise Invalid(*found)
    return document


def _runtime_by_name(
    reference: str, job: PlacedJob, known_document: dict[str, Any] | None = None
) -> tuple[dict[str, Any], list[Problem]]:
    """Return a runtime by its name in mode trainer, and warnings: the cluster's, as its controller reads it, else that of a
    channel, else that of the catalogue.
    """
    name, _, release = reference.partition("@")
    asked, live = queries.find_runtime(job.place.target, "ClusterTrainingRuntime", "", name)
    warnings = []
    if live is None:
        document = known_document or _catalogued(reference)
        if asked:
            why = f"the cluster has no ClusterTrainingRuntime {name!r}, which the job needs"
            known = release or document["metadata"]["labels"][RELEASE]
            hint = f'declare it: runtime=ClusterTrainingRuntime("{name}", release="{known}")'
            warnings.append(Problem("runtime", why, hint))
        return document, warnings
    has = (live["metadata"].get("labels") or {}).get(RELEASE, "none of the catalogue's")
    if release and has != release:
        why = (
            f"the runtime {name} in the cluster has release {has}, not {release}, and the job uses the one in the"
            " cluster"
        )
        warnings.append(Problem("runtime", why, f"give runtime={name!r}, or declare a runtime with that release"))
    document = without(live, "status")
    found = [*control_character_problems(document)]
    if found:
        raise Invalid(*found)
    return document, warnings
