"""The one shape of everything we refuse: what, where, why and what to do.

`Problem` is data (collected, several shown at once); the exceptions carry problems across a
call boundary and are what a caller may catch. Their text is all a user sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pulumi_trainer.provider.kube import terminal

LONGEST = 10_000
"""Characters of a part of a problem: what is quoted may have any length, and the message of a failed job has 8,000."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    where: field path or Python path, such as `spec.trainer.numNodes` or `TrainJob("digits").trainer.num_nodes`.
    why: the reason in words, without a full stop at the end.
    mend: what the user can do about it; empty where the reason says it already.
    type: the API server's name for this kind of error (`field.ErrorType` of Kubernetes' apimachinery).

    Any of them may quote a file, a name or a server: what a terminal would act on is removed here, and so is the middle of a
    text that is too long.
    """

    where: str
    why: str
    mend: str = ""
    type: str = "FieldValueInvalid"

    def __post_init__(self) -> None:
        for name, made_safe in (("where", terminal.plain), ("why", terminal.message), ("mend", terminal.plain)):
            text = whole = getattr(self, name)
            if len(text) > LONGEST:
                text = f"{text[: LONGEST // 2]}[...]{text[-LONGEST // 2 :]}"
            if not text.isprintable():
                text = made_safe(text)
            if text is not whole:
                object.__setattr__(self, name, text)

    def __str__(self) -> str:
        why = self.why or _TYPES.get(self.type, "")
        text = f"{self.where}: {why}" if self.where else why
        return f"{text}; {self.mend}" if self.mend else text

    def below(self, prefix: str) -> Problem:
        """The same problem, seen from a document that holds this one at `prefix`."""
        return replace(self, where=f"{prefix}.{self.where}" if self.where else prefix)


_TYPES = {"FieldValueRequired": "Required value", "FieldValueDuplicate": "Duplicate value"}
"""What an API server says of some kinds of errors, and no more than that."""


def several(told: Sequence[str], most: int = 5) -> str:
    """The first of several things, and how many more there are."""
    return "; ".join(told[:most]) + (f"; and {len(told) - most} more" if len(told) > most else "")


class TrainerError(Exception):
    """Base of all errors that are meant for the user: `str(error)` is complete and needs no traceback."""

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(p if isinstance(p, Problem) else Problem("", p) for p in problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> TrainerError:
        return cls(*problems)


class Invalid(TrainerError):
    """An input is wrong; nothing was sent or touched."""


class Conflict(TrainerError):
    """Something of that name exists and is not ours."""


class Refused(TrainerError):
    """The request is understood and well formed, and would do harm: interrupt running work, act on another host."""


class TargetFault(TrainerError):
    """The target could not do it: disk full, server down, permission missing."""


class Unreadable(TargetFault):
    """What is written down about one job or volume is not what was written: of it alone nothing is known."""
