"""check, diff, create, read, update and delete of one job, on plain data.

Inputs of a job (as `components.trainjob` writes them, frozen by `check`):
  namespace, name  of the JobSet
  objects          rendered objects, keyed "Kind/name", as `submission.to_state` has them
  digest           of what the user wrote; equal digest means: nothing to do
  formerDigest     the digest that earlier versions made of the same (absent where that is `digest`); never stored
  run              the user's `run` key
  runtime          {name, digest} of the runtime that was rendered; release where it has one, channel and follow of a job that
                   takes its releases from a channel: they decide whether it moves with it; of: "project/stack" of a
                   channel of the same program
  secrets          Secret name -> key -> value (absent where there are none)
  target           where the job runs: kind, identity, how to connect, sweep label
  interrupt        "allow": a change may replace unfinished work (absent: it may not)
  adopt            true: take over a foreign object of that name if it is equal (else absent)
  retain           true: a sweep leaves it alone (else absent)
  data             "dataset" or "model" -> {name, version} of the data that the job reads (absent where no version is known)
  arguments        JSON of the function's arguments without what is secret, where all of them travel in a Secret (else absent)
  fills            generation of the volume that a fetch fills: in a volume that was made anew it runs again (else absent)
  component        URN of the TrainJob component
  owner            set here: identity of the job in its target
  generation       set here: counts the runs; a change that needs another run raises it
  secretRevisions  set here: "Secret/key" -> how often that value has changed in place, which a plan shows where it hides the
                   value itself (absent while none has)
  again            set here: mark of a deletion by somebody else: the job is to be made again (else absent)
Outputs hold what diff, read and delete need, since they see old outputs only; `drift` is there where a refresh has found
that somebody else has changed the job: path -> value now.

A job belongs to its owner: another stack may adopt it. From then on nothing here reads, changes or deletes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from pulumi_trainer.provider.api.status import (
    OUTCOME_UNKNOWN,
    TAKE_BACK,
    JobStatus,
    Owner,
    Phase,
    Presence,
)
from pulumi_trainer.provider.api.submission import (
    Submission,
    from_state,
    main_key,
    secret_name,
)
from pulumi_trainer.provider.kube.errors import Conflict, Refused, TrainerError, Unreadable
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.lifecycle.data import data_notes, with_mounted_versions
from pulumi_trainer.provider.lifecycle.identity import owner_id, program_of
from pulumi_trainer.provider.lifecycle.releases import effects, held_back, level_of

Props = dict[str, Any]

FROZEN = ("namespace", "name", "owner", "digest", "generation")
REVISIONS = "secretRevisions"
WHERE = ("kind", "host", "root", "cluster", "namespace", "mode", "kubeconfig", "context", "content", "sweep")
"""The part of the target that tells where a job is, how to get there and which stack it belongs to; how to work there may
change."""


WAY = ("kubeconfig", "context", "content")
"""The part of the target that only tells how to get there: a change of it is written down, and nothing is asked but which cluster
it leads to."""


class Target(Protocol):
    """What the lifecycle asks of a target; faults of the target raise `TrainerError`s."""

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus: ...
    def check_adoption(self, submission: Submission) -> None: ...
    def update(self, submission: Submission, *, force: bool = False) -> JobStatus: ...
    def update_secrets(self, submission: Submission) -> None: ...
    def drift(self, namespace: str, name: str) -> dict[str, Any]: ...
    def identity(self) -> dict[str, str]: ...
    def status(self, namespace: str, name: str) -> JobStatus | None: ...
    def seen(self, namespace: str, name: str, beside: Collection[str]) -> Presence | None: ...
    def holder(self, namespace: str, name: str) -> Owner | None: ...
    def delete(self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None) -> Owner | str | None: ...


Connect = Callable[[Mapping[str, Any]], Target]


@dataclass(frozen=True)
class Checked:
    """inputs: what is stored. failures: reasons to refuse. notes: for the user's eyes."""

    inputs: Props
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diff:
    """changes None: unknown until a value is known. replaces: the inputs that make another run necessary. notes: for the
    user's eyes."""

    changes: bool | None
    replaces: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check(olds: Props, news: Props, connect: Connect) -> Checked:
    """Freezes the inputs: what the user wrote before and did not change stays exactly as it was.

    A change that would end an unfinished run is refused here, before anything is touched, and so is every change of a job that
    belongs to another stack.
    """
    news = with_mounted_versions(olds, with_known_digest(olds, news))
    if "owner" not in olds:
        known = not any(isinstance(news.get(k), Unknown) for k in ("component", "digest"))
        owner: Any = owner_id(news["component"], news["digest"], news["run"]) if known else Unknown("owner")
        first = {**news, "owner": owner, "generation": 1}
        return Checked(first, _name_in_use(first, connect))
    seen = _seen(olds, news, connect)
    changed = _changed_secrets(olds, news)
    if seen is not None and seen.owner is not None and not _owner(olds).owns(seen.owner):
        same = olds["digest"] == news["digest"] and not changed
        failures = () if same else (f"{_where(olds)} {seen.owner.adopted}. {TAKE_BACK}",)
        return Checked(rerouted(olds, news), failures=failures)
    checked = _compared(olds, news, seen, connect)
    if "fills" in news and checked.inputs["generation"] == olds["generation"] and "again" not in checked.inputs:
        checked = _fetched_again(olds, news, checked, changed, connect)
    revisions = _revisions(olds)
    revisions = {**revisions, **{key: revisions.get(key, 0) + 1 for key in changed}}
    secrets = {k: v for k, v in {"secrets": news.get("secrets"), REVISIONS: revisions}.items() if v}
    starts_anew = checked.failures or checked.inputs["generation"] != olds["generation"]
    notes = () if starts_anew or not changed else (_secret_note(olds, changed, connect),)
    inputs = {**{k: v for k, v in checked.inputs.items() if k != "retain"}, **secrets}
    if news.get("retain"):
        inputs["retain"] = True
    refused = checked.failures or _kept_name(olds, inputs) or _left_behind(olds, news, inputs, seen)
    return Checked(inputs, refused, (*checked.notes, *notes))


