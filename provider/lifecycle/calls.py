"""check, diff, create, read, update and delete of one job, on plain data. Called by `dynamic` alone.

Inputs of a job (as `components.trainjob` writes them, frozen by `check`):
  namespace, name  of the JobSet
  objects          rendered objects, keyed "Kind/name", as `submission.to_state` has them
  digest           of what the user wrote; equal digest means: nothing to do
  run              the user's `run` key
  runtime          {name, digest} of the runtime that was rendered; release where it has one, channel and follow of a job that
                   takes its releases from a channel: they decide whether it moves with it
  secrets          Secret name -> key -> value (absent where there are none)
  target           where the job runs: kind, identity, how to connect, sweep label
  interrupt        "allow": a change may replace unfinished work (absent: it may not)
  adopt            true: take over a foreign object of that name if it is equal (else absent)
  retain           true: a sweep leaves it alone (else absent)
  again            mark of a deletion by somebody else, before the job had ended: it is to be made again (else absent)
  component        URN of the TrainJob component
  owner            set here: identity of the job in its target
  generation       set here: counts the runs; a change that needs another run raises it
Outputs hold what diff, read and delete need, since they see old outputs only; `drift` is there where a refresh has found
that somebody else has changed the job: path -> value now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Protocol

from pulumi_trainer.provider.api.errors import Refused, TrainerError
from pulumi_trainer.provider.api.status import OUTCOME_UNKNOWN, JobStatus, Phase
from pulumi_trainer.provider.api.submission import Submission, from_state
from pulumi_trainer.provider.api.unknown import Unknown

from .changes import compare
from .identity import owner_id
from .releases import effects, held_back, level_of

Props = dict[str, Any]

FROZEN = ("namespace", "name", "owner", "digest", "generation")
WHERE = ("kind", "host", "root", "cluster", "namespace", "mode", "kubeconfig", "context", "content")
"""The part of the target that tells where a job is and how to get there; how to work there may change."""


WAY = ("kubeconfig", "context", "content")
"""The part of the target that only tells how to get there: a change of it is written down, and nothing is asked but which cluster
it leads to."""


class Target(Protocol):
    """What the lifecycle asks of a target; faults of the target raise `TrainerError`s."""

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus: ...
    def update(self, submission: Submission, *, force: bool = False) -> JobStatus: ...
    def drift(self, namespace: str, name: str) -> dict[str, Any]: ...
    def identity(self) -> dict[str, str]: ...
    def status(self, namespace: str, name: str) -> JobStatus | None: ...
    def delete(self, namespace: str, name: str, *, uid: str = "") -> None: ...


Connect = Callable[[Mapping[str, Any]], Target]


@dataclass(frozen=True)
class Checked:
    """inputs: what is stored. failures: reasons to refuse. notes: for the user's eyes."""

    inputs: Props
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diff:
    """changes None: unknown until a value is known. replaces: the inputs that make another run necessary."""

    changes: bool | None
    replaces: tuple[str, ...] = ()


def check(olds: Props, news: Props, connect: Connect) -> Checked:
    """Freezes the inputs: what the user wrote before and did not change stays exactly as it was.

    A change that would end an unfinished run is refused here, before anything is touched.
    """
    if "owner" not in olds:
        known = not any(isinstance(news.get(k), Unknown) for k in ("component", "digest"))
        owner: Any = owner_id(news["component"], news["digest"], news["run"]) if known else Unknown("owner")
        return Checked({**news, "owner": owner, "generation": 1})
    same = olds["digest"] == news["digest"] and olds.get("secrets") == news.get("secrets")
    if same and news.get("again"):
        note = f"{olds['namespace']}/{olds['name']}: somebody has deleted it before it ended; it is created again"
        return Checked({**rerouted(olds, news), "again": news["again"]}, notes=(note,))
    if same and _release(olds) != _release(news) and "channel" in news.get("runtime", {}):
        return _moved(olds, news, connect)
    if same:
        return Checked(rerouted(olds, news), notes=_runtime_note(olds, news))
    if why := _kept_from(olds, news):
        return Checked({**news, "owner": olds["owner"], "generation": olds["generation"]}, failures=(why,))
    reasons = _replacement_reasons(olds, news, connect)
    frozen = {**news, "owner": olds["owner"], "generation": olds["generation"] + bool(reasons)}
    if reasons and news.get("interrupt") != "allow":
        refusal = _interruption(olds, reasons, connect)
        return Checked(frozen, failures=(refusal,) if refusal else ())
    return Checked(frozen)


