"""What was deleted externally of a job, and the marks of jobs that are to be created or started again."""

from __future__ import annotations

from pulumi_trainer.provider.jobs.status import UNKNOWN_END, Phase, Presence, may_have_ended
from pulumi_trainer.provider.jobs.submission import main_key
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import text
from pulumi_trainer.provider.lifecycle.connection import with_current_connection
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs, JobOutputs
from pulumi_trainer.provider.lifecycle.target import Connect

ENDS = (Phase.SUCCEEDED, Phase.FAILED)
_NO_RECORD = "no-record-"
"""Prefix of the mark of a job whose record is gone; a number follows."""
_ASKED = f"{_NO_RECORD}asked-"
"""Prefix of that mark if `interrupt` allows to run the job again although it may have ended; a number follows."""
_MISSING = "missing-"
"""Prefix of the mark of a job that lacks other objects; a number and their names follow."""
_TAKEN = "taken-"
"""Prefix of the mark of a job whose objects' names are taken by foreign objects."""
_UNSENT = "unsent-"
"""Prefix of the mark of a job whose run was recorded and never created; the mark of its record follows."""
_NOT_STARTED = "not-started-"
"""Prefix of the mark of a job that should run, and that nothing has started; a number follows."""
_LOST_WITH_RECORD = (
    "its record is gone, {lost}, so it is unknown whether it has ended. When the stack last wrote its state (after"
    " creation or a refresh), the job was {phase}: it counts as unfinished and is created again. If it must not run"
    " again, remove the"
    " TrainJob from the program, or set suspend=True"
)
_ENDED_WITHOUT_RECORD = (
    "its record is gone, {lost}. It was {phase} when the stack last saw it: it counts as finished and is not"
    " created again. To run it again, give it another run= key"
)


def find_presence(olds: JobInputs, news: JobInputs, connect: Connect) -> Presence | None:
    """Return what the target has of the job, or None if the target cannot be asked from this host."""
    if olds.target.get("host") != news.target.get("host"):
        return None
    main = main_key(olds.objects)
    others = [key for key in olds.objects if key != main]
    secrets = [f"Secret/{name}" for name in olds.secrets_of(olds.name)]
    try:
        target = connect(with_current_connection(olds, news).target)
        return target.jobs.presence(olds.namespace, olds.name, dict.fromkeys([*others, *secrets]))
    except TrainerError:
        return None


def recreate_mark(olds: JobInputs, presence: Presence, *, asked: bool) -> str:
    """Return a new mark for a job that is to be created again; empty if the job exists or has ended. asked: Whether `interrupt`
    allows to run a job again that may have ended."""
    may_have_ended = bool(presence.deleted) and not presence.unsent
    if may_have_ended and not asked:
        return ""
    if presence.unsent:
        return f"{_UNSENT}{presence.deleted}"
    if presence.owner is not None and not presence.missing:
        return presence.deleted
    number = _next_number(olds)
    if presence.taken:
        return f"{_TAKEN}{number} {', '.join(presence.taken)}"
    if presence.missing:
        return f"{_MISSING}{number} {', '.join(presence.missing)}"
    return f"{_ASKED if asked else _NO_RECORD}{number}"


def start_mark(olds: JobInputs) -> str:
    """Return a new mark for a job that nothing has started."""
    return f"{_NOT_STARTED}{_next_number(olds)}"


def _next_number(olds: JobInputs) -> int:
    count = str(olds.again).partition(" ")[0].rpartition("-")[2]
    if not count.isdecimal():
        return 1
    return int(count) + 1


def may_run(mark: str) -> bool:
    """Return whether a job with this mark may still run, and only other objects of it are gone."""
    return mark.startswith((_MISSING, _TAKEN))


def has_no_record(mark: str) -> bool:
    return mark.startswith(_NO_RECORD)


def is_created_again(outputs: JobOutputs, news: JobInputs) -> bool:
    """Return whether `update` creates the job: it was deleted externally, and the stack has not seen it end."""
    return is_recreated(outputs, news) and not news.again.startswith(_NOT_STARTED)


def is_recreated(outputs: JobOutputs, news: JobInputs) -> bool:
    """Return whether the job is to be created or started again: it was deleted externally, and the stack has not seen it end, or
    nothing has started it."""
    return news.again not in ("", outputs.again) and not _stays_gone(outputs, news.again)


def stays_gone(outputs: JobOutputs, news: JobInputs) -> bool:
    """Return whether the job has a new mark and is not created again: it has ended, or it may have, and nobody asks for it."""
    return news.again not in ("", outputs.again) and _stays_gone(outputs, news.again)


def _stays_gone(outputs: JobOutputs, again: str) -> bool:
    is_asked = again.startswith(_ASKED) or not outputs.is_local
    return has_no_record(again) and (outputs.phase in ENDS or (may_have_ended(text(outputs.phase)) and not is_asked))


def why_again(outputs: JobOutputs, again: str) -> str:
    """Return what has happened to a job with this mark, and what the update does about it; empty if its status shows that."""
    names = again.partition(" ")[2]
    if again.startswith(_TAKEN):
        return (
            f"somebody has deleted its {names}, and another object has that name, which this"
            " program did not create and leaves alone: `pulumi up` is refused until that object is deleted; the job"
            " itself is unchanged"
        )
    if again.startswith(_MISSING):
        return f"somebody has deleted its {names}, which is created again; the job itself is unchanged"
    if again.startswith(_NOT_STARTED):
        return "its supervisor was killed or has never been started; this update starts it"
    if again.startswith(_UNSENT):
        return "its new run was recorded, but not created; this update creates it"
    is_lost = outputs.is_local and may_have_ended(text(outputs.phase))
    if is_lost and has_no_record(again) and not again.startswith(_ASKED):
        return ""
    if is_lost or not has_no_record(again):
        return f"{UNKNOWN_END}; it is created again, as interrupt= allows"
    lost = "for example because its namespace was deleted"
    if outputs.is_local:
        lost = "for example because its folder was removed"
    if outputs.phase in ENDS:
        return _ENDED_WITHOUT_RECORD.format(phase=outputs.phase, lost=lost)
    return _LOST_WITH_RECORD.format(phase=outputs.phase or Phase.PENDING, lost=lost)