def _left_behind(olds: Props, news: Props, inputs: Props, seen: Presence | None) -> tuple[str, ...]:
    """Return that a new run on this machine would be in another folder than what it needs of the runs before: its volumes, or the
    record of a job whose folder has been moved, which the engine looks for where it was."""
    before, now = root(olds), root(news)
    if inputs["generation"] == olds["generation"] or not before or not now or before == now:
        return ()
    if Path(before).exists():
        if not _mounts_claims(inputs):
            return ()
        return (
            f"{_where(olds)} has its volumes in {before}, and the new run would be in {now}, without them: {stay(olds, news)}",
        )
    if seen is None or seen.owner is None:
        return ()
    return (
        f"{_where(olds)} has moved with its folder, from {before} to {now}: run `pulumi up` without the new run first",
    )


def stay(olds: Props, news: Props) -> str:
    """Return what to do where the folder of before is still there, and the program has another one."""
    mend = f"go on there with target=Local(root={root(olds)!r})"
    if Path(root(news)).exists():
        return f"{mend}; that folder cannot be moved, as {root(news)} is there already"
    return f"{mend}, or end its jobs and move that folder to {root(news)!r}"


def _mounts_claims(inputs: Props) -> bool:
    return "persistentVolumeClaim" in json.dumps(inputs["objects"], default=str)


def _kept_name(olds: Props, inputs: Props) -> tuple[str, ...]:
    """Return that a new run cannot have the name of the one before, which stays where it is."""
    anew = inputs["generation"] != olds["generation"] and (olds["namespace"], olds["name"]) == (
        inputs["namespace"],
        inputs["name"],
    )
    if not anew or not (olds.get("retain") or inputs.get("retain")):
        return ()
    mend = "give the new run another name (name=), or take retain_on_delete away by an `up` of its own first"
    return (f"{_where(olds)} stays where it is (retain_on_delete), and a new run would have its name: {mend}",)


def with_known_digest(olds: Props, news: Props) -> Props:
    """Return the new inputs with the digest that was stored, where an earlier version wrote another one for the same content."""
    known = {k: v for k, v in news.items() if k != "formerDigest"}
    same = bool(olds) and olds.get("digest") == news.get("formerDigest")
    return {**known, "digest": olds["digest"]} if same else known