def diff(olds: Props, news: Props) -> Diff:
    """olds are outputs, news are checked inputs. In a refresh, news are the stored inputs."""
    if olds.get("generation") != news["generation"]:
        return Diff(True, ("generation",))
    if isinstance(news["digest"], Unknown):
        return Diff(None)
    again = news.get("again") not in (None, olds.get("again"))
    changed = again or olds.get("digest") != news["digest"] or bool(olds.get("drift"))
    return Diff(changed or way(olds) != way(news))


def way(props: Props) -> Props:
    """How to get to the target."""
    target = props.get("target")
    return {k: target[k] for k in WAY if target.get(k) is not None} if isinstance(target, dict) else {}


def rerouted(olds: Props, news: Props) -> Props:
    """What was, with the way to the target of now. Nothing of the old way may stay: the engine encrypts what is secret in
    the new inputs, and the content of a kubeconfig that is there no longer would be stored in clear."""
    if not way(olds) and not way(news):
        return olds
    kept = {k: v for k, v in olds["target"].items() if k not in WAY}
    return {**olds, "target": {**kept, **way(news)}}


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Returns as soon as the target has accepted the job. Safe to repeat after a crash."""
    target = connect(inputs["target"])
    status = target.create(_submission(inputs), adopt=bool(inputs.get("adopt")))
    return f"{inputs['namespace']}/{inputs['name']}", _outputs(inputs, status, target.identity())


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """Changes in place what may change in place (see `changes`); what others have changed since, and a refresh has shown,
    is put back."""
    where = {**rerouted({"target": {**inputs["target"], **outputs["target"]}}, inputs)["target"]}
    if not diff({**outputs, "target": where}, inputs).changes:
        connect(where).identity()  # a way that leads elsewhere is not written down
        return {**outputs, "target": {k: v for k, v in where.items() if k in WHERE}}
    target = connect(where)
    force = bool(outputs.get("drift") or inputs.get("adopt"))
    status = target.update(_submission({**inputs, "target": where}), force=force)
    return _outputs(inputs, status, target.identity())


def read(outputs: Props, connect: Connect) -> Props | None:
    """The job as it is now; None: nothing is known of it, and the next `up` creates it again."""
    target = connect(outputs["target"])
    status = target.status(outputs["namespace"], outputs["name"])
    if status is None or status.owner != outputs["owner"]:
        return None
    if status.phase == Phase.DELETED and status.reason != OUTCOME_UNKNOWN:
        return None
    known = {k: v for k, v in outputs.items() if k != "drift"}
    drift = {} if status.terminal else target.drift(outputs["namespace"], outputs["name"])
    return {**known, "uid": status.uid, "phase": status.phase, **({"drift": drift} if drift else {})}


def delete(outputs: Props, connect: Connect) -> None:
    """Ends the job and removes what belongs to this run of it; an object made since by someone else stays."""
    connect(outputs["target"]).delete(outputs["namespace"], outputs["name"], uid=outputs.get("uid", ""))


def _submission(inputs: Props) -> Submission:
    return Submission(
        namespace=inputs["namespace"],
        name=inputs["name"],
        owner=inputs["owner"],
        digest=inputs["digest"],
        objects=from_state(inputs["objects"]),
        run=inputs["run"],
        sweep=inputs["target"].get("sweep", ""),
        secrets=inputs.get("secrets") or {},
        retain=bool(inputs.get("retain")),
        runtime=inputs.get("runtime") or {},
    )


def _outputs(inputs: Props, status: JobStatus, identity: Props) -> Props:
    where = {**{k: v for k, v in inputs["target"].items() if k in WHERE}, **identity}
    again = {"again": inputs["again"]} if "again" in inputs else {}
    return {**{k: inputs[k] for k in FROZEN}, **again, "target": where, "uid": status.uid, "phase": status.phase}


def _replacement_reasons(olds: Props, news: Props, connect: Connect) -> list[str]:
    changes = [c for c in compare(from_state(olds["objects"]), from_state(news["objects"])) if c.effect != "update"]
    held = changes and all(c.effect == "waiting" for c in changes) and _waits(olds, connect)
    reasons = [] if held else [str(c) for c in changes]
    if olds["run"] != news["run"]:
        reasons.insert(0, f"run {olds['run']!r} => {news['run']!r}")
    if olds.get("secrets") != news.get("secrets"):
        reasons.append("a secret value changed")
    if (olds["namespace"], olds["name"]) != (news["namespace"], news["name"]):
        reasons.insert(0, f"name {olds['namespace']}/{olds['name']} => {news['namespace']}/{news['name']}")
    return reasons


def _waits(olds: Props, connect: Connect) -> bool:
    """Whether Kueue holds the job back now; what cannot be seen counts as running."""
    try:
        status = connect(olds["target"]).status(olds["namespace"], olds["name"])
    except TrainerError:
        return False
    return status is not None and status.owner == olds["owner"] and status.phase == Phase.QUEUED


def _interruption(olds: Props, reasons: list[str], connect: Connect) -> str:
    """Why the change must not go ahead; empty: nothing unfinished would be ended."""
    try:
        status = connect(olds["target"]).status(olds["namespace"], olds["name"])
    except Refused as refused:
        return str(refused)
    except TrainerError as fault:
        return f"cannot see whether {olds['namespace']}/{olds['name']} is still running: {fault}"
    if status is None or status.terminal or status.owner != olds["owner"]:
        return ""
    since = datetime.fromtimestamp(status.started or status.created, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    shown = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    return (
        f"{olds['namespace']}/{olds['name']} is {status.phase} since {since}, and this change would end it and start a"
        f' new run: {shown}. Wait until it has finished, or set interrupt="allow" on the TrainJob'
    )


def _release(props: Props) -> str:
    """Of the runtime that a job was made from; empty where it has none."""
    runtime = props.get("runtime")
    return str(runtime.get("release", "")) if isinstance(runtime, dict) else ""


def _moved(olds: Props, news: Props, connect: Connect) -> Checked:
    """A channel has another release than the job: it stays as it is, or is replaced where that was asked for and it runs."""
    before, after, said = _release(olds), _release(news), news["runtime"]
    found = effects(from_state(olds["objects"]), from_state(news["objects"]))
    does = f": {found[0]}" + (f" and {len(found) - 1} more" if len(found) > 1 else "") if found else ""
    told = f"{olds['namespace']}/{olds['name']}: {said['channel']} has {said['name']} {after}"
    told += f", and this job {before or 'none of its releases'} ({level_of(found)}{does})"
    kept = rerouted(olds, news)
    if before and (why := held_back(said["follow"], before, after, level_of(found))):
        return Checked(kept, notes=(f"{told}. Nothing: {why}",))
    if news.get("interrupt") != "allow":
        return Checked(kept, notes=(f"{told}. On its next run: another run= key starts one",))
    try:
        status = connect(olds["target"]).status(olds["namespace"], olds["name"])
    except TrainerError as fault:
        return Checked(kept, notes=(f"{told}. On its next run: whether it runs now cannot be seen: {fault}",))
    if status is None or status.terminal or status.owner != olds["owner"]:
        phase = status.phase if status is not None else "gone"
        return Checked(
            kept, notes=(f"{told}. On its next run: it is {phase}, and a job that has ended is not run again",)
        )
    frozen = {**news, "owner": olds["owner"], "generation": olds["generation"] + 1}
    return Checked(frozen, notes=(f'{told}. Replaced: it is {status.phase} and has interrupt="allow"',))


def _kept_from(olds: Props, news: Props) -> str:
    """Why a new run must not take the release that it was rendered with; empty: it may. Programs render one that is held back
    with its own release where they can."""
    before, after, said = _release(olds), _release(news), news.get("runtime") or {}
    if "channel" not in said or not before or (olds.get("runtime") or {}).get("name") != said["name"]:
        return ""
    why = held_back(said["follow"], before, after)
    if not why:
        return ""
    return (
        f"{olds['namespace']}/{olds['name']}: channel {said['channel']} has {said['name']} {after}, and {why}. Its own"
        f" {before} is not at hand: either the channel carries it no longer, or the job's record could not be read. Put the"
        f' release back into the catalogue, or say follow="any", or runtime="{said["name"]}@RELEASE"'
    )


def _runtime_note(olds: Props, news: Props) -> tuple[str, ...]:
    before, after = olds.get("runtime"), news.get("runtime")
    if not before or not after or before["digest"] == after.get("digest") or isinstance(after.get("digest"), Unknown):
        return ()
    return (
        f"{olds['namespace']}/{olds['name']} keeps the runtime that it was created with: {after['name']} has changed"
        " since; give the TrainJob another run= key to run it again with the new one",
    )
