"""Problems and errors for users: what is wrong, where, why, and what to do.

`Problem` is data, so that several can be collected and shown together; the exceptions carry problems. Users get only their text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pulumi_trainer.provider.kubernetes import terminal

LONGEST = 10_000
"""Maximum characters of a part of a problem: quoted text may have any length, and the message of a failed job has 8,000."""


@dataclass(frozen=True)
class Problem:
    """One problem: where, why, and what to do.

    Each part may quote a file, a name or a server, so control characters and the middle of a long text are removed.

    Args:
        where: Field path or Python path, such as `spec.replicas` or `Deployment("web").spec.replicas`.
        why: The reason, without a full stop at the end.
        hint: What the user can do about it; empty if the reason makes it clear.
        type: The API server's name for this kind of error (`field.ErrorType` of Kubernetes' apimachinery).
    """

    where: str
    why: str
    hint: str = ""
    type: str = "FieldValueInvalid"

    def __post_init__(self) -> None:
        for name, made_safe in (("where", terminal.plain), ("why", terminal.message), ("hint", terminal.plain)):
            text = whole = getattr(self, name)
            if len(text) > LONGEST:
                text = f"{text[: LONGEST // 2]}[...]{text[-LONGEST // 2 :]}"
            if not text.isprintable():
                text = made_safe(text)
            if text is not whole:
                object.__setattr__(self, name, text)

    def __str__(self) -> str:
        why = self.why or _TYPES.get(self.type, "")
        if self.where:
            why = f"{self.where}: {why}"
        return with_hint(why, self.hint)

    def below(self, prefix: str) -> Problem:
        """Return the problem with a path that starts with `prefix`."""
        if self.where:
            prefix = f"{prefix}.{self.where}"
        return replace(self, where=prefix)


def with_hint(text: str, hint: str) -> str:
    """Return a message followed by its hint, if there is one."""
    if not hint:
        return text
    return f"{text.removesuffix('.')}. Hint: {hint}"


def problems_below(prefix: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with paths that start with `prefix`."""
    return [problem.below(prefix) for problem in problems]


_TYPES = {"FieldValueRequired": "Required value", "FieldValueDuplicate": "Duplicate value"}
"""The whole message of an API server for some types of errors."""


def several(texts: Sequence[str], most: int = 5) -> str:
    """Return the first texts, and the number of the others."""
    text = "; ".join(texts[:most])
    if len(texts) > most:
        text += f"; and {len(texts) - most} more"
    return text


class TrainerError(Exception):
    """Base of all errors for users. `str(error)` is complete and needs no traceback."""

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(p if isinstance(p, Problem) else Problem("", p) for p in problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> TrainerError:
        """Return an error with several problems."""
        return cls(*problems)


class Invalid(TrainerError):
    """An input is not valid; nothing was sent or changed."""


class Conflict(TrainerError):
    """An object of that name exists and has another owner."""


class Refused(TrainerError):
    """A valid request would do harm: interrupt running work, or act on another host."""


class TargetFault(TrainerError):
    """The target failed: disk full, server down, permission missing."""


class NotFound(TargetFault):
    """A job does not exist."""


class Unreadable(TargetFault):
    """The record of one job or volume is damaged; other jobs and volumes are not affected."""