def _name_in_use(inputs: Props, connect: Connect) -> tuple[str, ...]:
    """Return that another job has the name of one that is to be created, as `create` will find; nothing if that is not known."""
    identity = [inputs["owner"], inputs["namespace"], inputs["name"]]
    if any(isinstance(each, Unknown) for each in (*identity, inputs["target"])):
        return ()
    if inputs.get("adopt"):
        return _not_adoptable(inputs, connect)
    try:
        holder = connect(inputs["target"]).holder(inputs["namespace"], inputs["name"])
    except TrainerError:
        return ()
    if holder is None:
        return ()
    label = inputs["target"].get("sweep")
    me = Owner(inputs["owner"], label if isinstance(label, str) else "")
    if holder.id == me.id and holder.stack in ("", me.stack):
        return ()
    own = "" if inputs.get("retain") else label
    if holder.stack == own and (own or inputs.get("retain")):
        return ()  # the engine checks a replacement without its old inputs, while the run of before is still there
    return (f"{_where(inputs)}: exists and belongs to {holder.called_by(me)}; {_OTHER_NAME}",)


_OTHER_NAME = "give the TrainJob another name, or take the job over with adopt=True"


def _not_adoptable(inputs: Props, connect: Connect) -> tuple[str, ...]:
    """Return that a job cannot be taken over as it is, as `create` will find; nothing if that is not known."""
    target = known_target(inputs)
    if target is None:
        return ()
    why = conflict(lambda: connect(target).check_adoption(_submission({**inputs, "target": target})))
    return (why,) if why else ()


def known_target(inputs: Props) -> Props | None:
    """Return what is known of a target before its stack has made it; None if that may not lead there."""
    target: Props = inputs["target"]
    known = {k: v for k, v in target.items() if not isinstance(v, Unknown)}
    return None if any(isinstance(target.get(k), Unknown) for k in WAY) else known


def conflict(ask: Callable[[], None]) -> str:
    """Return why a target refuses what is asked of it; empty if it does not, or does not answer."""
    try:
        ask()
    except Conflict as refused:
        return str(refused)
    except TrainerError:
        pass
    return ""


def _compared(olds: Props, news: Props, seen: Presence | None, connect: Connect) -> Checked:
    """Return what becomes of a job that is there and ours. Values of secrets are left out: they change in place. seen: what its
    target has of it."""
    refills = olds.get("fills", news.get("fills")) != news.get("fills")
    same = olds["digest"] == news["digest"] and not refills
    stale = data_notes(olds, news) if same else ()
    if seen is not None and seen.another:
        why = f"{_where(olds)}: somebody has deleted it, and another job has its name since, which is left alone"
        mend = "delete that one, or give the TrainJob another name"
        return Checked({**news, "owner": olds["owner"], "generation": olds["generation"]}, failures=(f"{why}: {mend}",))
    if seen is not None and (again := _again(olds, seen)):
        if same and not stale:
            return Checked({**rerouted(olds, news), "again": again})
        if same:  # the volume of before may be gone
            fresh = {**news, "owner": olds["owner"], "generation": olds["generation"], "again": again}
            ended = again.startswith(_NO_RECORD)  # perhaps, and then it stays so
            return Checked(_with_data(olds, fresh), notes=stale) if ended else Checked(fresh)
        anew = {**news, "owner": olds["owner"], "generation": olds["generation"] + 1}
        if seen.alone is None or not _owner(olds).owns(seen.alone) or news.get("interrupt") == "allow":
            return Checked(anew)
        shown = "; ".join(_replacement_reasons(olds, news, connect))
        why = f"{_where(olds)} goes on although its record is gone, and this change would end it and start a new run: {shown}"
        return Checked(anew, failures=(f"{why}. {_WAIT}",))
    if same and _release(olds) != _release(news) and "channel" in news.get("runtime", {}):
        moved = _moved(olds, news, connect)
        taken = moved.inputs["generation"] != olds["generation"]
        return moved if taken else replace(moved, notes=(*moved.notes, *stale))
    if same:
        return Checked(rerouted(olds, news), notes=(*_runtime_note(olds, news), *stale))
    if why := _kept_from(olds, news):
        return Checked({**news, "owner": olds["owner"], "generation": olds["generation"]}, failures=(why,))
    reasons = _replacement_reasons(olds, news, connect)
    frozen = {**news, "owner": olds["owner"], "generation": olds["generation"] + bool(reasons)}
    if not reasons:
        frozen = _with_data(olds, frozen)
    if reasons and news.get("interrupt") != "allow":
        refusal = _interruption(olds, reasons, connect)
        return Checked(frozen, failures=(refusal,) if refusal else ())
    return Checked(frozen)


def _fetched_again(olds: Props, news: Props, checked: Checked, changed: Collection[str], connect: Connect) -> Checked:
    """Return what becomes of a fetch whose image or secret is another one now, neither of which makes another volume of it: it
    runs again if it has failed, and with another image also if no Pod of it has started."""
    images = [_images(olds), _images(news)]
    other = news["target"].get("kind") == "kubernetes" and None not in images[1] and images[0] != images[1]
    if not other and not changed:
        return checked
    try:
        status = connect(olds["target"]).status(olds["namespace"], olds["name"])
    except TrainerError:
        status = None
    phase = status.phase if status is not None else "out of reach"
    said = "its image is another one" if other else f"new secret value in Secret {', '.join(changed)}"
    if phase == Phase.FAILED or (other and phase in (Phase.PENDING, Phase.STARTING)):
        fresh = {**news, "owner": olds["owner"], "generation": olds["generation"] + 1}
        return Checked(fresh, notes=(f"{_where(olds)} is {phase}, and {said}: it is tried again",))
    if not other or any(key.startswith("ConfigMap/") for key in olds["objects"]):  # whose image is that of some job
        return checked
    name = str(news.get("component")).rpartition("::")[2]
    before, now = (", ".join(sorted(map(str, each))) for each in images)
    told = f"{_where(olds)} is {phase} with the image {before}; image={now} is for the next fetch"
    hint = f"`pulumi up --replace '**{name}'` fetches again"
    return replace(checked, notes=(*checked.notes, f"{told}. {hint}"))


def _images(props: Props) -> set[str | None]:
    """Return the images of a fetch; None stands for one that is not known yet."""
    found: set[str | None] = set()
    for key, document in from_state(props["objects"]).items():
        for rjob in document["spec"]["replicatedJobs"] if key.startswith("JobSet/") else ():
            containers = rjob["template"]["spec"]["template"]["spec"]["containers"]
            images = [container.get("image") for container in containers]
            found |= {image if isinstance(image, str) else None for image in images}
    return found


def _with_data(olds: Props, inputs: Props) -> Props:
    """Return the inputs of a job that goes on with the data that it was started with."""
    return {**{k: v for k, v in inputs.items() if k != "data"}, **({"data": olds["data"]} if "data" in olds else {})}


def diff(olds: Props, news: Props) -> Diff:
    """olds are outputs, news are checked inputs. In a refresh, news are the stored inputs."""
    if olds.get("generation") != news["generation"]:
        return Diff(True, ("generation",))
    if isinstance(news["digest"], Unknown):
        return Diff(None)
    written = _revisions(olds) != _revisions(news) or leads_elsewhere(olds, news)
    kept = bool(olds.get("retain")) != bool(news.get("retain"))
    changed = written or kept or olds.get("digest") != news["digest"] or bool(olds.get("drift"))
    again = news.get("again")
    if again in (None, olds.get("again")):
        return Diff(changed)
    return Diff(changed or _is_made_again(olds, news), notes=(f"{_where(olds)}: {_why_again(olds, str(again))}",))


def _is_made_again(outputs: Props, news: Props) -> bool:
    """Return whether the job was deleted and is to be created again: not one without a record that was seen to end."""
    again = news.get("again")
    if again in (None, outputs.get("again")):
        return False
    return not (str(again).startswith(_NO_RECORD) and outputs.get("phase") in _ENDS)


def _why_again(outputs: Props, again: str) -> str:
    if again.startswith(_TAKEN):
        return (
            f"somebody has deleted its {again.partition(' ')[2]}, and another object has that name, which was not made by this"
            " program and is left alone: `up` is refused until it is deleted; the job itself stays as it is"
        )
    if again.startswith(_MISSING):
        return (
            f"somebody has deleted its {again.partition(' ')[2]}, which is created again; the job itself stays as it is"
        )
    if not again.startswith(_NO_RECORD):
        return "somebody has deleted it before it ended; it is created again"
    phase = outputs.get("phase")
    return (_ENDED_WITHOUT_RECORD if phase in _ENDS else _LOST_WITH_RECORD).format(phase or Phase.PENDING)


_ENDS = (Phase.SUCCEEDED, Phase.FAILED)
_NO_RECORD = "no-record-"
"""What the mark of a job begins with whose record is gone; a number follows."""
_MISSING = "missing-"
"""The same of one that lacks other objects; a number and their names follow."""
_TAKEN = "taken-"
"""The same where others have their names."""
_LOST_WITH_RECORD = (
    "its record is gone, as when its namespace was deleted, so nobody can tell whether it has ended. When the stack last wrote"
    " its state (after creation or a refresh), the job was {}: it is taken for unfinished and created again. If it must not run"
    " again, remove the TrainJob from the program, or set suspend=True"
)
_ENDED_WITHOUT_RECORD = (
    "its record is gone, as when its namespace was deleted. The stack saw it {} at last: it stays finished and is not created"
    " again. To run it again, give it another run= key"
)


def _seen(olds: Props, news: Props, connect: Connect) -> Presence | None:
    """Return what the target has of the job; None: it cannot be asked, or not from this host."""
    if olds["target"].get("host") != news["target"].get("host"):
        return None
    main, secrets = main_key(olds["objects"]), [f"Secret/{name}" for name in _secrets(olds, olds["name"])]
    beside = dict.fromkeys([*(key for key in olds["objects"] if key != main), *secrets])
    try:
        return connect(rerouted(olds, news)["target"]).seen(olds["namespace"], olds["name"], beside)
    except TrainerError:
        return None


def _again(olds: Props, seen: Presence) -> str:
    """Return a mark, another one each time, of a job that is to be created again; empty: it is there, or has ended."""
    if seen.owner is not None and not seen.missing:
        return seen.deleted
    count = str(olds.get("again", "")).partition(" ")[0].rpartition("-")[2]
    kind = _TAKEN if seen.taken else _MISSING if seen.missing else _NO_RECORD
    names = ", ".join(seen.taken or seen.missing)
    return f"{kind}{int(count) + 1 if count.isdecimal() else 1} {names}".rstrip()


def _where(props: Props) -> str:
    return f"{props['namespace']}/{props['name']}"


def _owner(props: Props) -> Owner:
    """Whose a job is, by its inputs or outputs."""
    return Owner(props["owner"], str(props["target"].get("sweep") or ""))


def way(props: Props) -> Props:
    """How to get to the target."""
    target = props.get("target")
    return {k: target[k] for k in WAY if target.get(k) is not None} if isinstance(target, dict) else {}


def rerouted(olds: Props, news: Props) -> Props:
    """Return what was, with the way to the target of now. Nothing of the old way may stay: the engine encrypts what is secret in
    the new inputs, and the content of a kubeconfig that is there no longer would be stored in clear. Which interpreter runs jobs
    is said by the program alone, never by a state."""
    now = {**way(news), **_interpreter(news), **_moved_root(olds, news)}
    if not way(olds) and not now and not _interpreter(olds):
        return olds
    kept = {k: v for k, v in olds["target"].items() if k not in (*WAY, "python")}
    return {**olds, "target": {**kept, **now}}


def _moved_root(olds: Props, news: Props) -> Props:
    """Return the folder of now, where that of before is no more: it was moved, or removed with all that was in it."""
    before, now = root(olds), root(news)
    here = olds["target"].get("host") == news["target"].get("host")
    return {"root": now} if here and before and now and before != now and not Path(before).exists() else {}


def root(props: Props) -> str:
    """Return the folder of a target on this machine; empty where it is another target, or not known yet."""
    target = props.get("target")
    found = target.get("root") if isinstance(target, dict) else None
    return found if isinstance(found, str) else ""


def leads_elsewhere(olds: Props, news: Props) -> bool:
    """Return whether the way to the target is another one than that which is written down."""
    return way(olds) != way(news) or (root(olds) != root(news) and bool(root(olds) and root(news)))


def _interpreter(props: Props) -> Props:
    target = props.get("target")
    return {"python": target["python"]} if isinstance(target, dict) and target.get("python") else {}


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
    submission = _submission({**inputs, "target": where})
    if _is_made_again(outputs, inputs):
        return _outputs(inputs, target.create(submission), target.identity())
    if not diff({**outputs, "target": where, REVISIONS: _revisions(inputs)}, inputs).changes:
        if inputs.get("again") in (None, outputs.get("again")):  # else there is no record of it, and it has ended
            target.update_secrets(submission)
        known = {k: v for k, v in where.items() if k in WHERE}
        return {**outputs, REVISIONS: _revisions(inputs), "target": {**known, **target.identity()}}
    status = target.update(submission, force=bool(outputs.get("drift") or inputs.get("adopt")))
    return _outputs(inputs, status, target.identity())


def read(outputs: Props, connect: Connect) -> tuple[Props | None, list[str]]:
    """The job as it is now, and what to tell; None: nothing is known of it, or it belongs to another stack."""
    target = connect(outputs["target"])
    namespace, name = outputs["namespace"], outputs["name"]
    try:
        status = target.status(namespace, name)
    except Unreadable as fault:
        return outputs, [f"{_where(outputs)} stays as it was in the state of this stack: {fault}"]
    if status is not None and not _owner(outputs).owns(found := status.whose):
        return None, [f"{_where(outputs)} {found.adopted}. It is left alone and {_FORGOTTEN}"]
    if status is None or (status.phase == Phase.DELETED and status.reason != OUTCOME_UNKNOWN):
        return None, [
            f"{_where(outputs)} is gone and {_FORGOTTEN}: while the program has it, `pulumi up` creates it again"
        ]
    known = {k: v for k, v in outputs.items() if k != "drift"}
    drift = {} if status.terminal else target.drift(namespace, name)
    return {**known, "uid": status.uid, "phase": status.phase, **({"drift": drift} if drift else {})}, []


_FORGOTTEN = "no longer in the state of this stack"


def delete(outputs: Props, connect: Connect) -> list[str]:
    """Ends the job and removes what belongs to this run of it; an object made since by someone else stays. Returns what to tell:
    whose it is by now, or which data went with it."""
    uid, owner = outputs.get("uid", ""), _owner(outputs)
    left = connect(outputs["target"]).delete(outputs["namespace"], outputs["name"], uid=uid, owner=owner)
    if isinstance(left, Owner):
        return [f"{_where(outputs)} {left.adopted}. It is left alone"]
    return [left] if left else []


def _submission(inputs: Props) -> Submission:
    return Submission(
        namespace=inputs["namespace"],
        name=inputs["name"],
        owner=inputs["owner"],
        digest=inputs["digest"],
        objects=from_state(inputs["objects"]),
        run=inputs["run"],
        sweep=inputs["target"].get("sweep", ""),
        secrets=_secrets(inputs, inputs["name"]),
        retain=bool(inputs.get("retain")),
        runtime=inputs.get("runtime") or {},
        program=program_of(str(inputs.get("component") or "")),
    )


def _outputs(inputs: Props, status: JobStatus, identity: Props) -> Props:
    where = {**{k: v for k, v in inputs["target"].items() if k in WHERE}, **identity}
    kept = {k: inputs[k] for k in ("again", "retain", REVISIONS) if k in inputs}
    return {**{k: inputs[k] for k in FROZEN}, **kept, "target": where, "uid": status.uid, "phase": status.phase}


def _replacement_reasons(olds: Props, news: Props, connect: Connect) -> list[str]:
    changes = [c for c in compare(from_state(olds["objects"]), from_state(news["objects"])) if c.effect != "update"]
    held = changes and all(c.effect == "waiting" for c in changes) and _waits(olds, connect)
    reasons = [] if held else [str(c) for c in changes]
    if olds["run"] != news["run"]:
        reasons.insert(0, f"run {olds['run']!r} => {news['run']!r}")
    if changed := _changed_arguments(olds, news):
        reasons.append(f"func_args: {', '.join(changed)}")
    if olds.get("fills", news.get("fills")) != news.get("fills"):
        reasons.append("its volume is made anew")
    if (olds["namespace"], olds["name"]) != (news["namespace"], news["name"]):
        kept = f' (name="{olds["name"]}" keeps it)' if olds["namespace"] == news["namespace"] else ""
        reasons.insert(0, f"name {olds['namespace']}/{olds['name']} => {news['namespace']}/{news['name']}{kept}")
    return reasons


def _changed_arguments(olds: Props, news: Props) -> list[str]:
    """Return the names of the arguments that are other ones now, values of secrets left out. Objects do not show them."""
    texts = [text for text in (olds.get("arguments"), news.get("arguments")) if isinstance(text, str)]
    if len(texts) < 2:
        return []
    before, after = map(json.loads, texts)
    return [name for name in {**before, **after} if _written(before, name) != _written(after, name)]


def _written(arguments: Props, name: str) -> str:
    """Return an argument as JSON, which tells 1, 1.0 and true apart; empty: it is not given."""
    return json.dumps(arguments[name], sort_keys=True) if name in arguments else ""


def _revisions(props: Props) -> Props:
    return props.get(REVISIONS) or {}


def _secrets(props: Props, name: str) -> dict[str, Any]:
    """Return the values of a job's Secret by the name that the Secret has. A job that is renamed keeps its name, and inputs are
    secret to the engine only as the program calls them: by the new one.

    Args:
        props: The job's inputs.
        name: Of the job in its target.
    """
    return {secret_name(name): values for values in (props.get("secrets") or {}).values()}


def _changed_secrets(olds: Props, news: Props) -> list[str]:
    """Return "Secret/key" of each value that is another one now, or may be."""
    before, after = _secrets(olds, olds["name"]), _secrets(news, olds["name"])
    keys = [(name, key) for name, values in after.items() if name in before for key in values if key in before[name]]
    return [f"{name}/{key}" for name, key in keys if before[name][key] != after[name][key]]


def _secret_note(olds: Props, changed: list[str], connect: Connect) -> str:
    """Return which values of a job's Secret have changed, without them, and when the job reads these."""
    try:
        status = connect(olds["target"]).status(olds["namespace"], olds["name"])
    except TrainerError:
        status = None
    reads = "a job reads it when its Pods start"
    if status is not None and _owner(olds).owns(status.whose):
        waits = status.phase in (Phase.PENDING, Phase.QUEUED, Phase.SUSPENDED)
        reads = f"the job is {status.phase}: applies {'when it starts' if waits else 'at the next run'}"
    return f"{olds['namespace']}/{olds['name']}: new secret value in Secret {', '.join(changed)}; {reads}"


def _waits(olds: Props, connect: Connect) -> bool:
    """Whether Kueue holds the job back now; what cannot be seen counts as running."""
    try:
        status = connect(olds["target"]).status(olds["namespace"], olds["name"])
    except TrainerError:
        return False
    return status is not None and _owner(olds).owns(status.whose) and status.phase == Phase.QUEUED


def interruptions(outputs: Props, connect: Connect) -> tuple[str, ...]:
    """Return that a job which leaves the program is unfinished, so that its deletion ends it."""
    if outputs.get("retain"):
        return ()
    try:
        status = connect(outputs["target"]).status(outputs["namespace"], outputs["name"])
    except TrainerError:
        return ()
    if status is None or status.terminal or not _owner(outputs).owns(status.whose):
        return ()
    return (
        f"{_where(outputs)} is {_unfinished(status)}, and has left the program: this update ends it and deletes it",
    )


def _unfinished(status: JobStatus) -> str:
    since = datetime.fromtimestamp(status.started or status.created, timezone.utc)
    return f"{status.phase} since {since:%Y-%m-%d %H:%M:%S} UTC"


def _interruption(olds: Props, reasons: list[str], connect: Connect) -> str:
    """Why the change must not go ahead; empty: nothing unfinished would be ended."""
    try:
        status = connect(olds["target"]).status(olds["namespace"], olds["name"])
    except Refused as refused:
        return str(refused)
    except TrainerError as fault:
        return f"cannot see whether {olds['namespace']}/{olds['name']} is still running: {fault}"
    if status is None or status.terminal or not _owner(olds).owns(status.whose):
        return ""
    shown = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    return (
        f"{_where(olds)} is {_unfinished(status)}, and this change would end it and start a new run: {shown}. {_WAIT}"
    )


_WAIT = 'Wait until it has finished, or set interrupt="allow" on the TrainJob'


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
    if status is None or status.terminal or not _owner(olds).owns(status.whose):
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
